#include <algorithm>
#include <cmath>
#include <limits>
#include <optional>
#include <utility>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "checkpoint/io/show.h"
#include "checkpoint/recipe/name_pattern.h"
#include "checkpoint/recipe/operations.h"
#include "checkpoint/recipe/rule.h"
#include "json/document.h"
#include "reshard/checkpoint/recipe.h"
#include "status/macros.h"
#include "status/no_throw.h"
#include "status/view.h"

namespace reshard {
namespace {

using json::Value;
using recipe::Member;
using recipe::MemberUse;
using recipe::Operation;

constexpr std::string_view kSchema = "reshard.recipe/1";
constexpr size_t kLongest = size_t{64} << 20;

absl::Status Bad(const std::string& where, std::string_view what) {
  return absl::InvalidArgumentError(absl::StrCat(where, ": ", status::View(what)));
}

absl::StatusOr<std::string> Text(const std::string& where, const Value& value) {
  std::optional<std::string> text = value.Text();
  if (!text) return Bad(where, "not a string: " + value.Shown());
  return *std::move(text);
}

absl::StatusOr<bool> Bool(const std::string& where, const Value& value) {
  const std::optional<bool> is = value.Bool();
  if (!is) return Bad(where, "neither true nor false: " + value.Shown());
  return *is;
}

absl::StatusOr<int64_t> Integer(const std::string& where, const Value& value) {
  const std::optional<int64_t> number = value.Integer();
  if (!number) return Bad(where, "not a whole number: " + value.Shown());
  return *number;
}

absl::StatusOr<std::vector<int64_t>> Integers(const std::string& where, const Value& value) {
  if (!value.is_array() || value.size() == 0) return Bad(where, "not a list of whole numbers: " + value.Shown());
  std::vector<int64_t> numbers;
  for (size_t i = 0; i < value.size(); ++i) {
    ASSIGN_OR_RETURN(const int64_t number, Integer(absl::StrCat(where, "[", i, "]"), value.at(i)));
    numbers.push_back(number);
  }
  return numbers;
}

// The number of a dimension, which counts from the end if it is negative. No tensor has more of them.
absl::Status CheckDimension(const std::string& where, int64_t dim) {
  if (dim >= -kMaxRank && dim < kMaxRank) return absl::OkStatus();
  return Bad(where, absl::StrCat("there is no dimension ", dim, ": a tensor has at most ", kMaxRank));
}

absl::StatusOr<std::vector<std::string>> Texts(const std::string& where, const Value& value) {
  if (!value.is_array()) return Bad(where, "not a list of strings: " + value.Shown());
  std::vector<std::string> texts;
  for (size_t i = 0; i < value.size(); ++i) {
    ASSIGN_OR_RETURN(std::string text, Text(absl::StrCat(where, "[", i, "]"), value.at(i)));
    texts.push_back(std::move(text));
  }
  return texts;
}

absl::StatusOr<std::vector<std::pair<std::string, std::string>>> Pairs(const std::string& where, const Value& value) {
  if (!value.is_array()) return Bad(where, "not a list of pairs of strings: " + value.Shown());
  std::vector<std::pair<std::string, std::string>> pairs;
  for (size_t i = 0; i < value.size(); ++i) {
    const std::string place = absl::StrCat(where, "[", i, "]");
    ASSIGN_OR_RETURN(std::vector<std::string> both, Texts(place, value.at(i)));
    if (both.size() != 2) return Bad(place, "not a pair of strings: " + value.at(i).Shown());
    pairs.emplace_back(std::move(both[0]), std::move(both[1]));
  }
  return pairs;
}

absl::StatusOr<DType> DTypeOf(const std::string& where, const std::string& name) {
  const std::optional<DType> dtype = FindDType(name);
  if (!dtype) return Bad(where, absl::StrCat(io::Shown(name), " is not a dtype: ", KnownDTypes()));
  return *dtype;
}

absl::StatusOr<Expression> ReadExpression(const std::string& where, const Value& value);

absl::Status ReadFrom(const std::string& where, const Value& value, Expression* e) {
  if (e->op == Expression::Op::kCast) {
    ASSIGN_OR_RETURN(const std::string name, Text(where, value));
    ASSIGN_OR_RETURN(e->from, DTypeOf(where, name));
  } else if (e->op == Expression::Op::kPad) {
    ASSIGN_OR_RETURN(const int64_t length, Integer(where, value));
    if (length < 0) return Bad(where, "not a size: " + value.Shown());
    e->sizes = {length};
  } else {
    ASSIGN_OR_RETURN(e->sizes, Integers(where, value));
  }
  return absl::OkStatus();
}

absl::Status ReadMember(const std::string& where, Member member, const Value& value, Expression* e) {
  switch (member) {
    case Member::kDim: {
      ASSIGN_OR_RETURN(e->dim, Integer(where, value));
      return CheckDimension(where, e->dim);
    }
    case Member::kDims:
    case Member::kShape: {
      // An empty shape is that of a 0-d tensor.
      if (member == Member::kShape && value.is_array() && value.size() == 0) return absl::OkStatus();
      ASSIGN_OR_RETURN(e->numbers, Integers(where, value));
      if (member == Member::kShape) return absl::OkStatus();
      for (const int64_t dim : e->numbers) RETURN_IF_ERROR(CheckDimension(where, dim));
      return absl::OkStatus();
    }
    case Member::kSizes: {
      ASSIGN_OR_RETURN(e->sizes, Integers(where, value));
      return absl::OkStatus();
    }
    case Member::kCount: {
      ASSIGN_OR_RETURN(e->count, Integer(where, value));
      return absl::OkStatus();
    }
    case Member::kPart: {
      const std::optional<std::string> text = value.Text();
      if (!text) {
        ASSIGN_OR_RETURN(e->part.number, Integer(where, value));
        return absl::OkStatus();
      }
      ASSIGN_OR_RETURN(const recipe::NamePattern name, recipe::NamePattern::Parse(*text));
      if (name.placeholders().size() != 1 || *text != absl::StrCat("{", name.placeholders()[0], "}")) {
        return Bad(where, "neither a number nor a placeholder of one: " + value.Shown());
      }
      e->part.placeholder = name.placeholders()[0];
      return absl::OkStatus();
    }
    case Member::kBegin: {
      ASSIGN_OR_RETURN(e->begin, Integer(where, value));
      return absl::OkStatus();
    }
    case Member::kEnd:
    case Member::kTo: {
      ASSIGN_OR_RETURN(e->end, Integer(where, value));
      return absl::OkStatus();
    }
    case Member::kValue: {
      const std::optional<double> number = value.Number();
      if (!number || !std::isfinite(*number)) return Bad(where, "not a number: " + value.Shown());
      e->value = *number;
      return absl::OkStatus();
    }
    case Member::kDType: {
      ASSIGN_OR_RETURN(const std::string name, Text(where, value));
      ASSIGN_OR_RETURN(e->dtype, DTypeOf(where, name));
      return absl::OkStatus();
    }
    case Member::kFrom:
      return ReadFrom(where, value, e);
    case Member::kScales: {
      ASSIGN_OR_RETURN(Expression scales, ReadExpression(where, value));
      e->inputs.push_back(std::move(scales));
      return absl::OkStatus();
    }
    case Member::kBlock: {
      ASSIGN_OR_RETURN(e->numbers, Integers(where, value));
      return absl::OkStatus();
    }
    case Member::kOver: {
      ASSIGN_OR_RETURN(e->over, Text(where, value));
      if (!recipe::IsPlaceholderName(e->over)) {
        return Bad(where, absl::StrCat(io::Shown(e->over), " is not the name of a placeholder, without braces"));
      }
      return absl::OkStatus();
    }
  }
  return absl::OkStatus();
}

absl::StatusOr<Expression> ReadExpression(const std::string& where, const Value& value) {
  Expression e;
  if (std::optional<std::string> name = value.Text()) {
    e.name = *std::move(name);
    return e;
  }
  const Operation* operation = nullptr;
  for (const Operation& each : recipe::Operations()) {
    if (!value.Find(each.name)) continue;
    if (operation != nullptr) {
      return Bad(where, absl::StrCat("both ", status::View(operation->name), " and ", status::View(each.name)));
    }
    operation = &each;
  }
  if (operation == nullptr) {
    const auto name = [](std::string* out, const Operation& each) { absl::StrAppend(out, status::View(each.name)); };
    return Bad(where, absl::StrCat("neither the name of a tensor nor an object with an operation (",
                                   absl::StrJoin(recipe::Operations(), ", ", name), "): ", value.Shown()));
  }
  e.op = operation->op;
  if (e.op == Expression::Op::kDequantize) {
    // As DeepSeek's checkpoints have them.
    e.numbers = {128, 128};
    e.dtype = DType::kBF16;
  }
  const std::string here = absl::StrCat(where, ".", status::View(operation->name));
  const Value inputs = *value.Find(operation->name);
  if (operation->many && inputs.is_array()) {
    for (size_t i = 0; i < inputs.size(); ++i) {
      ASSIGN_OR_RETURN(Expression input, ReadExpression(absl::StrCat(here, "[", i, "]"), inputs.at(i)));
      e.inputs.push_back(std::move(input));
    }
    if (e.inputs.empty()) return Bad(here, "an empty list");
  } else {
    ASSIGN_OR_RETURN(Expression input, ReadExpression(here, inputs));
    e.inputs.push_back(std::move(input));
  }
  for (const std::string& key : value.Keys()) {
    if (key == operation->name) continue;
    const std::string place = absl::StrCat(where, ".", io::Shown(key));
    const auto use = std::find_if(operation->members.begin(), operation->members.end(), [&](const MemberUse& each) {
      return each.name == key ||
             (each.member == Member::kSizes && key == "ratio" && operation->op != Expression::Op::kUnflatten);
    });
    if (use == operation->members.end()) {
      return Bad(place, absl::StrCat(status::View(operation->name), " has no such member"));
    }
    if (use->member == Member::kSizes && !e.sizes.empty()) return Bad(where, "both sizes and ratio");
    RETURN_IF_ERROR(ReadMember(place, use->member, *value.Find(key), &e));
    if (key == "ratio") e.in_ratio = true;
  }
  for (const MemberUse& use : operation->members) {
    if (!use.needed || value.Find(use.name) || (use.member == Member::kSizes && e.in_ratio)) continue;
    return Bad(where, absl::StrCat(status::View(operation->name), " needs ", io::Shown(use.name)));
  }
  return e;
}

absl::StatusOr<TensorRule> ReadRule(const std::string& where, const Value& value) {
  TensorRule rule;
  if (!value.is_object()) return Bad(where, "not an object: " + value.Shown());
  for (const std::string& key : value.Keys()) {
    const std::string place = absl::StrCat(where, ".", io::Shown(key));
    const Value member = *value.Find(key);
    if (key == "to") {
      ASSIGN_OR_RETURN(rule.to, Text(place, member));
    } else if (key == "from") {
      ASSIGN_OR_RETURN(rule.from, ReadExpression(absl::StrCat(where, ".from"), member));
    } else if (key == "optional") {
      ASSIGN_OR_RETURN(rule.optional, Bool(place, member));
    } else {
      return Bad(place, "neither to, from nor optional");
    }
  }
  if (!value.Find("to") || !value.Find("from")) return Bad(where, "both to and from are needed");
  const absl::StatusOr<recipe::Rule> checked = recipe::Rule::Of(rule);
  if (!checked.ok()) return Bad(where, std::string(checked.status().message()));
  return rule;
}

absl::Status ReadField(const std::string& key, const Value& value, Recipe* out) {
  Selection& selection = out->selection;
  const auto texts = [&](std::vector<std::string>* into) -> absl::Status {
    ASSIGN_OR_RETURN(*into, Texts(key, value));
    return absl::OkStatus();
  };
  const auto text = [&](std::string* into) -> absl::Status {
    ASSIGN_OR_RETURN(*into, Text(key, value));
    return absl::OkStatus();
  };
  if (key == "schema" || key == "mesh" || key == "layouts") return absl::OkStatus();
  if (key == "description") return Text(key, value).status();
  if (key == "include") return texts(&selection.include);
  if (key == "exclude") return texts(&selection.exclude);
  if (key == "keep") return texts(&out->keep);
  if (key == "drop") return texts(&out->drop);
  if (key == "strip_prefix") return text(&selection.strip_prefix);
  if (key == "add_prefix") return text(&selection.add_prefix);
  if (key == "weights_only") {
    ASSIGN_OR_RETURN(selection.weights_only, Bool(key, value));
    return absl::OkStatus();
  }
  if (key == "drop_byte_items") {
    ASSIGN_OR_RETURN(const bool drop, Bool(key, value));
    selection.byte_items = !drop;
    return absl::OkStatus();
  }
  if (key == "rename") {
    ASSIGN_OR_RETURN(selection.renamings, Pairs(key, value));
    for (const auto& [from, to] : selection.renamings) {
      RETURN_IF_ERROR(CheckRenaming(from, to));
    }
    return absl::OkStatus();
  }
  if (key == "dtype") {
    ASSIGN_OR_RETURN(const auto pairs, Pairs(key, value));
    for (const auto& [pattern, name] : pairs) {
      ASSIGN_OR_RETURN(const DType dtype, DTypeOf(key, name));
      out->dtypes.emplace_back(pattern, dtype);
    }
    return absl::OkStatus();
  }
  if (key == "tensors") {
    if (!value.is_array()) return Bad(key, "not a list: " + value.Shown());
    for (size_t i = 0; i < value.size(); ++i) {
      ASSIGN_OR_RETURN(TensorRule rule, ReadRule(absl::StrCat("tensors[", i, "]"), value.at(i)));
      out->tensors.push_back(std::move(rule));
    }
    return absl::OkStatus();
  }
  return absl::InvalidArgumentError(absl::StrCat("a recipe has no member ", io::Shown(key)));
}

absl::StatusOr<Recipe> Read(std::string_view text) {
  if (text.size() > kLongest) return absl::InvalidArgumentError("a recipe of more than 64 MiB");
  ASSIGN_OR_RETURN(const json::Document document, json::Document::Parse(text));
  const Value root = document.root();
  const std::optional<Value> schema = root.Find("schema");
  if (!root.is_object() || !schema || schema->Text() != std::string(kSchema)) {
    return absl::InvalidArgumentError(
        absl::StrCat("this is not a recipe: \"schema\" is not \"", status::View(kSchema), "\""));
  }
  Recipe recipe;
  for (const std::string& key : root.Keys()) {
    RETURN_IF_ERROR(ReadField(key, *root.Find(key), &recipe));
  }
  if (recipe.tensors.empty() && !recipe.keep.empty()) {
    return absl::InvalidArgumentError(
        "keep: there are no rules for tensors, so that all is kept; \"include\" says what is taken");
  }
  const std::optional<Value> mesh = root.Find("mesh"), layouts = root.Find("layouts");
  if (mesh.has_value() != layouts.has_value()) {
    return absl::InvalidArgumentError("mesh and layouts are needed together");
  }
  if (mesh) {
    ASSIGN_OR_RETURN(recipe.layouts, LayoutRules::Parse(absl::StrCat("{\"mesh\":", mesh->Written(),
                                                                     ",\"layouts\":", layouts->Written(), "}")));
  }
  return recipe;
}

}  // namespace

absl::StatusOr<Recipe> Recipe::Parse(std::string_view json) {
  return status::NoThrow("reading a recipe", [&] { return Read(json); });
}

}  // namespace reshard
