// The operations of expressions, as JSON and people call them and their members.
#ifndef RESHARD_CHECKPOINT_RECIPE_OPERATIONS_H_
#define RESHARD_CHECKPOINT_RECIPE_OPERATIONS_H_

#include <string_view>

#include "absl/types/span.h"
#include "reshard/checkpoint/expression.h"

namespace reshard::recipe {

// The members of Expression that an operation has. What kFrom is depends on the operation.
enum class Member { kDim, kDims, kShape, kSizes, kCount, kPart, kBegin, kEnd, kTo, kValue, kDType, kFrom, kOver };

struct MemberUse {
  Member member = Member::kDim;
  std::string_view name;  // in JSON and in texts
  bool needed = false;    // otherwise the default stands for it
};

struct Operation {
  Expression::Op op = Expression::Op::kTensor;
  std::string_view name;
  bool many = false;  // takes any number of inputs, not one
  absl::Span<const MemberUse> members;
};

// All but kTensor.
absl::Span<const Operation> Operations();
const Operation& Of(Expression::Op op);  // requires another one than kTensor

}  // namespace reshard::recipe

#endif  // RESHARD_CHECKPOINT_RECIPE_OPERATIONS_H_
