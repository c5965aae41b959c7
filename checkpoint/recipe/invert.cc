#include <algorithm>
#include <optional>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "checkpoint/io/show.h"
#include "checkpoint/recipe/cast.h"
#include "checkpoint/recipe/operations.h"
#include "checkpoint/recipe/rule.h"
#include "reshard/checkpoint/recipe.h"
#include "status/macros.h"
#include "status/no_throw.h"
#include "status/view.h"

namespace reshard {
namespace {

using Op = Expression::Op;

// Undoes a rule from the outside in: what is left at each name is what that tensor is made of.
class Inverting {
 public:
  // `names` are those of the rule.
  Inverting(const recipe::Rule& names, bool optional, std::vector<TensorRule>* out)
      : names_(names), optional_(optional), out_(out) {}

  // `made` is what `e` was, out of the new tensors.
  absl::Status Undo(const Expression& e, Expression made) {
    switch (e.op) {
      case Op::kTensor:
        out_->push_back({e.name, std::move(made), optional_});
        return absl::OkStatus();
      case Op::kConcatenate:
      case Op::kInterleave:
        return UndoJoin(e, made);
      case Op::kStack:
        return UndoInputs(e, Op::kUnstack, made);
      case Op::kTranspose:
        return Undo(e.inputs[0], With(e, std::move(made)));
      case Op::kPermute: {
        Expression before = With(e, std::move(made));
        for (size_t d = 0; d < e.numbers.size(); ++d) {
          const int64_t from = e.numbers[d] < 0 ? e.numbers[d] + static_cast<int64_t>(e.numbers.size()) : e.numbers[d];
          if (from < 0 || from >= static_cast<int64_t>(e.numbers.size())) {
            return Cannot(e, "there is no such dimension");
          }
          before.numbers[from] = static_cast<int64_t>(d);
        }
        return Undo(e.inputs[0], std::move(before));
      }
      case Op::kReshape: {
        if (e.sizes.empty()) return Cannot(e, "say in \"from\" what shape it had");
        Expression before = With(e, std::move(made));
        before.numbers = e.sizes;
        before.sizes.clear();
        return Undo(e.inputs[0], std::move(before));
      }
      case Op::kFlatten: {
        if (e.sizes.empty()) return Cannot(e, "say in \"from\" what sizes the dimensions had");
        if (e.numbers.size() != 2) return Cannot(e, "it needs two dimensions");
        Expression before = With(e, std::move(made));
        before.op = Op::kUnflatten;
        // Dimensions behind the flattened ones stay, so that the last one still counts from the end as it did.
        const int64_t first = e.numbers[0], last = e.numbers[1];
        before.dim = first >= 0 ? first : last < 0 ? last : last - static_cast<int64_t>(e.sizes.size()) + 1;
        before.numbers.clear();
        return Undo(e.inputs[0], std::move(before));
      }
      case Op::kUnflatten: {
        Expression before = With(e, std::move(made));
        before.op = Op::kFlatten;
        before.dim = 0;
        // From the front the first of them is where the one was; from the end the last one is.
        const int64_t others = static_cast<int64_t>(e.sizes.size()) - 1;
        const int64_t first = e.dim < 0 ? e.dim - others : e.dim;
        before.numbers = {first, first + others};
        before.sizes.clear();
        return Undo(e.inputs[0], std::move(before));
      }
      case Op::kPermuteForRope: {
        // [heads, 2, half] back to [heads, half, 2].
        Expression heads = With(e, std::move(made));
        heads.op = Op::kUnflatten;
        heads.sizes = {e.count, 2, -1};
        heads.count = 0;
        Expression swapped;
        swapped.op = Op::kTranspose;
        swapped.numbers = {1, 2};
        swapped.inputs.push_back(std::move(heads));
        Expression before;
        before.op = Op::kFlatten;
        before.numbers = {0, 2};
        before.inputs.push_back(std::move(swapped));
        return Undo(e.inputs[0], std::move(before));
      }
      case Op::kPad: {
        if (e.sizes.empty()) return Cannot(e, "say in \"from\" how long it was");
        Expression before = With(e, std::move(made));
        before.op = Op::kSlice;
        before.end = e.sizes[0];
        before.sizes.clear();
        before.value = 0;
        return Undo(e.inputs[0], std::move(before));
      }
      case Op::kCast: {
        if (!e.from) return Cannot(e, "say in \"from\" what it was cast from");
        if (!recipe::IsExactCast(*e.from, e.dtype)) return Cannot(e, "it loses bits of what it was cast from");
        Expression before = With(e, std::move(made));
        before.dtype = *e.from;
        before.from = e.dtype;
        return Undo(e.inputs[0], std::move(before));
      }
      case Op::kDequantize:
        return Cannot(e, "it forgets the quantized values and their scales");
      case Op::kMultiply:
        return Cannot(e, "it rounds");
      case Op::kSlice:
        return Cannot(e, "it loses what is outside");
      case Op::kSplit:
      case Op::kChunk:
      case Op::kUnstack:
      case Op::kDeinterleave:
        return UndoPart(e, std::move(made));
    }
    return absl::OkStatus();
  }

 private:
  static Expression With(Expression e, Expression input) {
    e.inputs.clear();
    e.inputs.push_back(std::move(input));
    return e;
  }

  static absl::Status Cannot(const Expression& e, std::string_view why) {
    return absl::InvalidArgumentError(absl::StrCat(recipe::Brief(e), " cannot be undone: ", status::View(why)));
  }

  absl::Status UndoJoin(const Expression& e, const Expression& made) {
    const bool is_one = e.over.empty() && e.inputs.size() == 1;
    if (is_one) return Undo(e.inputs[0], made);
    if (e.sizes.empty() || (e.over.empty() && e.sizes.size() != e.inputs.size())) {
      return Cannot(e, "say in \"sizes\" or \"ratio\" how long the parts are");
    }
    return UndoInputs(e, e.op == Op::kInterleave ? Op::kDeinterleave : Op::kSplit, made);
  }

  // Each input is what `take` takes of `made` as its part.
  absl::Status UndoInputs(const Expression& e, Op take, const Expression& made) {
    for (size_t i = 0; i < e.inputs.size(); ++i) {
      Expression part = With(e, made);
      part.op = take;
      part.over.clear();
      if (e.over.empty()) {
        part.part.number = static_cast<int64_t>(i);
      } else {
        part.part.placeholder = e.over;
      }
      RETURN_IF_ERROR(Undo(e.inputs[i], std::move(part)));
    }
    return absl::OkStatus();
  }

  // What took one part after the other is put together again, part by part.
  absl::Status UndoPart(const Expression& e, Expression made) {
    constexpr int64_t kMostParts = int64_t{1} << 16;
    const std::optional<int64_t> parts = recipe::FixedParts(e);
    if (e.part.placeholder.empty()) {
      if (parts == 1 && e.part.number == 0) return Undo(e.inputs[0], std::move(made));
      return Cannot(e, "the other parts are made by other rules; write the recipe of the way back, and invert that");
    }
    const bool is_counted = std::any_of(names_.counted.begin(), names_.counted.end(),
                                        [&](const auto& each) { return each.placeholder == e.part.placeholder; });
    if (!is_counted) {
      return Cannot(e, absl::StrCat("{", e.part.placeholder,
                                    "} is in a name it is made from, too, so that there may be parts that are not "
                                    "made; write the recipe of the way back, and invert that"));
    }
    if (parts.value_or(1) < 1 || parts.value_or(1) > kMostParts) return Cannot(e, "there is no such number of parts");
    Expression whole = With(e, std::move(made));
    whole.part = {};
    whole.over = e.part.placeholder;
    switch (e.op) {
      case Op::kUnstack:
        whole.op = Op::kStack;
        break;
      case Op::kDeinterleave:
        whole.op = Op::kInterleave;
        break;
      default:
        whole.op = Op::kConcatenate;
        whole.count = 0;
        if (e.op == Op::kChunk) {
          whole.sizes.assign(static_cast<size_t>(*parts), 1);
          whole.in_ratio = true;
        }
    }
    return Undo(e.inputs[0], std::move(whole));
  }

  const recipe::Rule& names_;
  const bool optional_;
  std::vector<TensorRule>* const out_;
};

absl::StatusOr<Recipe> Invert(const Recipe& recipe) {
  const auto refuse = [](std::string_view what) {
    return absl::InvalidArgumentError(absl::StrCat("this recipe cannot be inverted: ", status::View(what)));
  };
  const Selection& selection = recipe.selection;
  if (!selection.include.empty() || !selection.exclude.empty() || selection.weights_only || !selection.byte_items) {
    return refuse("it takes only a part of the checkpoint");
  }
  if (!recipe.drop.empty()) return refuse(absl::StrCat("it drops ", io::Shown(recipe.drop[0])));
  if (!recipe.dtypes.empty()) return refuse(absl::StrCat("it casts ", io::Shown(recipe.dtypes[0].first)));
  if (!selection.renamings.empty()) {
    return refuse(absl::StrCat("nothing says how to undo the renaming of ", io::Shown(selection.renamings[0].first),
                               "; write it as a rule for tensors, with placeholders"));
  }
  if (!selection.strip_prefix.empty()) {
    return refuse(absl::StrCat(
        "\"strip_prefix\" takes ", io::Shown(selection.strip_prefix),
        " from the names that have it and leaves the others, so that nothing says which names had it; say it as a rule "
        "that all of them fit, {\"to\": \"{p*}\", \"from\": \"PREFIX{p*}\"}, or convert back with --add-prefix, if all "
        "had it"));
  }
  Recipe out;
  if (!selection.add_prefix.empty()) {
    // Rules are about names before the prefix is put in front, and what they make does not get one.
    if (!recipe.tensors.empty()) {
      return refuse("it changes the prefix of names beside making tensors; write the prefix into the rules");
    }
    out.selection.strip_prefix = selection.add_prefix;
    out.selection.needs_prefix = true;
  }
  for (const TensorRule& rule : recipe.tensors) {
    const absl::StatusOr<recipe::Rule> names = recipe::Rule::Of(rule);
    if (!names.ok()) return refuse(absl::StrCat(io::Shown(rule.to), ": ", names.status().message()));
    Expression made;
    made.name = rule.to;
    absl::Status undone = Inverting(*names, rule.optional, &out.tensors).Undo(rule.from, std::move(made));
    if (!undone.ok()) return refuse(absl::StrCat("of ", io::Shown(rule.to), ", ", undone.message()));
  }
  for (const TensorRule& rule : out.tensors) {
    const absl::StatusOr<recipe::Rule> checked = recipe::Rule::Of(rule);
    if (!checked.ok()) return refuse(absl::StrCat(io::Shown(rule.to), ": ", checked.status().message()));
  }
  out.keep = recipe.keep;
  return out;
}

}  // namespace

absl::StatusOr<Recipe> Recipe::Inverted() const {
  return status::NoThrow("inverting a recipe", [&] { return Invert(*this); });
}

}  // namespace reshard
