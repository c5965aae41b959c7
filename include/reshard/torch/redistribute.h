// Redistributing at::Tensors: in and out, with gradients, over threads or any process group.
//
//   auto group = reshard::TensorCommunicator::OfGroup("0").value();           // or around a LocalWorld's rank
//   at::Tensor columns = reshard::Redistribute(rows, source, target, *group); // layouts of the global tensor
//
// Every rank of the communicator makes the same calls in the same order. A rank outside a mesh passes and gets an empty
// tensor. Results are fresh memory, also where nothing moves; inputs may have any strides and are not written to.
//
// Gradients (see docs/design/gradients.md): the gradient of a redistribution is the redistribution back. A replicated
// element counts once and its gradient is replicated; the gradient of a contribution to a pending sum (avg) is the
// gradient of the sum (over the number of contributions). Min, max and prod have none.
//
// Tensors of GPUs move on the caller's current stream: a call enqueues and returns, and what is enqueued there before
// and after it may write the inputs and read the results. Errors of other ranks and of the device show at a later call
// then (see docs/design/runtime.md).
//
// Errors are exceptions here, as everywhere in LibTorch, and say which rank is to blame: c10::ValueError for wrong
// arguments of this rank, c10::NotImplementedError, c10::OutOfMemoryError, c10::DistBackendError when another rank
// failed, is gone or disagrees, c10::Error for the rest.
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

// A communicator, what has been prepared for it, and the thread that runs its asynchronous calls.
class TensorCommunicator {
 public:
  // Around any communicator, which must outlive it: a LocalWorld's rank, or an NcclCommunicator, which gets the current
  // stream of its GPU at every call.
  explicit TensorCommunicator(Communicator* communicator, RedistributorOptions options = {});
  ~TensorCommunicator();

  // Of the process group registered under that name (PyTorch's functional collectives know groups by name), for tensors
  // on that device. One for each group and device, made at first use, shared by all callers in this process, and
  // forgotten when the group is destroyed. What carries tensors of GPUs is chosen by RESHARD_CUDA_TRANSPORT:
  //   c10d   the group's own backend for them (the default): no second NCCL communicator, and torch's watchdog and
  //          flight recorder see everything
  //   nccl   a communicator of this library, whose ranks meet through the store of the group
  // Throws c10::Error when there is no such group; c10::ValueError for other values of that variable;
  // c10::DistBackendError where there is no CUDA; c10::Error when the group has no backend for GPUs.
  static std::shared_ptr<TensorCommunicator> OfGroup(const std::string& name, at::Device device = at::kCPU);
  // The one of a GPU where there is one, else the host's: what diagnostics ask.
  static std::shared_ptr<TensorCommunicator> InUseOf(const std::string& name);

  // Where its tensors lie.
  at::Device device() const { return device_; }
  Communicator& communicator() const { return redistributor_.communicator(); }
  Redistributor& redistributor() { return redistributor_; }
  // Of the last call that ended well.
  ExecuteResult last_result() const;
  // [] for communicators that remember nothing.
  std::string RecentOperationsJson() const;

  // Runs the function after all that were given before it. All calls of a communicator go through here, so that
  // asynchronous and synchronous ones keep their order.
  void RunInOrder(const std::function<void()>& function);
  std::future<void> RunLater(std::function<void()> function);
  // What follows goes to the stream that is current on this thread. RunInOrder does it for its function, which runs on
  // the caller's thread; one of RunLater does it itself, once it has made a stream current.
  void UseCurrentStream();

  void SetLastResult(const ExecuteResult& result);

  // Room for the views of the call under way: of no use outside RunInOrder and RunLater. Kept from call to call,
  // because an allocator gives blocks of this size back to the system, and their pages with them.
  struct Views {
    std::vector<ConstTensorView> sources;
    std::vector<TensorView> targets;
  };
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
  Views views_;  // guarded by order_
  std::unique_ptr<Worker> worker_;
};

// This rank's fragment under `target` of the tensor whose fragment under `source` is `tensor`. Differentiable.
// `out`, when given, has the dtype and shape of the result, may be strided, and receives it; then nothing may require a
// gradient.
at::Tensor Redistribute(const at::Tensor& tensor, const Layout& source, const Layout& target,
                        TensorCommunicator& communicator, const std::optional<at::Tensor>& out = std::nullopt);

// Many tensors, whose exchanges are shared. Differentiable.
std::vector<at::Tensor> RedistributeBatch(absl::Span<const at::Tensor> tensors, absl::Span<const Layout> sources,
                                          absl::Span<const Layout> targets, TensorCommunicator& communicator);

// A redistribution under way. The tensors must not be changed, nor the communicator destroyed, before Wait.
//
// Tensors of GPUs move on a stream of their own, which waits for what the caller has enqueued so far. Done then says
// that everything is enqueued, and Wait makes the caller's current stream wait instead of the host.
class RedistributeHandle {
 public:
  // The results; throws what the redistribution threw. May be called once.
  std::vector<at::Tensor> Wait();
  bool Done() const;

 private:
  friend RedistributeHandle RedistributeAsync(absl::Span<const at::Tensor>, absl::Span<const Layout>,
                                              absl::Span<const Layout>, TensorCommunicator&);
  std::shared_ptr<std::vector<at::Tensor>> results_;
  std::shared_ptr<class SideStream> stream_;  // null on the host
  std::future<void> done_;
};

// The same, returning at once. Without gradients: throws c10::ValueError for tensors that require one (detach them).
RedistributeHandle RedistributeAsync(absl::Span<const at::Tensor> tensors, absl::Span<const Layout> sources,
                                     absl::Span<const Layout> targets, TensorCommunicator& communicator);

}  // namespace reshard

#endif  // RESHARD_TORCH_REDISTRIBUTE_H_
