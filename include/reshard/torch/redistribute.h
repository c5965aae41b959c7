// Redistributes at::Tensors, with gradients, between threads or over any process group.
//
//   auto group = reshard::TensorCommunicator::OfGroup("0");                   // or around a LocalWorld's rank
//   at::Tensor columns = reshard::Redistribute(rows, source, target, *group); // layouts of the global tensor
//
// Every rank of the communicator makes the same calls in the same order. A rank outside a mesh passes and gets an empty
// tensor. Results are always new memory, even if nothing moves; inputs may have any strides and are not modified.
//
// Gradients (see docs/design/gradients.md): the gradient of a redistribution is redistributed back. A replicated
// element counts once and its gradient is replicated; the gradient of a contribution to a partial sum is the gradient
// of the sum, or for an average that gradient divided by the number of contributions. Min, max and prod have none.
//
// Tensors on GPUs move on the caller's current stream: a call enqueues its work and returns. Work enqueued on that
// stream before it may write the inputs, and work enqueued after it may read the results. Errors of other ranks and of
// the device are then reported by a later call (see docs/design/runtime.md).
//
// Errors are exceptions here, as everywhere in LibTorch, and say which rank is the culprit: c10::ValueError for invalid
// arguments of this rank, c10::NotImplementedError, c10::OutOfMemoryError, c10::DistBackendError if another rank
// failed, is gone or disagrees, and c10::Error for anything else.
#ifndef RESHARD_TORCH_REDISTRIBUTE_H_
#define RESHARD_TORCH_REDISTRIBUTE_H_

#include <ATen/core/Tensor.h>
#include <c10/core/Device.h>

#include <functional>
#include <future>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/types/span.h"
#include "reshard/layout/layout.h"
#include "reshard/runtime/communicator.h"
#include "reshard/runtime/executor.h"
#include "reshard/runtime/redistributor.h"

namespace c10d {
class ProcessGroup;
}

namespace reshard {

namespace pytorch {
class SideStream;
}

// A communicator, the problems prepared for it, and the thread that runs its asynchronous calls.
class TensorCommunicator {
 public:
  // Wraps any communicator, which must outlive it: a rank of a LocalWorld, or an NcclCommunicator, which is given the
  // current stream of its GPU at every call.
  explicit TensorCommunicator(Communicator* communicator, RedistributorOptions options = {});
  ~TensorCommunicator();

  // The communicator of the process group registered under that name (as in PyTorch's functional collectives), for
  // tensors on that device. There is one for each group and device, created at first use, shared by all callers in this
  // process; see Forget. RESHARD_CUDA_TRANSPORT chooses what carries tensors on GPUs:
  //   c10d   the group's own backend for them (the default): no second NCCL communicator, and torch's watchdog and
  //          flight recorder see everything
  //   nccl   a communicator of this library, whose ranks meet through the store of the group
  // Throws c10::Error if there is no such group or it has no backend for GPUs, c10::ValueError for other values of that
  // variable, and c10::DistBackendError if there is no CUDA.
  static std::shared_ptr<TensorCommunicator> OfGroup(const std::string& name, at::Device device = at::kCPU);
  // For diagnostics: the group's communicator for a GPU if there is one, else the one for the host.
  static std::shared_ptr<TensorCommunicator> InUseOf(const std::string& name);
  // Call it when the group of that name is destroyed, or with nullopt when all groups are: ends the threads and closes
  // the sockets that were made for it, even if a caller still holds a communicator; its calls throw from then on. Waits
  // for asynchronous calls under way. The Python package calls it; if nothing does, they go when another group is used.
  static void Forget(const std::optional<std::string>& name);

  // The device of its tensors.
  at::Device device() const { return device_; }
  // What data moves over.
  Communicator& communicator() const { return redistributor_.communicator(); }
  // Plans, compiles and executes over the communicator.
  Redistributor& redistributor() { return redistributor_; }
  // The result of the last call that succeeded.
  ExecuteResult last_result() const;
  // See RecentOperations::ToJson; "[]" for communicators that do not record operations.
  std::string RecentOperationsJson() const;

  // Runs the function on this thread, after every function that was passed to this or to RunLater earlier, and returns
  // when it has returned. All calls on a communicator go through these two, so that asynchronous and synchronous ones
  // keep their order.
  void RunInOrder(const std::function<void()>& function);
  // The same on the worker thread, without waiting. The future throws what the function throws.
  std::future<void> RunLater(std::function<void()> function);
  // Makes the communicator enqueue on the stream that is current on this thread. RunInOrder does so before it runs its
  // function; a function that makes a different stream current calls this itself.
  void UseCurrentStream();

  // From now on plans for the network last set by SetTopology of topology.h, as the ranks of its group see it. One that
  // wraps a communicator keeps to its options. InvalidArgument and NotFound, which all ranks must learn of:
  // RESHARD_TOPOLOGY names no topology. Call it within RunInOrder and RunLater only.
  absl::Status FollowTopology();

  // Sets what last_result() returns.
  void SetLastResult(const ExecuteResult& result);

  // Ends what Forget ends. Not under a lock.
  void Close();

  // Buffers for the views of the call in progress; use them within RunInOrder and RunLater only. They are kept
  // between calls, because an allocator would return blocks of this size to the system, and their pages with them.
  struct Views {
    std::vector<ConstTensorView> sources;  // one per tensor
    std::vector<TensorView> targets;       // one per tensor
  };
  // Holds what the previous call left in it.
  Views& views() { return views_; }

 private:
  class Worker;
  TensorCommunicator(std::unique_ptr<Communicator> owned, RedistributorOptions options, at::Device device,
                     std::shared_ptr<void> kept);

  std::shared_ptr<void> kept_;  // what the communicator uses
  std::unique_ptr<Communicator> owned_;
  at::Device device_ = at::kCPU;
  Redistributor redistributor_;
  mutable std::mutex mutex_;
  ExecuteResult last_result_;
  std::mutex order_;
  Views views_;                     // guarded by order_
  std::shared_ptr<Worker> worker_;  // with asynchronous calls only

  // For a group, both guarded by order_: its global ranks, and the version of the topology that the redistributor has.
  std::optional<std::vector<int64_t>> global_ranks_;
  int64_t topology_version_ = 0;
  Topology own_topology_ = Topology::Flat();  // while none is set
};

// Returns this rank's fragment under `target`, given `tensor`, its fragment under `source`. Differentiable. `out`, if
// given, must have the dtype and shape of the result and may be strided; the result is written to it, and it is
// returned. In that case nothing may require a gradient.
at::Tensor Redistribute(const at::Tensor& tensor, const Layout& source, const Layout& target,
                        TensorCommunicator& communicator, const std::optional<at::Tensor>& out = std::nullopt);

// The same for many tensors, which share exchanges, each between any two meshes. One source and one target layout per
// tensor. Differentiable: the gradients are one batch as well. `memory_limit_bytes`: most that a device may need at
// once for the sources, targets and staging of the tensors under way; a batch that needs more takes several exchanges.
// All ranks pass the same limit. c10::OutOfMemoryError if a single tensor needs more.
std::vector<at::Tensor> RedistributeBatch(absl::Span<const at::Tensor> tensors, absl::Span<const Layout> sources,
                                          absl::Span<const Layout> targets, TensorCommunicator& communicator,
                                          std::optional<int64_t> memory_limit_bytes = std::nullopt);

// A redistribution in progress. Until Wait returns, the tensors must not be modified and the communicator must not be
// destroyed.
//
// Tensors on GPUs move on a separate stream, which first waits for what the caller has enqueued so far. For them,
// everything has been enqueued when RedistributeAsync returns, and Wait makes the caller's current stream wait, not the
// host.
class RedistributeHandle {
 public:
  // Returns the results, or throws what the redistribution threw. Must be called at most once.
  std::vector<at::Tensor> Wait();
  // Whether Wait would return without blocking.
  bool Done() const;

 private:
  friend RedistributeHandle RedistributeAsync(absl::Span<const at::Tensor>, absl::Span<const Layout>,
                                              absl::Span<const Layout>, TensorCommunicator&, std::optional<int64_t>);
  std::shared_ptr<std::vector<at::Tensor>> results_;
  std::shared_ptr<pytorch::SideStream> stream_;  // null on the host
  std::future<void> done_;
};

// Starts RedistributeBatch and returns immediately. With tensors on GPUs it returns once this thread has enqueued it
// (if ranks agree on the host, once all have arrived): the program's own calls to the group's backend must not come
// from another thread at the same time. Without gradients: throws c10::ValueError for tensors that require one (detach
// them).
RedistributeHandle RedistributeAsync(absl::Span<const at::Tensor> tensors, absl::Span<const Layout> sources,
                                     absl::Span<const Layout> targets, TensorCommunicator& communicator,
                                     std::optional<int64_t> memory_limit_bytes = std::nullopt);

}  // namespace reshard

#endif  // RESHARD_TORCH_REDISTRIBUTE_H_
