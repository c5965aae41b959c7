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
  Inverting(bool optional, std::vector<TensorRule>* out) : optional_(optional), out_(out) {}

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
        return UndoStack(e, made);
      case Op::kTranspose:
        return Undo(e.inputs[0], With(e, std::move(made)));
      case Op::kPermute: {
        Expression before = With(e, std::move(made));
        for (size_t d = 0; d < e.numbers.size(); ++d) {
          const int64_t from = e.numbers[d] < 0 ? e.numbers[d] + static_cast<int64_t>(e.numbers.size()) : e.numbers[d];
          if (from < 0 || from >= static_cast<int64_t>(e.numbers.size()))
            return Cannot(e, "there is no such dimension");
          before.numbers[static_cast<size_t>(from)] = static_cast<int64_t>(d);
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
        if (e.numbers.size() != 2 || e.numbers[0] < 0) return Cannot(e, "count its dimensions from 0");
        Expression before = With(e, std::move(made));
        before.op = Op::kUnflatten;
        before.dim = e.numbers[0];
        before.numbers.clear();
        return Undo(e.inputs[0], std::move(before));
      }
      case Op::kUnflatten: {
        if (e.dim < 0) return Cannot(e, "count its dimension from 0");
        Expression before = With(e, std::move(made));
        before.op = Op::kFlatten;
        before.dim = 0;
        before.numbers = {e.dim, e.dim + static_cast<int64_t>(e.sizes.size()) - 1};
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
        if (e.begin < 1) return Cannot(e, "say in \"from\" how long it was");
        Expression before = With(e, std::move(made));
        before.op = Op::kSlice;
        before.begin = 0;
        before.end = e.begin;
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
      case Op::kSlice:
        return Cannot(e, "it loses what is outside");
      case Op::kSplit:
      case Op::kChunk:
      case Op::kUnstack:
      case Op::kDeinterleave:
        return Cannot(e, "the other parts are made by other rules; write the recipe of the way back, and invert that");
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
    return absl::InvalidArgumentError(absl::StrCat(ToString(e), " cannot be undone: ", status::View(why)));
  }

  absl::Status UndoJoin(const Expression& e, const Expression& made) {
    if (!e.over.empty()) return Cannot(e, "nothing says how many parts there are");
    if (e.inputs.size() > 1 && e.sizes.size() != e.inputs.size()) {
      return Cannot(e, "say in \"sizes\" or \"ratio\" how long the parts are");
    }
    if (e.inputs.size() == 1) return Undo(e.inputs[0], made);
    for (size_t i = 0; i < e.inputs.size(); ++i) {
      Expression part = With(e, made);
      part.op = e.op == Op::kInterleave ? Op::kDeinterleave : Op::kSplit;
      part.part.number = static_cast<int64_t>(i);
      RETURN_IF_ERROR(Undo(e.inputs[i], std::move(part)));
    }
    return absl::OkStatus();
  }

  absl::Status UndoStack(const Expression& e, const Expression& made) {
    for (size_t i = 0; i < e.inputs.size(); ++i) {
      Expression part = With(e, made);
      part.op = Op::kUnstack;
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
  if (!selection.strip_prefix.empty() && !selection.add_prefix.empty()) return refuse("it changes the prefix of names");
  Recipe out;
  // Rules are about names between the old prefix and the new one; a prefix goes on after them only by way of them.
  const std::string prefix = selection.strip_prefix;
  out.selection.strip_prefix = prefix.empty() && recipe.tensors.empty() ? selection.add_prefix : "";
  if (recipe.tensors.empty()) {
    out.selection.add_prefix = prefix;
  } else if (!prefix.empty() || !selection.add_prefix.empty()) {
    return refuse("it changes the prefix of names beside making tensors; write the prefix into the rules");
  }
  for (const TensorRule& rule : recipe.tensors) {
    Expression made;
    made.name = rule.to;
    absl::Status undone = Inverting(rule.optional, &out.tensors).Undo(rule.from, std::move(made));
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
