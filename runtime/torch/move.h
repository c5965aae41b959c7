// One redistribution of a tensor with its gradient, as text: the form in which it crosses the dispatcher, so that
// tracing sees strings and tensors only.
#ifndef RESHARD_RUNTIME_TORCH_MOVE_H_
#define RESHARD_RUNTIME_TORCH_MOVE_H_

#include <ATen/core/Tensor.h>

#include <optional>
#include <string>
#include <string_view>
#include <tuple>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/types/span.h"
#include "reshard/torch/redistribute.h"

namespace reshard {

// y = fragment under `target` (over target_mesh, or mesh where that is empty) of the tensor whose fragment under
// `source` is x. Its gradient is grad_scale times the redistribution of y's gradient, seen as a fragment under
// grad_from, to grad_to.
//
// The two directions need not be inverse: an all-gather whose results are used differently on every rank has a
// reduce-scatter for gradient (grad_from "[8] sum<r>"), one whose results are replicas a slice (grad_from "[8]").
struct Move {
  std::string mesh;
  std::string source;
  std::string target;
  std::string target_mesh;
  std::string grad_from;  // empty: there is no gradient
  std::string grad_to;
  double grad_scale = 1.0;

  // The move that carries y's gradient to x's. Its own gradient is the forward move again (without pending sums where
  // the gradient has none).
  Move Gradient() const;
};

// The move of a redistribution, by the rules of include/reshard/torch/redistribute.h. Never fails: text that does not
// parse is found when the move is prepared.
Move MoveOf(std::string mesh, std::string source, std::string target, std::string target_mesh);

// What goes into that move: the gradient of the result, scaled. Throws c10::NotImplementedError where there is none.
at::Tensor ScaledGradient(const at::Tensor& gradient, const Move& move);
// What comes out of it, in the shape of the input: a rank outside a mesh may bring an empty tensor of any shape.
at::Tensor LikeInput(const at::Tensor& gradient, const std::vector<c10::SymInt>& sizes);

// "[8, <X>8] sum<Y>" -> "[8, <X>8]".
std::string WithoutPending(std::string_view layout);

// Executes moves of tensors together. A rank that has an error instead of moves tells the others. Throws. `outs`:
// empty, or the tensors to write to. All moves of one call share mesh and target_mesh.
std::vector<at::Tensor> RunMoves(at::TensorList tensors, const absl::StatusOr<std::vector<Move>>& moves,
                                 TensorCommunicator& communicator, at::TensorList outs = {});
// The same for a caller whose turn it is already (TensorCommunicator::RunLater).
std::vector<at::Tensor> RunMovesInTurn(at::TensorList tensors, const absl::StatusOr<std::vector<Move>>& moves,
                                       TensorCommunicator& communicator, at::TensorList outs = {});

// The same for problems without gradients, whose texts need not be copied: the quick way for large batches.
std::vector<at::Tensor> RunProblems(at::TensorList tensors, const absl::StatusOr<std::vector<Problem>>& problems,
                                    TensorCommunicator& communicator);

// The local shape of a result on `rank`; ValueError for bad text.
std::vector<int64_t> ResultShape(const Move& move, int64_t rank);

// Through the dispatcher: differentiable, traceable.
at::Tensor DispatchMove(const at::Tensor& tensor, const Move& move, const std::string& group);
// Rank r gives `up` to rank r+1 and `down` to rank r-1; returns (up of r-1, down of r+1), zeros where there is none.
std::tuple<at::Tensor, at::Tensor> DispatchPassOn(const at::Tensor& up, const at::Tensor& down,
                                                  const std::string& group);
// The device that a call with this tensor is on: the tensor's; for an undefined one the host where the group has a
// backend for it, else the current GPU.
at::Device DeviceOf(const at::Tensor& tensor, const std::string& group);
// For a rank that cannot take part: tells the group, and throws `status`. Tensors that are only traced tell nobody.
[[noreturn]] void Refuse(const at::Tensor& tensor, const absl::Status& status, const std::string& group);

}  // namespace reshard

#endif  // RESHARD_RUNTIME_TORCH_MOVE_H_
