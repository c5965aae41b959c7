#include "checkpoint/recipe/operations.h"

#include <algorithm>
#include <cmath>
#include <string>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "reshard/layout/characters.h"
#include "status/view.h"

namespace reshard {
namespace recipe {
namespace {

using Op = Expression::Op;

constexpr MemberUse kDim{Member::kDim, "dim", false};
constexpr MemberUse kDims{Member::kDims, "dims", true};
constexpr MemberUse kSizes{Member::kSizes, "sizes", true};
constexpr MemberUse kCheckedSizes{Member::kSizes, "sizes", false};
constexpr MemberUse kPart{Member::kPart, "part", true};
constexpr MemberUse kFrom{Member::kFrom, "from", false};
constexpr MemberUse kOver{Member::kOver, "over", false};
constexpr MemberUse kBlocks{Member::kCount, "blocks", true};

constexpr MemberUse kConcatenate[] = {kDim, kCheckedSizes, kOver};
constexpr MemberUse kSplit[] = {kDim, kSizes, kPart};
constexpr MemberUse kChunk[] = {kDim, {Member::kCount, "chunks", true}, kPart};
constexpr MemberUse kStack[] = {kDim, kOver};
constexpr MemberUse kUnstack[] = {kDim, kPart};
constexpr MemberUse kOnlyDims[] = {kDims};
constexpr MemberUse kReshape[] = {{Member::kShape, "shape", true}, kFrom};
constexpr MemberUse kFlatten[] = {kDims, kFrom};
constexpr MemberUse kUnflatten[] = {kDim, kSizes};
constexpr MemberUse kInterleave[] = {kDim, kBlocks, kCheckedSizes, kOver};
constexpr MemberUse kDeinterleave[] = {kDim, kBlocks, kSizes, kPart};
constexpr MemberUse kRope[] = {{Member::kCount, "heads", true}};
constexpr MemberUse kSlice[] = {kDim, {Member::kBegin, "begin", false}, {Member::kEnd, "end", false}};
constexpr MemberUse kPad[] = {kDim, {Member::kTo, "to", true}, {Member::kValue, "value", false}, kFrom};
constexpr MemberUse kCast[] = {{Member::kDType, "dtype", true}, kFrom};

constexpr MemberUse kDequantize[] = {
    {Member::kScales, "scales", true}, {Member::kBlock, "block", false}, {Member::kDType, "dtype", false}};

constexpr MemberUse kMultiply[] = {{Member::kValue, "by", true}};

constexpr Operation kOperations[] = {
    {Op::kConcatenate, "concatenate", true, kConcatenate},
    {Op::kSplit, "split", false, kSplit},
    {Op::kChunk, "chunk", false, kChunk},
    {Op::kStack, "stack", true, kStack},
    {Op::kUnstack, "unstack", false, kUnstack},
    {Op::kTranspose, "transpose", false, kOnlyDims},
    {Op::kPermute, "permute", false, kOnlyDims},
    {Op::kReshape, "reshape", false, kReshape},
    {Op::kFlatten, "flatten", false, kFlatten},
    {Op::kUnflatten, "unflatten", false, kUnflatten},
    {Op::kInterleave, "interleave", true, kInterleave},
    {Op::kDeinterleave, "deinterleave", false, kDeinterleave},
    {Op::kPermuteForRope, "permute_for_rope", false, kRope},
    {Op::kSlice, "slice", false, kSlice},
    {Op::kPad, "pad", false, kPad},
    {Op::kCast, "cast", false, kCast},
    {Op::kDequantize, "dequantize", false, kDequantize},
    {Op::kMultiply, "multiply", false, kMultiply},
};

// Nothing where the member has its default.
std::string Text(const Expression& e, const MemberUse& use) {
  const auto list = [](const std::vector<int64_t>& numbers) {
    return absl::StrCat("[", absl::StrJoin(numbers, ","), "]");
  };
  const std::string name(use.name);
  switch (use.member) {
    case Member::kDim:
      return absl::StrCat(name, "=", e.dim);
    case Member::kDims:
    case Member::kShape:
    case Member::kBlock:
      return absl::StrCat(name, "=", list(e.numbers));
    case Member::kSizes:
      return e.sizes.empty() ? "" : absl::StrCat(e.in_ratio ? "ratio" : name, "=", list(e.sizes));
    case Member::kCount:
      return absl::StrCat(name, "=", e.count);
    case Member::kPart:
      return absl::StrCat(
          name, "=",
          e.part.placeholder.empty() ? absl::StrCat(e.part.number) : absl::StrCat("{", e.part.placeholder, "}"));
    case Member::kBegin:
      return e.begin == 0 ? "" : absl::StrCat(name, "=", e.begin);
    case Member::kEnd:
    case Member::kTo:
      return e.end ? absl::StrCat(name, "=", *e.end) : "";
    case Member::kValue:
      return e.value == 0 && !std::signbit(e.value) ? "" : absl::StrCat(name, "=", e.value);
    case Member::kDType:
      return absl::StrCat(name, "=", status::View(Name(e.dtype)));
    case Member::kFrom:
      if (e.op == Op::kCast) return e.from ? absl::StrCat(name, "=", status::View(Name(*e.from))) : "";
      if (e.op == Op::kPad) return e.sizes.empty() ? "" : absl::StrCat(name, "=", e.sizes[0]);
      return e.sizes.empty() ? "" : absl::StrCat(name, "=", list(e.sizes));
    case Member::kScales:
      return absl::StrCat(name, "=", e.inputs.size() > 1 ? ToString(e.inputs[1]) : "");
    case Member::kOver:
      return e.over.empty() ? "" : absl::StrCat(name, "={", e.over, "}");
  }
  return "";
}

void Append(const Expression& e, std::string* out) {
  constexpr size_t kMostInputs = 8;
  if (e.op == Expression::Op::kTensor) {
    *out += e.name;
    return;
  }
  const Operation& operation = Of(e.op);
  absl::StrAppend(out, status::View(operation.name), "(");
  // Of an operation on one input, further ones are members.
  const size_t inputs = operation.many ? e.inputs.size() : std::min<size_t>(e.inputs.size(), 1);
  for (size_t i = 0; i < inputs; ++i) {
    if (i > 0) *out += ", ";
    if (e.inputs.size() > kMostInputs && i == kMostInputs - 2) {
      absl::StrAppend(out, "... ", e.inputs.size() - kMostInputs + 1, " more ..., ");
      i = e.inputs.size() - 1;
    }
    Append(e.inputs[i], out);
  }
  for (const MemberUse& use : operation.members) {
    const std::string text = Text(e, use);
    if (!text.empty()) absl::StrAppend(out, ", ", text);
  }
  *out += ")";
}

}  // namespace

absl::Span<const Operation> Operations() { return kOperations; }

const Operation& Of(Op op) {
  return *std::find_if(std::begin(kOperations), std::end(kOperations),
                       [&](const Operation& operation) { return operation.op == op; });
}

std::optional<int64_t> FixedParts(const Expression& expression) {
  if (expression.op == Op::kUnstack) return std::nullopt;
  return expression.op == Op::kChunk ? expression.count : static_cast<int64_t>(expression.sizes.size());
}

std::string Brief(const Expression& expression) {
  constexpr size_t kMost = 300;
  return OneLine(ToString(expression), kMost);
}

}  // namespace recipe

std::string ToString(const Expression& expression) {
  std::string text;
  recipe::Append(expression, &text);
  return text;
}

}  // namespace reshard
