// The operations of expressions, as JSON and people call them and their members.
#ifndef RESHARD_CHECKPOINT_RECIPE_OPERATIONS_H_
#define RESHARD_CHECKPOINT_RECIPE_OPERATIONS_H_

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

#include "absl/types/span.h"
#include "reshard/checkpoint/expression.h"

namespace reshard::recipe {

// The members of Expression that an operation has. What kFrom is depends on the operation.
enum class Member {
  kDim,
  kDims,
  kShape,
  kSizes,
  kCount,
  kPart,
  kBegin,
  kEnd,
  kTo,
  kValue,
  kDType,
  kFrom,
  kOver,
  kScales,
  kBlock
};

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

// How many parts an operation that takes one of several cuts its input into. Nothing for kUnstack: its input says it.
std::optional<int64_t> FixedParts(const Expression& expression);

// ToString for a message: one line of printable text, of at most 300 bytes or so.
std::string Brief(const Expression& expression);

}  // namespace reshard::recipe

#endif  // RESHARD_CHECKPOINT_RECIPE_OPERATIONS_H_
