// One redistribution of a tensor together with its gradient.
#ifndef RESHARD_RUNTIME_PYTORCH_MOVE_H_
#define RESHARD_RUNTIME_PYTORCH_MOVE_H_

#include <ATen/core/Tensor.h>

#include <optional>
#include <string>
#include <tuple>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/types/span.h"
#include "reshard/layout/layout.h"
#include "reshard/planner/problem.h"
#include "reshard/torch/redistribute.h"

namespace reshard::pytorch {

// y is the fragment under `target` of the tensor whose fragment under `source` is x. The gradient of x is scale times
// the gradient of y, taken as a fragment under gradient->from, redistributed to gradient->to.
//
// The two directions need not be inverse: an all-gather whose results are used differently on every rank has a
// reduce-scatter as its gradient (from "[8] sum<r>"), and one whose results are replicas has a slice (from "[8]").
struct Move {
  struct Gradient {
    Layout from;
    Layout to;
    double scale = 1.0;
  };

  Layout source;
  Layout target;
  std::optional<Gradient> gradient;  // nullopt: there is none

  // The move that turns y's gradient into x's. Its own gradient is the forward move again (without partial sums if the
  // gradient has none). Requires a gradient.
  Move Back() const;
};

// The move of a redistribution, with its gradient by the rules in include/reshard/torch/redistribute.h.
Move MoveOf(const Layout& source, const Layout& target);

// The input of Move::Back: the gradient of the result, scaled. Throws c10::NotImplementedError if there is none.
at::Tensor ScaledGradient(const at::Tensor& gradient, const Move& move);
// The output of Move::Back in the shape of the forward input: a rank outside a mesh may pass an empty tensor of any
// shape.
at::Tensor LikeInput(const at::Tensor& gradient, const std::vector<c10::SymInt>& sizes);

// Executes the moves of several tensors together. A rank that has an error instead of moves tells the others. Throws.
// `outs`: empty, or the tensors to write. `memory_limit_bytes`: see RedistributeBatch.
std::vector<at::Tensor> RunMoves(at::TensorList tensors, const absl::StatusOr<std::vector<Move>>& moves,
                                 TensorCommunicator& communicator, at::TensorList outs = {},
                                 std::optional<int64_t> memory_limit_bytes = std::nullopt);
// The same for a caller that already runs in order (in TensorCommunicator::RunLater).
std::vector<at::Tensor> RunMovesInTurn(at::TensorList tensors, const absl::StatusOr<std::vector<Move>>& moves,
                                       TensorCommunicator& communicator, at::TensorList outs = {},
                                       std::optional<int64_t> memory_limit_bytes = std::nullopt);

// The same for problems without gradients, one per tensor; faster for large batches.
std::vector<at::Tensor> RunProblems(at::TensorList tensors, absl::StatusOr<std::vector<Problem>> problems,
                                    TensorCommunicator& communicator,
                                    std::optional<int64_t> memory_limit_bytes = std::nullopt);

// The global size of a dimension if each of `ranks` ranks holds `local` elements of it. InvalidArgument: it does not
// fit in 64 bits.
absl::StatusOr<int64_t> GlobalSize(int64_t local, int64_t ranks);

// The local shape of a result on `rank`.
std::vector<int64_t> ResultShape(const Layout& target, int64_t rank);

// True when the dispatcher would do nothing on the way to the kernels: nothing is differentiated or traced. For a
// thousand small tensors, dispatch costs more than the move.
bool NeedsNoDispatch(at::TensorList tensors);

// Executes the move, differentiable and traceable: through the dispatcher where the tensor needs it.
at::Tensor DispatchMove(const at::Tensor& tensor, const Move& move, const std::string& group);
// Rank r sends `up` to rank r+1 and `down` to rank r-1; returns (up of r-1, down of r+1), with zeros if there is no
// such rank.
std::tuple<at::Tensor, at::Tensor> DispatchNeighborExchange(const at::Tensor& up, const at::Tensor& down,
                                                            const std::string& group);
// The device of a call with this tensor: the tensor's own or, if it is undefined, the host if the group has a backend
// for it, else the current GPU.
at::Device DeviceOf(const at::Tensor& tensor, const std::string& group);
// For a rank that cannot take part: tells the group and throws `status`. For tensors that are only traced, it only
// throws.
[[noreturn]] void Refuse(const at::Tensor& tensor, const absl::Status& status, const std::string& group);

}  // namespace reshard::pytorch

#endif  // RESHARD_RUNTIME_PYTORCH_MOVE_H_
