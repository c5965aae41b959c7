#include "reshard/torch/redistribute.h"

#include <ATen/core/grad_mode.h>
#include <c10/util/Exception.h>
#include <torch/csrc/autograd/custom_function.h>

#include <functional>
#include <future>
#include <utility>

#include "absl/strings/str_cat.h"
#include "runtime/pytorch/move.h"
#include "runtime/pytorch/tensors.h"
#include "runtime/pytorch/torch_stream.h"

namespace reshard {
namespace {

using ::torch::autograd::AutogradContext;
using ::torch::autograd::variable_list;

absl::StatusOr<std::vector<pytorch::Move>> MovesOf(absl::Span<const Layout> sources, absl::Span<const Layout> targets) {
  if (sources.size() != targets.size()) {
    return absl::InvalidArgumentError(absl::StrCat(sources.size(), " sources, but ", targets.size(), " targets"));
  }
  std::vector<pytorch::Move> moves;
  moves.reserve(sources.size());
  for (size_t i = 0; i < sources.size(); ++i) moves.push_back(pytorch::MoveOf(sources[i], targets[i]));
  return moves;
}

// What the node of the graph stores: which moves, over which communicator.
struct Remembered : ::torch::CustomClassHolder {
  std::vector<pytorch::Move> moves;
  std::vector<std::vector<c10::SymInt>> sizes;  // of the inputs
  TensorCommunicator* communicator = nullptr;
  std::optional<int64_t> memory_limit_bytes;
};

class MovesFunction : public ::torch::autograd::Function<MovesFunction> {
 public:
  static variable_list forward(AutogradContext* context, at::TensorList tensors,
                               const absl::StatusOr<std::vector<pytorch::Move>>& moves,
                               TensorCommunicator& communicator, std::optional<int64_t> memory_limit_bytes) {
    auto remembered = c10::make_intrusive<Remembered>();
    if (moves.ok()) remembered->moves = *moves;
    for (const at::Tensor& tensor : tensors) remembered->sizes.push_back(tensor.sym_sizes().vec());
    remembered->communicator = &communicator;
    remembered->memory_limit_bytes = memory_limit_bytes;
    context->saved_data["moves"] = c10::IValue::make_capsule(std::move(remembered));
    return pytorch::RunMoves(tensors, moves, communicator, {}, memory_limit_bytes);
  }

  static variable_list backward(AutogradContext* context, const variable_list& gradients) {
    const auto remembered = c10::static_intrusive_pointer_cast<Remembered>(context->saved_data["moves"].toCapsule());
    std::vector<pytorch::Move> back;
    std::vector<at::Tensor> scaled;
    for (size_t i = 0; i < gradients.size(); ++i) {
      const pytorch::Move& move = remembered->moves[i];
      scaled.push_back(pytorch::ScaledGradient(gradients[i], move));
      back.push_back(move.Back());
    }
    const absl::StatusOr<std::vector<pytorch::Move>> moves = back;
    variable_list results = Function<MovesFunction>::apply(at::TensorList(scaled), moves, *remembered->communicator,
                                                           remembered->memory_limit_bytes);
    for (size_t i = 0; i < results.size(); ++i) results[i] = pytorch::LikeInput(results[i], remembered->sizes[i]);
    for (int i = 0; i < 3; ++i) results.emplace_back();
    return results;
  }
};

}  // namespace

at::Tensor Redistribute(const at::Tensor& tensor, const Layout& source, const Layout& target,
                        TensorCommunicator& communicator, const std::optional<at::Tensor>& out) {
  const absl::StatusOr<std::vector<pytorch::Move>> moves = MovesOf({&source, 1}, {&target, 1});
  const std::optional<int64_t> no_limit;
  if (!out) return MovesFunction::apply(at::TensorList(tensor), moves, communicator, no_limit)[0];
  const bool differentiated = at::GradMode::is_enabled() && (tensor.requires_grad() || out->requires_grad());
  TORCH_CHECK_VALUE(!differentiated, "rank ", communicator.communicator().rank(),
                    ": a redistribution into `out` has no gradient; detach the tensors");
  return pytorch::RunMoves(at::TensorList(tensor), moves, communicator, at::TensorList(*out))[0];
}

std::vector<at::Tensor> RedistributeBatch(absl::Span<const at::Tensor> tensors, absl::Span<const Layout> sources,
                                          absl::Span<const Layout> targets, TensorCommunicator& communicator,
                                          std::optional<int64_t> memory_limit_bytes) {
  const absl::StatusOr<std::vector<pytorch::Move>> moves = MovesOf(sources, targets);
  return MovesFunction::apply(at::TensorList(tensors.data(), tensors.size()), moves, communicator, memory_limit_bytes);
}

RedistributeHandle RedistributeAsync(absl::Span<const at::Tensor> tensors, absl::Span<const Layout> sources,
                                     absl::Span<const Layout> targets, TensorCommunicator& communicator,
                                     std::optional<int64_t> memory_limit_bytes) {
  for (const at::Tensor& tensor : tensors) {
    TORCH_CHECK_VALUE(!(at::GradMode::is_enabled() && tensor.requires_grad()), "rank ",
                      communicator.communicator().rank(), ": asynchronous calls have no gradient; detach the tensors");
  }
  RedistributeHandle handle;
  handle.results_ = std::make_shared<std::vector<at::Tensor>>();
  const std::vector<at::Tensor> held(tensors.begin(), tensors.end());
  const std::function<void()> move = [results = handle.results_, &communicator, memory_limit_bytes, held,
                                      moves = MovesOf(sources, targets)] {
    const at::NoGradGuard no_gradient;
    communicator.UseCurrentStream();
    *results = pytorch::RunMovesInTurn(held, moves, communicator, {}, memory_limit_bytes);
  };
  if (!communicator.device().is_cuda()) {
    handle.done_ = communicator.RunLater(move);
    return handle;
  }
  handle.stream_ = std::make_shared<pytorch::SideStream>(communicator.device());
  // Enqueued by this thread: the program's own collectives go to the same backend, which keeps a group of calls in
  // plain members and so must not be used by two threads.
  std::packaged_task<void()> enqueue([&] { handle.stream_->Run(held, move); });
  handle.done_ = enqueue.get_future();
  communicator.RunInOrder([&] { enqueue(); });
  return handle;
}

std::vector<at::Tensor> RedistributeHandle::Wait() {
  done_.get();
  if (stream_ != nullptr) stream_->Join(*results_);
  return std::move(*results_);
}

bool RedistributeHandle::Done() const { return done_.wait_for(std::chrono::seconds(0)) == std::future_status::ready; }

}  // namespace reshard
