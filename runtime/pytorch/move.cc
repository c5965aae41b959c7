#include "runtime/pytorch/move.h"

#include <c10/util/Exception.h>

#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "runtime/pytorch/layout_texts.h"
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
  return ProblemsOf(moves->size(), [&](size_t i) -> ProblemTexts {
    const Move& move = (*moves)[i];
    return {move.mesh, move.target_mesh, move.source, move.target};
  });
}

bool IsLazy(const at::Tensor& tensor) { return tensor.is_conj() || tensor.is_neg(); }

// Executes, or tells the others why not. The dtypes of the problems are filled in. `results` holds the destinations, or
// gets them when it is empty.
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
    if (lazy) {
      for (const at::Tensor& tensor : tensors) resolved.push_back(Resolved(tensor));
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

std::string WithoutPartial(std::string_view layout) {
  const size_t end = layout.rfind(']');
  return std::string(end == std::string_view::npos ? layout : layout.substr(0, end + 1));
}

Move MoveOf(std::string mesh, std::string source, std::string target, std::string target_mesh) {
  Move move{std::move(mesh), std::move(source), std::move(target), std::move(target_mesh), "", "", 1.0};
  move.grad_from = WithoutPartial(move.target);
  move.grad_to = WithoutPartial(move.source);
  if (move.grad_to.size() == move.source.size()) return move;
  const absl::StatusOr<Layout> source_layout = LayoutOf(move.mesh, move.source);
  if (!source_layout.ok() || !source_layout->partial()) return move;
  if (source_layout->partial()->op == ReduceOp::kAvg) {
    const absl::StatusOr<Layout> target_layout =
        LayoutOf(move.target_mesh.empty() ? move.mesh : move.target_mesh, move.target);
    if (!target_layout.ok()) return move;
    move.grad_scale =
        static_cast<double>(Contributions(*target_layout)) / static_cast<double>(Contributions(*source_layout));
  } else if (source_layout->partial()->op != ReduceOp::kSum) {
    move.grad_from.clear();
    move.grad_to.clear();
  }
  return move;
}

Move Move::Gradient() const {
  const std::string back_mesh = target_mesh.empty() ? mesh : target_mesh;
  Move back{back_mesh, grad_from, grad_to, target_mesh.empty() ? "" : mesh, source, target, grad_scale};
  // Where the gradient of a partial sum is a replica, what comes back to it is a replica, too.
  const bool source_pends = WithoutPartial(source).size() != source.size();
  const bool gradient_pends = WithoutPartial(grad_from).size() != grad_from.size();
  if (source_pends && !gradient_pends) {
    back.grad_from = WithoutPartial(source);
    back.grad_to = WithoutPartial(target);
  }
  return back;
}

at::Tensor ScaledGradient(const at::Tensor& gradient, const Move& move) {
  TORCH_CHECK_NOT_IMPLEMENTED(!move.grad_from.empty(), "no gradient through ", move.source, " -> ", move.target);
  return move.grad_scale == 1.0 ? gradient : gradient.mul(move.grad_scale);
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

std::vector<int64_t> ResultShape(const Move& move, int64_t rank) {
  const absl::StatusOr<Layout> target = LayoutOf(move.target_mesh.empty() ? move.mesh : move.target_mesh, move.target);
  if (!target.ok()) Throw(target.status(), rank);
  const std::optional<int64_t> position = target->mesh().Position(rank);
  if (!position) return std::vector<int64_t>(static_cast<size_t>(std::max(target->rank(), 1)), 0);
  return target->LocalShape(*position);
}

}  // namespace reshard::pytorch
