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
// Errors are exceptions here, as everywhere in LibTorch, and say which rank is to blame: c10::ValueError for wrong
// arguments of this rank, c10::NotImplementedError, c10::OutOfMemoryError, c10::DistBackendError when another rank
// failed, is gone or disagrees, c10::Error for the rest.
#ifndef RESHARD_TORCH_REDISTRIBUTE_H_
#define RESHARD_TORCH_REDISTRIBUTE_H_

#include <ATen/core/Tensor.h>

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
  // Around any communicator, which must outlive it: a LocalWorld's rank, say.
  explicit TensorCommunicator(Communicator* communicator, RedistributorOptions options = {});
  ~TensorCommunicator();

  // Of the process group registered under that name (PyTorch's functional collectives know groups by name). One for
  // each group, made at first use, shared by all callers in this process, and forgotten when the group is destroyed.
  // Throws c10::Error when there is no such group.
  static std::shared_ptr<TensorCommunicator> OfGroup(const std::string& name);

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
  TensorCommunicator(std::unique_ptr<Communicator> owned, RedistributorOptions options);

  std::unique_ptr<Communicator> owned_;
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
class RedistributeHandle {
 public:
  // The results; throws what the redistribution threw. May be called once.
  std::vector<at::Tensor> Wait();
  bool Done() const;

 private:
  friend RedistributeHandle RedistributeAsync(absl::Span<const at::Tensor>, absl::Span<const Layout>,
                                              absl::Span<const Layout>, TensorCommunicator&);
  std::shared_ptr<std::vector<at::Tensor>> results_;
  std::future<void> done_;
};

// The same, returning at once. Without gradients: throws c10::ValueError for tensors that require one (detach them).
RedistributeHandle RedistributeAsync(absl::Span<const at::Tensor> tensors, absl::Span<const Layout> sources,
                                     absl::Span<const Layout> targets, TensorCommunicator& communicator);

}  // namespace reshard

#endif  // RESHARD_TORCH_REDISTRIBUTE_H_
