#include "checkpoint/views/apply.h"

#include <algorithm>
#include <limits>
#include <set>
#include <string_view>
#include <utility>

#include "absl/container/flat_hash_map.h"
#include "absl/functional/function_ref.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "checkpoint/catalog/derived_catalog.h"
#include "checkpoint/io/show.h"
#include "checkpoint/recipe/cast.h"
#include "checkpoint/recipe/name_pattern.h"
#include "checkpoint/recipe/operations.h"
#include "checkpoint/recipe/rule.h"
#include "checkpoint/views/lower.h"
#include "checkpoint/views/scaled.h"
#include "checkpoint/views/scales.h"
#include "checkpoint/views/strided_box.h"
#include "reshard/checkpoint/pattern.h"
#include "reshard/layout/characters.h"
#include "reshard/layout/checked.h"
#include "reshard/runtime/tensor_view.h"
#include "status/macros.h"
#include "status/view.h"

namespace reshard::views {
namespace {

using recipe::NamePattern;
using recipe::Values;

// A tensor of the result, before its element type is what the recipe asks for.
struct Target {
  std::string name;
  View view;
};

// Calls `visit` with each tensor that a view is made of.
void VisitTensors(const Node& node, absl::FunctionRef<void(int64_t tensor)> visit) {
  if (node.kind == Node::Kind::kTensor) visit(node.tensor);
  for (const Node& input : node.inputs) VisitTensors(input, visit);
}

class Applying {
 public:
  Applying(const Recipe& recipe, const Catalog& stored) : recipe_(recipe), stored_(stored) {
    for (const Catalog::Tensor& tensor : stored.tensors()) names_.push_back(tensor.name);
    std::sort(names_.begin(), names_.end());
    used_.resize(stored.tensors().size(), false);
  }

  absl::StatusOr<Applied> Run() {
    for (const TensorRule& rule : recipe_.tensors) {
      absl::Status made = Make(rule);
      if (made.ok()) continue;
      return absl::Status(made.code(), absl::StrCat("to make ", io::Shown(rule.to), ": ", made.message()));
    }
    RETURN_IF_ERROR(KeepOthers());
    for (Target& target : targets_) {
      RETURN_IF_ERROR(CastTarget(&target));
    }
    return Result();
  }

 private:
  // The values for each stored name that matches, in the order of their bytes.
  std::vector<Values> MatchesOf(const NamePattern& pattern, const Values& known) const {
    const std::string prefix = pattern.Prefix(known);
    std::vector<Values> found;
    for (auto name = std::lower_bound(names_.begin(), names_.end(), prefix);
         name != names_.end() && name->starts_with(prefix); ++name) {
      if (std::optional<Values> values = pattern.Match(*name, known)) found.push_back(*std::move(values));
    }
    return found;
  }

  absl::Status Make(const TensorRule& rule) {
    ASSIGN_OR_RETURN(const recipe::Rule names, recipe::Rule::Of(rule));
    const auto in_order = [&](const Values& a, const Values& b) {
      for (const std::string& placeholder : names.to.placeholders()) {
        const auto left = a.find(placeholder), right = b.find(placeholder);
        if (left == a.end() || left->second == right->second) continue;
        return recipe::ComesBefore(left->second, right->second);
      }
      return false;
    };
    std::set<Values, decltype(in_order)> all(in_order);
    for (Values& values : MatchesOf(names.key, {})) {
      std::erase_if(values, [&](const auto& value) { return !names.to.Has(value.first); });
      all.insert(std::move(values));
    }
    if (all.empty() && !rule.optional) {
      const std::string name = names.key.Fill(AsWritten(names.key));
      return absl::InvalidArgumentError(absl::StrCat("there is no tensor ", io::Shown(name), ZerosHint(names.key, {})));
    }
    for (const Values& values : all) {
      RETURN_IF_ERROR(MakeCounted(rule, names, 0, values));
    }
    return absl::OkStatus();
  }

  static std::string ZerosHint(std::string_view name) {
    return absl::StrCat("; ", io::Shown(name), " does not match: a number has no zeros in front; {p*} is any text");
  }
  // The hint if there is no tensor of that name, but there is one whose number has zeros in front.
  std::string ZerosHint(const NamePattern& pattern, const Values& known) const {
    const std::string prefix = pattern.Prefix(known);
    for (auto name = std::lower_bound(names_.begin(), names_.end(), prefix);
         name != names_.end() && name->starts_with(prefix); ++name) {
      if (pattern.MatchesButForZeros(*name, known)) return ZerosHint(*name);
    }
    return "";
  }
  static bool MatchesButForZeros(const Expression& e, std::string_view name) {
    if (e.op == Expression::Op::kTensor) {
      const absl::StatusOr<NamePattern> pattern = NamePattern::Parse(e.name);
      return pattern.ok() && pattern->MatchesButForZeros(name, {});
    }
    return std::any_of(e.inputs.begin(), e.inputs.end(),
                       [&](const Expression& input) { return MatchesButForZeros(input, name); });
  }

  // Placeholders as they are written.
  static Values AsWritten(const NamePattern& pattern) {
    Values values;
    for (const std::string& placeholder : pattern.placeholders()) {
      values[placeholder] = absl::StrCat("{", placeholder, pattern.IsText(placeholder) ? "*}" : "}");
    }
    return values;
  }

  // Gives values to the placeholders from the first-th counted one on.
  absl::Status MakeCounted(const TensorRule& rule, const recipe::Rule& names, size_t first, Values values) {
    if (first == names.counted.size()) return MakeOne(rule, names, values);
    const recipe::Rule::Counted& counted = names.counted[first];
    // Two placeholders may each be counted within an operation of the other: the first part stands for them all.
    Values any = values;
    for (const recipe::Rule::Counted& other : names.counted) any.try_emplace(other.placeholder, "0");
    std::optional<int64_t> parts;
    for (const recipe::Rule::Use& use : counted.uses) {
      RETURN_IF_ERROR(CountParts(counted.placeholder, use, 0, any, &parts));
    }
    constexpr int64_t kMostParts = int64_t{1} << 16;
    if (*parts > kMostParts) {
      return absl::InvalidArgumentError(absl::StrCat(*parts, " parts are more than ", kMostParts));
    }
    for (int64_t part = 0; part < *parts; ++part) {
      values[counted.placeholder] = absl::StrCat(part);
      RETURN_IF_ERROR(MakeCounted(rule, names, first + 1, values));
    }
    return absl::OkStatus();
  }

  // The number of parts of an operation, for all values of the placeholders from the first-th one on over which the
  // operations around it go. InvalidArgument: it is not always the same, or not `parts` where that has a value.
  absl::Status CountParts(const std::string& placeholder, const recipe::Rule::Use& use, size_t first,
                          const Values& values, std::optional<int64_t>* parts) {
    const bool depends_on_inputs = !recipe::FixedParts(*use.operation);
    if (depends_on_inputs && first < use.around.size()) {
      const Expression& around = *use.around[first];
      ASSIGN_OR_RETURN(const int64_t count, CountOver(around, values));
      Values more = values;
      for (int64_t i = 0; i < count; ++i) {
        more[around.over] = absl::StrCat(i);
        RETURN_IF_ERROR(CountParts(placeholder, use, first + 1, more, parts));
      }
      return absl::OkStatus();
    }
    Expression operation = *use.operation;
    if (depends_on_inputs) {
      ASSIGN_OR_RETURN(operation, Ground(operation, values));
    }
    ASSIGN_OR_RETURN(const int64_t count, NumParts(operation, stored_));
    if (!parts->has_value()) *parts = count;
    if (**parts == count) return absl::OkStatus();
    return absl::InvalidArgumentError(absl::StrCat("{", placeholder, "} counts ", **parts, " parts of one tensor, and ",
                                                   count, " of another one, in ", recipe::Brief(*use.operation)));
  }

  absl::Status MakeOne(const TensorRule& rule, const recipe::Rule& names, const Values& values) {
    ASSIGN_OR_RETURN(const Expression expression, Ground(rule.from, values));
    ASSIGN_OR_RETURN(Node node, Lower(expression, stored_));
    Target target{names.to.Fill(values), {-1, std::nullopt, ToString(Shown(rule.from, values))}};
    int64_t& first = target.view.stored;
    VisitTensors(node, [&](int64_t tensor) {
      used_[tensor] = true;
      if (first < 0 || tensor < first) first = tensor;
    });
    if (node.kind == Node::Kind::kTensor) {
      target.view.text.clear();
    } else {
      target.view.node = std::move(node);
    }
    targets_.push_back(std::move(target));
    return absl::OkStatus();
  }

  // The expression for values of all placeholders.
  absl::StatusOr<Expression> Ground(const Expression& e, const Values& values) {
    Expression out = e;
    if (e.op == Expression::Op::kTensor) {
      // A few nested operations over placeholders could ask for any number.
      constexpr int64_t kMostUses = int64_t{1} << 20;
      if (++uses_ > kMostUses) {
        return absl::InvalidArgumentError(absl::StrCat("the rules use tensors more than ", kMostUses, " times"));
      }
      ASSIGN_OR_RETURN(const NamePattern name, NamePattern::Parse(e.name));
      out.name = name.Fill(values);
      return out;
    }
    if (!e.part.placeholder.empty()) {
      const std::string& text = values.at(e.part.placeholder);
      out.part = {};
      // A number in a name may have any length.
      if (!absl::SimpleAtoi(text, &out.part.number)) {
        return absl::InvalidArgumentError(absl::StrCat("there is no part ", io::Shown(text)));
      }
    }
    out.inputs.clear();
    out.over.clear();
    if (e.over.empty()) {
      for (const Expression& input : e.inputs) {
        ASSIGN_OR_RETURN(Expression grounded, Ground(input, values));
        out.inputs.push_back(std::move(grounded));
      }
      return out;
    }
    ASSIGN_OR_RETURN(const int64_t count, CountOver(e, values));
    for (int64_t i = 0; i < count; ++i) {
      Values more = values;
      more[e.over] = absl::StrCat(i);
      ASSIGN_OR_RETURN(Expression grounded, Ground(e.inputs[0], more));
      out.inputs.push_back(std::move(grounded));
    }
    return out;
  }

  // The expression as it is shown: what goes over a placeholder is written once.
  static Expression Shown(Expression e, const Values& values) {
    if (e.op == Expression::Op::kTensor) {
      const absl::StatusOr<NamePattern> name = NamePattern::Parse(e.name);
      if (!name.ok()) return e;
      Values all = AsWritten(*name);
      for (const auto& [placeholder, value] : values) all[placeholder] = value;
      e.name = name->Fill(all);
    }
    if (const auto part = values.find(e.part.placeholder); part != values.end()) {
      e.part = {};
      if (!absl::SimpleAtoi(part->second, &e.part.number)) return e;  // Ground has refused it
    }
    for (Expression& input : e.inputs) input = Shown(std::move(input), values);
    return e;
  }

  // How many values the placeholder that an operation goes over has: 0, 1, 2, ...
  absl::StatusOr<int64_t> CountOver(const Expression& e, const Values& values) const {
    ASSIGN_OR_RETURN(const NamePattern name, NamePattern::Parse(*recipe::FirstNameWith(e.inputs[0], e.over)));
    constexpr size_t kMostDigits = 40;  // of a number in a name, which may have any length
    std::vector<std::string> numbers;
    for (const Values& match : MatchesOf(name, values)) numbers.push_back(match.at(e.over));
    std::sort(numbers.begin(), numbers.end(), recipe::ComesBefore);
    numbers.erase(std::unique(numbers.begin(), numbers.end()), numbers.end());
    Values shown = AsWritten(name);
    for (const auto& [placeholder, value] : values) shown[placeholder] = value;
    for (size_t i = 0; i < numbers.size(); ++i) {
      if (numbers[i] == absl::StrCat(i)) continue;
      shown[e.over] = absl::StrCat(i);
      return absl::InvalidArgumentError(absl::StrCat("there is no tensor ", io::Shown(name.Fill(shown)),
                                                     ", but one for ", e.over, " = ",
                                                     OneLine(numbers.back(), kMostDigits), ZerosHint(name, values)));
    }
    if (!numbers.empty()) return static_cast<int64_t>(numbers.size());
    return absl::InvalidArgumentError(
        absl::StrCat("there is no tensor ", io::Shown(name.Fill(shown)), ZerosHint(name, values)));
  }

  absl::Status KeepOthers() {
    int64_t unused = 0;
    std::string_view first;
    for (size_t t = 0; t < stored_.tensors().size(); ++t) {
      const Catalog::Tensor& tensor = stored_.tensors()[t];
      if (used_[t]) continue;
      const bool keeps = MatchesAny(recipe_.keep, tensor.name);
      if (!keeps && MatchesAny(recipe_.drop, tensor.name)) continue;
      if (!keeps && !recipe_.tensors.empty()) {
        if (unused++ == 0) first = tensor.name;
        continue;
      }
      targets_.push_back({std::string(tensor.name), {static_cast<int64_t>(t), std::nullopt, ""}});
    }
    if (unused == 0) return absl::OkStatus();
    const bool zeros = std::any_of(recipe_.tensors.begin(), recipe_.tensors.end(),
                                   [&](const TensorRule& rule) { return MatchesButForZeros(rule.from, first); });
    return absl::InvalidArgumentError(absl::StrCat(unused == 1 ? "a tensor is" : absl::StrCat(unused, " tensors are"),
                                                   " used by no rule, such as ", io::Shown(first),
                                                   "; say in \"keep\" or \"drop\" of the recipe what becomes of ",
                                                   unused == 1 ? "it" : "them", zeros ? ZerosHint(first) : ""));
  }

  // Whether it is made only of scales of quantized tensors, which are of no use without their precision.
  bool IsOfScales(const View& view) const {
    const auto is_scale = [&](int64_t tensor) { return NamesScales(stored_, stored_.tensors()[tensor].name); };
    if (!view.node) return is_scale(view.stored);
    bool all = true;
    VisitTensors(*view.node, [&](int64_t tensor) { all &= is_scale(tensor); });
    return all;
  }

  absl::Status CastTarget(Target* target) const {
    const bool of_scales = !recipe_.dtypes.empty() && IsOfScales(target->view);
    const auto rule = std::find_if(recipe_.dtypes.begin(), recipe_.dtypes.end(), [&](const auto& each) {
      const bool means_it = !of_scales || NamesOne(each.first) || each.first.find("scale") != std::string::npos;
      return means_it && MatchesPattern(each.first, target->name);
    });
    if (rule == recipe_.dtypes.end()) return absl::OkStatus();
    const Catalog::Tensor& stored = stored_.tensors()[target->view.stored];
    View& view = target->view;
    const std::optional<DType> dtype = view.node ? view.node->dtype : stored.dtype;
    if (!dtype || !recipe::IsWideFloat(*dtype)) {
      if (!NamesOne(rule->first) || dtype == rule->second) return absl::OkStatus();
      return absl::InvalidArgumentError(absl::StrCat("tensor ", io::Shown(target->name), " has elements of type ",
                                                     status::View(dtype ? Name(*dtype) : stored.stored_dtype),
                                                     ", and only floats are cast"));
    }
    if (*dtype == rule->second) return absl::OkStatus();
    absl::StatusOr<Node> cast =
        CastTo(view.node ? *std::move(view.node) : TensorNode(stored_, view.stored), rule->second);
    if (!cast.ok()) {
      return absl::Status(cast.status().code(),
                          absl::StrCat("tensor ", io::Shown(target->name), ": ", cast.status().message()));
    }
    view.node = *std::move(cast);
    view.text = absl::StrCat("cast(", status::View(view.text.empty() ? stored.stored_name : view.text),
                             ", dtype=", status::View(Name(rule->second)), ")");
    return absl::OkStatus();
  }

  absl::StatusOr<Applied> Result() {
    std::stable_sort(targets_.begin(), targets_.end(),
                     [](const Target& a, const Target& b) { return a.view.stored < b.view.stored; });
    absl::flat_hash_map<std::string_view, const Target*> by_name;
    for (const Catalog::ByteItem& item : stored_.byte_items()) by_name.emplace(item.name, nullptr);
    for (const Target& target : targets_) {
      const auto [other, fresh] = by_name.emplace(target.name, &target);
      if (fresh) continue;
      const auto from = [&](const Target* which) {
        if (which == nullptr) return std::string("a byte item");
        return which->view.text.empty() ? absl::StrCat("tensor ", io::Shown(stored_.tensors()[which->view.stored].name))
                                        : which->view.text;
      };
      return absl::InvalidArgumentError(absl::StrCat("both ", from(other->second), " and ", from(&target),
                                                     " would be called ", io::Shown(target.name)));
    }
    if (targets_.empty() && !stored_.tensors().empty() && stored_.byte_items().empty()) {
      return absl::InvalidArgumentError("nothing is left");
    }
    Applied out;
    std::vector<catalog::Kept> tensors, items;
    for (Target& target : targets_) {
      catalog::Kept kept{static_cast<size_t>(target.view.stored), std::move(target.name), std::nullopt};
      if (target.view.node) kept.made = {target.view.node->shape, target.view.node->dtype};
      tensors.push_back(std::move(kept));
      out.views.push_back(std::move(target.view));
    }
    for (size_t i = 0; i < stored_.byte_items().size(); ++i) {
      items.push_back({i, std::string(stored_.byte_items()[i].name), std::nullopt});
    }
    out.catalog = catalog::DerivedCatalog(stored_).Make(std::move(tensors), std::move(items), stored_.attributes());
    return out;
  }

  const Recipe& recipe_;
  const Catalog& stored_;
  std::vector<std::string_view> names_;  // of tensors, in ascending order
  std::vector<bool> used_;               // by tensor
  std::vector<Target> targets_;
  int64_t uses_ = 0;  // of tensors in expressions
};

}  // namespace

absl::StatusOr<Applied> Apply(const Recipe& recipe, const Catalog& stored) { return Applying(recipe, stored).Run(); }

namespace {

// Counts the elements of tensors in boxes of views.
class Counting {
 public:
  struct Uses {
    bool any = false;
    int64_t taken = 0;
  };
  explicit Counting(std::vector<Uses>* uses) : uses_(*uses) {}

  // Cancelled: there are very many boxes.
  absl::Status Add(const Node& view, const StridedBox& box) {
    return VisitLeaves(view, box, [this](const Node& leaf, const StridedBox& part, const Casts&) -> absl::Status {
      constexpr int64_t kMostBoxes = 100000;
      if (++boxes_ > kMostBoxes) return absl::CancelledError("");
      if (leaf.kind == Node::Kind::kDequantize) return AddInputs(leaf, part);
      if (leaf.kind != Node::Kind::kTensor) return absl::OkStatus();
      // A tensor may be used any number of times.
      int64_t& taken = uses_[leaf.tensor].taken;
      taken = CheckedAdd(taken, part.Elements()).value_or(std::numeric_limits<int64_t>::max());
      return absl::OkStatus();
    });
  }

 private:
  absl::Status AddInputs(const Node& dequantized, const StridedBox& box) {
    RETURN_IF_ERROR(Add(dequantized.inputs[0], box));
    std::vector<int64_t> size(box.at.size());
    for (size_t d = 0; d < size.size(); ++d) size[d] = box.Last(d) - box.at[d] + 1;
    const ScaleBox scales = ScalesOf(dequantized, box.at, size);
    return Add(dequantized.inputs[1], StridedBox::Of(scales.offset, scales.size));
  }

  std::vector<Uses>& uses_;
  int64_t boxes_ = 0;
};

}  // namespace

std::vector<PartlyUsed> FindPartlyUsed(const std::vector<View>& views, const Catalog& stored) {
  std::vector<Counting::Uses> uses(stored.tensors().size());
  for (const View& view : views) {
    if (!view.node) {
      uses[view.stored].taken = std::numeric_limits<int64_t>::max();
      continue;
    }
    VisitTensors(*view.node, [&](int64_t tensor) { uses[tensor].any = true; });
    const std::vector<int64_t>& shape = view.node->shape;
    if (NumElements(shape) == 0) continue;
    const StridedBox whole = StridedBox::Of(std::vector<int64_t>(shape.size(), 0), shape);
    if (!Counting(&uses).Add(*view.node, whole).ok()) return {};
  }
  std::vector<PartlyUsed> found;
  for (size_t t = 0; t < uses.size(); ++t) {
    const int64_t elements = NumElements(stored.tensors()[t].shape);
    if (uses[t].any && uses[t].taken < elements) found.push_back({static_cast<int64_t>(t), uses[t].taken, elements});
  }
  return found;
}

}  // namespace reshard::views
