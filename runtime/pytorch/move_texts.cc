#include "runtime/pytorch/move_texts.h"

#include "reshard/layout/text.h"
#include "runtime/pytorch/layout_texts.h"
#include "status/macros.h"

namespace reshard::pytorch {

MoveTexts PrintMove(const Move& move) {
  MoveTexts texts;
  texts.mesh = ToString(move.source.mesh());
  texts.source = ToString(move.source);
  texts.target = ToString(move.target);
  if (move.target.mesh() != move.source.mesh()) texts.target_mesh = ToString(move.target.mesh());
  if (!move.gradient) return texts;
  texts.grad_from = ToString(move.gradient->from);
  texts.grad_to = ToString(move.gradient->to);
  texts.grad_scale = move.gradient->scale;
  return texts;
}

absl::StatusOr<Move> ParseMove(const MoveTexts& texts) {
  const std::string& target_mesh = texts.target_mesh.empty() ? texts.mesh : texts.target_mesh;
  ASSIGN_OR_RETURN(Layout source, LayoutOf(texts.mesh, texts.source));
  ASSIGN_OR_RETURN(Layout target, LayoutOf(target_mesh, texts.target));
  Move move{std::move(source), std::move(target), std::nullopt};
  if (texts.grad_from.empty()) return move;
  ASSIGN_OR_RETURN(Layout from, LayoutOf(target_mesh, texts.grad_from));
  ASSIGN_OR_RETURN(Layout to, LayoutOf(texts.mesh, texts.grad_to));
  move.gradient = Move::Gradient{std::move(from), std::move(to), texts.grad_scale};
  return move;
}

}  // namespace reshard::pytorch
