// The pieces of one step: every one in its place, every needed element exactly once, and the figures that only the
// pieces tell.
#ifndef RESHARD_CHECK_PIECES_H_
#define RESHARD_CHECK_PIECES_H_

#include <cstdint>
#include <vector>

#include "check/plan_text/plan_text.h"
#include "check/step.h"

namespace reshard::check {

struct PieceStep {
  Op op = Op::kExchange;
  const StepJudge& judge;
  const std::optional<std::vector<AxisRef>>& axes;
  const std::vector<Contents>& contents;
  const Devices& devices;
  const plan_text::Links& links;
  int64_t rounds = 1;
};

// `pieces`: all of the plan's; `of_step`: the numbers of those of this step. Adds findings. If there are none, the
// ranges in `facts` that depend on the holders become exact.
void JudgePieces(const PieceStep& step, const std::vector<plan_text::PieceText>& pieces,
                 const std::vector<int64_t>& of_step, StepFacts& facts, std::vector<Finding>& findings);

}  // namespace reshard::check

#endif  // RESHARD_CHECK_PIECES_H_
