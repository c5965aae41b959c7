#include "checkpoint/recipe/rule.h"

#include <algorithm>
#include <map>
#include <optional>
#include <utility>

#include "absl/strings/str_cat.h"
#include "checkpoint/io/show.h"
#include "status/macros.h"

namespace reshard::recipe {
namespace {

using Op = Expression::Op;

// Walks an expression once.
class Reader {
 public:
  explicit Reader(const NamePattern& to) : to_(to) {
    for (const std::string& placeholder : to.placeholders()) is_text_[placeholder] = to.IsText(placeholder);
  }

  absl::Status Read(const Expression& e) {
    if (e.op == Op::kTensor) return ReadName(e.name);
    if (!e.part.placeholder.empty()) {
      if (!to_.Has(e.part.placeholder)) {
        return absl::InvalidArgumentError(
            absl::StrCat("the part {", e.part.placeholder, "} is not a placeholder of the new name"));
      }
      if (to_.IsText(e.part.placeholder)) {
        return absl::InvalidArgumentError(absl::StrCat("the part {", e.part.placeholder, "} may be any text"));
      }
      parts_[e.part.placeholder].push_back({&e, over_, depth_});
    }
    if (!e.over.empty()) {
      if (e.inputs.size() != 1) return absl::InvalidArgumentError("an operation over a placeholder takes one input");
      if (to_.Has(e.over) || IsOver(e.over)) {
        return absl::InvalidArgumentError(
            absl::StrCat("{", e.over, "} already has a value where an operation ranges over it"));
      }
      over_.push_back(&e);
    }
    ++depth_;
    if (e.op == Op::kDequantize) {
      // The scales' name comes first, so that the rule matches only tensors that have scales: a partly quantized
      // checkpoint also has unquantized weights whose names have the same form.
      for (auto input = e.inputs.rbegin(); input != e.inputs.rend(); ++input) RETURN_IF_ERROR(Read(*input));
    } else {
      for (const Expression& input : e.inputs) RETURN_IF_ERROR(Read(input));
    }
    --depth_;
    if (e.over.empty()) return absl::OkStatus();
    over_.pop_back();
    const std::string* const name = FirstNameWith(e.inputs[0], e.over);
    if (name == nullptr) {
      return absl::InvalidArgumentError(absl::StrCat("no name has {", e.over, "}, which an operation ranges over"));
    }
    if (!is_text_[e.over]) return absl::OkStatus();
    return absl::InvalidArgumentError(absl::StrCat("{", e.over, "} may be any text; only numbers have an order"));
  }

  // The first name that has all of them.
  absl::StatusOr<NamePattern> Key(const std::vector<std::string>& placeholders) const {
    for (const NamePattern& name : names_) {
      if (std::all_of(placeholders.begin(), placeholders.end(), [&](const auto& p) { return name.Has(p); }))
        return name;
    }
    return absl::InvalidArgumentError("none of the names it is made from has all placeholders of the new name");
  }

  bool InNames(const std::string& placeholder) const {
    return std::any_of(names_.begin(), names_.end(), [&](const NamePattern& name) { return name.Has(placeholder); });
  }
  // The operations that have the placeholder as their part.
  std::vector<Rule::Use> UsesOf(const std::string& placeholder) const {
    const auto found = parts_.find(placeholder);
    return found == parts_.end() ? std::vector<Rule::Use>() : found->second;
  }

 private:
  absl::Status ReadName(const std::string& text) {
    ASSIGN_OR_RETURN(NamePattern name, NamePattern::Parse(text));
    for (const std::string& placeholder : name.placeholders()) {
      const auto [kind, fresh] = is_text_.try_emplace(placeholder, name.IsText(placeholder));
      if (kind->second != name.IsText(placeholder)) {
        return absl::InvalidArgumentError(absl::StrCat("{", placeholder, "} is a number here, any text there"));
      }
      if (to_.Has(placeholder) || IsOver(placeholder)) continue;
      return absl::InvalidArgumentError(absl::StrCat(io::Shown(text), " has {", placeholder,
                                                     "}, which the new name lacks and no operation ranges over"));
    }
    names_.push_back(std::move(name));
    return absl::OkStatus();
  }

  bool IsOver(std::string_view placeholder) const {
    return std::any_of(over_.begin(), over_.end(), [&](const Expression* e) { return e->over == placeholder; });
  }

  const NamePattern& to_;
  std::vector<NamePattern> names_;
  std::vector<const Expression*> over_;  // of what is around
  size_t depth_ = 0;
  std::map<std::string, bool> is_text_;
  std::map<std::string, std::vector<Rule::Use>> parts_;
};

}  // namespace

const std::string* FirstNameWith(const Expression& expression, std::string_view placeholder) {
  if (expression.op == Op::kTensor) {
    const absl::StatusOr<NamePattern> name = NamePattern::Parse(expression.name);
    return name.ok() && name->Has(placeholder) ? &expression.name : nullptr;
  }
  for (const Expression& input : expression.inputs) {
    if (const std::string* const found = FirstNameWith(input, placeholder)) return found;
  }
  return nullptr;
}

absl::StatusOr<Rule> Rule::Of(const TensorRule& rule) {
  Rule out;
  ASSIGN_OR_RETURN(out.to, NamePattern::Parse(rule.to));
  if (rule.to.empty()) return absl::InvalidArgumentError("the new name is empty");
  Reader reader(out.to);
  RETURN_IF_ERROR(reader.Read(rule.from));
  std::vector<std::string> in_key;
  for (const std::string& placeholder : out.to.placeholders()) {
    if (reader.InNames(placeholder)) {
      in_key.push_back(placeholder);
    } else if (std::vector<Use> uses = reader.UsesOf(placeholder); !uses.empty()) {
      out.counted.push_back({placeholder, std::move(uses)});
    } else {
      return absl::InvalidArgumentError(absl::StrCat("nothing says what {", placeholder, "} is"));
    }
  }
  const auto depth = [](const Counted& one) {
    const auto deeper = [](const Use& a, const Use& b) { return a.depth < b.depth; };
    return std::max_element(one.uses.begin(), one.uses.end(), deeper)->depth;
  };
  std::stable_sort(out.counted.begin(), out.counted.end(),
                   [&](const Counted& a, const Counted& b) { return depth(a) > depth(b); });
  ASSIGN_OR_RETURN(out.key, reader.Key(in_key));
  return out;
}

}  // namespace reshard::recipe
