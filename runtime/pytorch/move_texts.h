// Moves as text and numbers, the form that a traced graph can hold.
#ifndef RESHARD_RUNTIME_PYTORCH_MOVE_TEXTS_H_
#define RESHARD_RUNTIME_PYTORCH_MOVE_TEXTS_H_

#include <string>

#include "absl/status/statusor.h"
#include "runtime/pytorch/move.h"

namespace reshard::pytorch {

// The arguments of torch.ops.reshard._move other than the tensor and the group.
struct MoveTexts {
  std::string mesh;  // of the source
  std::string source;
  std::string target;
  std::string target_mesh;  // empty: that of the source
  std::string grad_from;    // over the mesh of the target; empty: there is no gradient
  std::string grad_to;      // over the mesh of the source
  double grad_scale = 1.0;
};

// Post-condition: ParseMove(PrintMove(move)) is the move.
MoveTexts PrintMove(const Move& move);
// InvalidArgument: text that does not parse.
absl::StatusOr<Move> ParseMove(const MoveTexts& texts);

}  // namespace reshard::pytorch

#endif  // RESHARD_RUNTIME_PYTORCH_MOVE_TEXTS_H_
