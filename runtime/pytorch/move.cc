#include "runtime/pytorch/move.h"

#include <ATen/core/grad_mode.h>
#include <c10/core/impl/LocalDispatchKeySet.h>
#include <c10/core/impl/TorchDispatchModeTLS.h>
#include <c10/util/Exception.h>

#include <algorithm>
#include <cassert>
#include <utility>

#include "absl/strings/str_cat.h"
#include "reshard/layout/checked.h"
#include "reshard/layout/text.h"
#include "runtime/pytorch/tensors.h"
#include "status/no_throw.h"

namespace reshard::pytorch {
namespace {

int64_t Contributions(const Layout& layout) {
  int64_t product = 1;
  if (!layout.partial()) return product;
  for (const AxisRef& axis : layout.partial()->axes) product *= axis.size;
  return product;
}

absl::StatusOr<std::vector<Problem>> ProblemsOfMoves(at::TensorList tensors,
                                                     const absl::StatusOr<std::vector<Move>>& moves) {
  if (!moves.ok()) return moves.status();
  if (tensors.size() != moves->size()) {
    return absl::InvalidArgumentError(
        absl::StrCat(tensors.size(), " tensors, but ", moves->size(), " sources and targets"));
  }
  std::vector<Problem> problems;
  problems.reserve(moves->size());
  for (const Move& move : *moves) problems.push_back({move.source, move.target, DType::kU8});
  return problems;
}

bool IsLazy(const at::Tensor& tensor) { return tensor.is_conj() || tensor.is_neg(); }

// Executes the problems, or tells the other ranks why it cannot. Fills in their dtypes. `results` holds the
// destinations; if it is empty, new ones are put there.
absl::Status Execute(at::TensorList tensors, absl::StatusOr<std::vector<Problem>> problems,
                     TensorCommunicator& communicator, std::optional<int64_t> memory_limit_bytes,
                     std::vector<at::Tensor>* results) {
  const bool fresh = results->empty();
  bool lazy = false;
  const auto prepare = [&]() -> absl::StatusOr<std::shared_ptr<PreparedProblem>> {
    if (!problems.ok()) return problems.status();
    const absl::Status network = communicator.FollowTopology();
    if (!network.ok()) return network;
    for (size_t i = 0; i < tensors.size(); ++i) {
      absl::Status checked = CheckTensor(tensors[i], communicator.device());
      if (checked.ok() && !fresh) checked = CheckTensor((*results)[i], communicator.device());
      if (!checked.ok()) return checked;
      lazy |= IsLazy(tensors[i]);
      (*problems)[i].dtype = groups::DTypeOf(tensors[i].scalar_type()).value();
    }
    return communicator.redistributor().PrepareBatch(*problems, memory_limit_bytes);
  };
  const absl::StatusOr<std::shared_ptr<PreparedProblem>> prepared = prepare();
  std::vector<at::Tensor> resolved;
  TensorCommunicator::Views& views = communicator.views();
  views.sources.clear();
  views.targets.clear();
  if (prepared.ok()) {
    if (fresh) {
      std::vector<NewTensorSpec> specs;
      specs.reserve(tensors.size());
      for (size_t i = 0; i < tensors.size(); ++i) {
        const Dims& shape = (*prepared)->target(static_cast<int64_t>(i)).shape;
        specs.push_back({at::IntArrayRef(shape.data(), shape.size()), tensors[i].scalar_type()});
      }
      *results = NewTensors(specs, communicator.device());
    }
    // What a plan flattens must be evenly spaced in memory; otherwise tensors are moved with their own strides.
    const bool dense = (*prepared)->flattens();
    if (lazy || dense) {
      for (const at::Tensor& tensor : tensors) {
        resolved.push_back(dense ? Resolved(tensor).contiguous() : Resolved(tensor));
      }
      tensors = resolved;
    }
    for (size_t i = 0; i < tensors.size(); ++i) {
      views.sources.push_back(ViewOf(tensors[i]));
      views.targets.push_back(MutableViewOf((*results)[i]));
    }
  }
  const absl::StatusOr<ExecuteResult> run = communicator.redistributor().Run(
      prepared, views.sources, views.targets, fresh ? ViewsAre::kFreshTargets : ViewsAre::kAny);
  if (run.ok()) communicator.SetLastResult(*run);
  return run.status();
}

std::vector<at::Tensor> ExecuteOrThrow(at::TensorList tensors, absl::StatusOr<std::vector<Problem>> problems,
                                       TensorCommunicator& communicator, at::TensorList outs,
                                       std::optional<int64_t> memory_limit_bytes) {
  std::vector<at::Tensor> results = outs.vec();
  const absl::Status status = status::NoThrow("redistributing", [&] {
    return Execute(tensors, std::move(problems), communicator, memory_limit_bytes, &results);
  });
  if (!status.ok()) Throw(status, communicator.communicator().rank());
  return results;
}

}  // namespace

Move MoveOf(const Layout& source, const Layout& target) {
  Move move{source, target, Move::Gradient{target.WithoutPartial(), source.WithoutPartial(), 1.0}};
  if (!source.partial() || source.partial()->op == ReduceOp::kSum) return move;
  if (source.partial()->op == ReduceOp::kAvg) {
    move.gradient->scale = static_cast<double>(Contributions(target)) / static_cast<double>(Contributions(source));
  } else {
    move.gradient.reset();
  }
  return move;
}

Move Move::Back() const {
  assert(gradient.has_value());
  Move back{gradient->from, gradient->to, Gradient{source, target, gradient->scale}};
  // If the gradient of a partial sum is replicated, its own gradient is replicated, too.
  if (source.partial() && !gradient->from.partial()) {
    back.gradient->from = source.WithoutPartial();
    back.gradient->to = target.WithoutPartial();
  }
  return back;
}

at::Tensor ScaledGradient(const at::Tensor& gradient, const Move& move) {
  TORCH_CHECK_NOT_IMPLEMENTED(move.gradient.has_value(), "no gradient through ", ToString(move.source), " -> ",
                              ToString(move.target));
  return move.gradient->scale == 1.0 ? gradient : gradient.mul(move.gradient->scale);
}

at::Tensor LikeInput(const at::Tensor& gradient, const std::vector<c10::SymInt>& sizes) {
  if (gradient.sym_numel() != 0 || gradient.sym_sizes() == c10::SymIntArrayRef(sizes)) return gradient;
  return gradient.reshape_symint(sizes);
}

std::vector<at::Tensor> RunMovesInTurn(at::TensorList tensors, const absl::StatusOr<std::vector<Move>>& moves,
                                       TensorCommunicator& communicator, at::TensorList outs,
                                       std::optional<int64_t> memory_limit_bytes) {
  return ExecuteOrThrow(tensors, ProblemsOfMoves(tensors, moves), communicator, outs, memory_limit_bytes);
}

std::vector<at::Tensor> RunMoves(at::TensorList tensors, const absl::StatusOr<std::vector<Move>>& moves,
                                 TensorCommunicator& communicator, at::TensorList outs,
                                 std::optional<int64_t> memory_limit_bytes) {
  std::vector<at::Tensor> results;
  communicator.RunInOrder([&] { results = RunMovesInTurn(tensors, moves, communicator, outs, memory_limit_bytes); });
  return results;
}

std::vector<at::Tensor> RunProblems(at::TensorList tensors, absl::StatusOr<std::vector<Problem>> problems,
                                    TensorCommunicator& communicator, std::optional<int64_t> memory_limit_bytes) {
  std::vector<at::Tensor> results;
  communicator.RunInOrder(
      [&] { results = ExecuteOrThrow(tensors, std::move(problems), communicator, {}, memory_limit_bytes); });
  return results;
}

absl::StatusOr<int64_t> GlobalSize(int64_t local, int64_t ranks) {
  const std::optional<int64_t> size = CheckedMul(local, ranks);
  if (size) return *size;
  return absl::InvalidArgumentError(
      absl::StrCat(ranks, " times ", local, " elements do not fit a signed 64-bit integer"));
}

std::vector<int64_t> ResultShape(const Layout& target, int64_t rank) {
  const std::optional<int64_t> position = target.mesh().Position(rank);
  if (!position) return std::vector<int64_t>(std::max(target.rank(), 1), 0);
  return target.LocalShape(*position);
}

bool NeedsNoDispatch(at::TensorList tensors) {
  if (c10::impl::TorchDispatchModeTLS::any_modes_set()) return false;
  const bool gradients = at::GradMode::is_enabled();
  const c10::impl::LocalDispatchKeySet thread = c10::impl::tls_local_dispatch_key_set();  // a tracer of this thread
  for (const at::Tensor& tensor : tensors) {
    if (!tensor.defined() || (gradients && tensor.requires_grad())) return false;
    const c10::DispatchKeySet beyond =
        ((tensor.key_set() | thread.included_) - thread.excluded_) -
        c10::DispatchKeySet({c10::DispatchKey::BackendSelect, c10::DispatchKey::CPU, c10::DispatchKey::AutogradCPU,
                             c10::DispatchKey::AutocastCPU, c10::DispatchKey::CUDA, c10::DispatchKey::AutogradCUDA,
                             c10::DispatchKey::AutocastCUDA, c10::DispatchKey::ADInplaceOrView});
    // The difference keeps the bits of the backend.
    if ((beyond.raw_repr() & ~c10::full_backend_mask) != 0) return false;
    if (!tensor.device().is_cpu() && !tensor.device().is_cuda()) return false;
  }
  return true;
}

}  // namespace reshard::pytorch
