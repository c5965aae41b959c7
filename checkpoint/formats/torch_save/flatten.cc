#include "checkpoint/formats/torch_save/flatten.h"

#include <algorithm>
#include <cstddef>
#include <optional>
#include <string_view>
#include <utility>

#include "absl/container/flat_hash_map.h"
#include "absl/container/flat_hash_set.h"
#include "absl/strings/str_cat.h"
#include "checkpoint/formats/pickle/encoded_bytes.h"
#include "checkpoint/formats/pickle/opaque.h"
#include "checkpoint/formats/torch_save/tensor_record.h"
#include "checkpoint/io/show.h"
#include "status/view.h"

namespace reshard::torch_save {
namespace {

using Value = pickle::Pickle::Value;
using Kind = pickle::Pickle::Kind;

// A container being taken apart: its members, and which comes next.
struct Open {
  Value container = 0;
  std::vector<std::pair<Catalog::PathStep, Value>> members;
  size_t next = 0;
  size_t name_before = 0;  // bytes of the name of the container itself
  size_t path_before = 0;  // steps of the path before those of its members
  bool is_module = false;  // then a member adds to the step `module`, which all of the outermost module share
  std::string module;      // "layers.0." of a submodule, relative to the outermost one
};

bool IsDict(const pickle::Pickle& pickle, std::optional<Value> value) {
  return value && pickle.kind(*value) == Kind::kDict;
}

class Flattener {
 public:
  Flattener(const pickle::Pickle& pickle, int64_t bytes, bool is_script)
      : pickle_(pickle), is_script_(is_script), steps_(4 * bytes), names_(64 * bytes) {}

  absl::StatusOr<std::vector<Leaf>> Run() {
    status_ = Enter(pickle_.root(), nullptr, "");
    while (status_.ok() && !open_.empty()) {
      Open& here = open_.back();
      name_.resize(here.name_before);
      path_.resize(here.path_before);
      if (here.next == here.members.size()) {
        on_the_way_.erase(here.container);
        open_.pop_back();
        continue;
      }
      auto& [step, value] = here.members[here.next++];
      const std::string* const key = std::get_if<std::string>(&step);
      const std::string text = key != nullptr ? *key : absl::StrCat(std::get<1>(step));
      if (here.path_before > 0 || !here.module.empty()) name_ += '.';
      name_ += text;
      if ((names_ -= static_cast<int64_t>(name_.size())) < 0) return TooMany();
      path_.push_back(here.is_module ? Catalog::PathStep(here.module + text) : std::move(step));
      status_ = Enter(value, &here, text);
    }
    if (!status_.ok()) return status_;
    return std::move(leaves_);
  }

 private:
  bool Spend(int64_t steps) {
    steps_ -= steps;
    return steps_ >= 0;
  }
  absl::Status TooMany() const { return absl::DataLossError("containers nested in one another without end"); }

  // The member of an object's state of that name.
  std::optional<Value> MemberOf(Value object, std::string_view name) {
    std::optional<Value> found;
    if (!pickle_.HasItems(object)) return found;
    pickle_.ForEachItem(object, [&](Value key, Value member) {
      if (pickle_.IsText(key, name)) found = member;
      return Spend(1);
    });
    return found;
  }

  bool IsModule(Value value) {
    if (pickle_.kind(value) != Kind::kObject || !pickle_.HasItems(value)) return false;
    const auto known = modules_.find(value);
    if (known != modules_.end()) return known->second;
    const bool is_module = IsDict(pickle_, MemberOf(value, "_parameters")) &&
                           IsDict(pickle_, MemberOf(value, "_buffers")) && IsDict(pickle_, MemberOf(value, "_modules"));
    modules_.emplace(value, is_module);
    return is_module;
  }

  // The value at path_, which is a member, called `text`, of `parent` if that is not null.
  absl::Status Enter(Value value, const Open* parent, const std::string& text) {
    if (!Spend(1)) return TooMany();
    Open opened;
    opened.container = value;
    opened.name_before = name_.size();
    opened.path_before = path_.size();
    absl::Status status;
    if (IsModule(value)) {
      opened.is_module = true;
      if (parent != nullptr && parent->is_module) {
        opened.path_before = parent->path_before;
        opened.module = absl::StrCat(parent->module, text, ".");
      }
      status = AddModule(value, &opened);
    } else if (const std::optional<Value> dict = AsDict(value)) {
      status = AddItems(*dict, &opened);
    } else if (const std::optional<Value> pairs = AsPairs(value)) {
      status = AddPairs(*pairs, &opened);
    } else if (const std::optional<Value> list = AsList(value)) {
      pickle_.ForEach(*list, [&](Value member) {
        opened.members.emplace_back(static_cast<int64_t>(opened.members.size()), member);
        return Spend(1);
      });
    } else {
      return steps_ < 0 ? TooMany() : AddLeaf(value);
    }
    if (steps_ < 0) return TooMany();
    if (!status.ok()) return status;
    if (!on_the_way_.insert(value).second) {
      return absl::DataLossError(absl::StrCat(Where(), "a container that contains itself"));
    }
    open_.push_back(std::move(opened));
    return status;
  }

  // What is taken apart as a dict: the value whose items are its members.
  std::optional<Value> AsDict(Value value) const {
    if (pickle_.kind(value) == Kind::kDict) return value;
    if (pickle_.kind(value) != Kind::kObject || IsAnyTensor(pickle_, value)) return std::nullopt;
    const bool has_members = pickle_.HasItems(value);
    if (has_members && pickle_.IsObjectOf(value, pickle::Known::kNamespace)) return value;
    if (has_members && is_script_) return value;
    const std::optional<Value> contents = pickle_.Contents(value);
    return IsDict(pickle_, contents) ? contents : std::nullopt;
  }

  // Python 2 makes an OrderedDict of a list of its pairs.
  std::optional<Value> AsPairs(Value value) const {
    if (!pickle_.IsObjectOf(value, pickle::Known::kOrderedDict)) return std::nullopt;
    const absl::Span<const Value> given = pickle_.Tuple(pickle_.Arguments(value));
    if (given.size() != 1 || pickle_.kind(given[0]) != Kind::kList) return std::nullopt;
    return given[0];
  }

  std::optional<Value> AsList(Value value) {
    std::optional<Value> list = value;
    if (pickle_.kind(value) == Kind::kObject && !IsAnyTensor(pickle_, value)) list = pickle_.Contents(value);
    if (!list || (pickle_.kind(*list) != Kind::kList && pickle_.kind(*list) != Kind::kTuple)) return std::nullopt;
    return HasContent(*list) ? list : std::nullopt;
  }

  // Where the members of a dict are in what is opened: a key may be set again.
  using Places = absl::flat_hash_map<std::string, std::pair<size_t, Kind>>;

  absl::Status AddItems(Value dict, Open* opened) {
    absl::Status status;
    Places places;
    pickle_.ForEachItem(dict, [&](Value key, Value member) {
      status = AddItem(key, member, &places, opened);
      return status.ok();
    });
    return status;
  }

  absl::Status AddPairs(Value list, Open* opened) {
    absl::Status status;
    Places places;
    pickle_.ForEach(list, [&](Value pair) {
      std::vector<Value> both;
      if (pickle_.kind(pair) == Kind::kList || pickle_.kind(pair) == Kind::kTuple) {
        pickle_.ForEach(pair, [&](Value one) {
          both.push_back(one);
          return both.size() <= 2;
        });
      }
      status = both.size() == 2 ? AddItem(both[0], both[1], &places, opened)
                                : absl::DataLossError(absl::StrCat(Where(), "an OrderedDict of what are not pairs"));
      return status.ok();
    });
    return status;
  }

  absl::Status AddItem(Value key, Value member, Places* places, Open* opened) {
    std::string text = KeyText(key, kDeepest);
    if (!Spend(1) || (names_ -= static_cast<int64_t>(text.size())) < 0) return TooMany();
    const auto [at, added] = places->try_emplace(text, std::pair(opened->members.size(), pickle_.kind(key)));
    if (added) {
      opened->members.emplace_back(std::move(text), member);
    } else if (at->second.second == pickle_.kind(key)) {
      opened->members[at->second.first].second = member;
    } else {  // 1 and "1"
      return absl::DataLossError(absl::StrCat(Where(), "two values would both be called ", io::Shown(text)));
    }
    return absl::OkStatus();
  }

  // As Module.state_dict: parameters, then buffers that are persistent, then modules; None is left out.
  absl::Status AddModule(Value module, Open* opened) {
    absl::flat_hash_set<std::string_view> transient;
    if (const std::optional<Value> names = MemberOf(module, "_non_persistent_buffers_set")) {
      ForEachOfSet(*names, [&](Value name) {
        if (pickle_.kind(name) == Kind::kString) transient.insert(pickle_.Text(name));
        return Spend(1);
      });
    }
    for (const char* const members : {"_parameters", "_buffers", "_modules"}) {
      const std::optional<Value> dict = MemberOf(module, members);
      if (!IsDict(pickle_, dict)) continue;
      const bool are_buffers = std::string_view(members) == "_buffers";
      pickle_.ForEachItem(*dict, [&](Value key, Value member) {
        if (!Spend(1)) return false;
        const bool is_left_out = pickle_.kind(key) != Kind::kString || pickle_.kind(member) == Kind::kNone ||
                                 (are_buffers && transient.contains(pickle_.Text(key)));
        if (!is_left_out) opened->members.emplace_back(std::string(pickle_.Text(key)), member);
        return true;
      });
    }
    return absl::OkStatus();
  }

  // A set, or a call that makes one of a list, as protocol 2 has it.
  template <typename F>
  void ForEachOfSet(Value set, const F& member) const {
    if (pickle_.IsObjectOf(set, pickle::Known::kSetOf)) {
      const absl::Span<const Value> given = pickle_.Tuple(pickle_.Arguments(set));
      if (given.size() != 1) return;
      set = given[0];
    }
    const Kind kind = pickle_.kind(set);
    if (kind == Kind::kSet || kind == Kind::kList || kind == Kind::kTuple) pickle_.ForEach(set, member);
  }

  // Whether a list contains a dict, a module or a tensor, at any depth; a tuple: a tensor or a module.
  bool HasContent(Value list) {
    const bool is_tuple = pickle_.kind(list) == Kind::kTuple;
    std::vector<Value> partial = {list};
    while (!partial.empty()) {
      const Value next = partial.back();
      partial.pop_back();
      bool found = false;
      pickle_.ForEach(next, [&](Value member) {
        const Kind kind = pickle_.kind(member);
        found = IsAnyTensor(pickle_, member) || IsModule(member) || (!is_tuple && AsDict(member).has_value());
        if (kind == Kind::kList || kind == Kind::kTuple) partial.push_back(member);
        return !found && Spend(1);
      });
      if (found || steps_ < 0) return true;
    }
    return false;
  }

  static constexpr int kDeepest = 4;        // levels of tuples in a key that are shown
  static constexpr size_t kLongest = 4096;  // bytes of a key that is not a text

  // As Python's str has it, nearly: classes and dtypes are their names.
  std::string KeyText(Value key, int depth) const {
    switch (pickle_.kind(key)) {
      case Kind::kString:
        return std::string(pickle_.Text(key));
      case Kind::kBytes:
        return absl::StrCat("b'", status::View(pickle_.Text(key).substr(0, kLongest)), "'");
      case Kind::kInt:
        return absl::StrCat(*pickle_.Int(key));
      case Kind::kFloat:
        return absl::StrCat(*pickle_.Float(key));
      case Kind::kBool:
        return pickle_.IsTrue(key) ? "True" : "False";
      case Kind::kNone:
        return "None";
      case Kind::kName:
        return pickle::NameOfOpaque(pickle_, key);
      case Kind::kTuple:
        return absl::StrCat("(", Texts(pickle_.Tuple(key), depth), ")");
      case Kind::kObject:
        if (const auto bytes = pickle::BytesOf(pickle_, key, kLongest)) return absl::StrCat("b'", *bytes, "'");
        if (std::string member = pickle::NameOfOpaque(pickle_, key); !member.empty()) return member;
        return absl::StrCat(pickle::NameOfOpaque(pickle_, pickle_.Class(key)), "(",
                            Texts(pickle_.Tuple(pickle_.Arguments(key)), depth), ")");
      default:
        return "?";
    }
  }

  std::string Texts(absl::Span<const Value> values, int depth) const {
    std::string text;
    if (depth == 0 && !values.empty()) return "...";
    for (const Value value : values) {
      absl::StrAppend(&text, text.empty() ? "" : ", ", KeyText(value, depth - 1));
      if (text.size() > kLongest) return text.substr(0, kLongest) + "...";
    }
    return text;
  }

  absl::Status AddLeaf(Value value) {
    if ((names_ -= static_cast<int64_t>(name_.size() + path_.size())) < 0) return TooMany();
    if (!seen_.insert(name_).second) {
      return absl::DataLossError(absl::StrCat(Where(), "two values have that name"));
    }
    leaves_.push_back({name_, path_, value});
    return absl::OkStatus();
  }

  std::string Where() const { return name_.empty() ? std::string() : absl::StrCat(io::Shown(name_), ": "); }

  const pickle::Pickle& pickle_;
  const bool is_script_;  // then the members of all objects are taken apart
  int64_t steps_;         // that are left
  int64_t names_;         // bytes of names that are left
  std::vector<Open> open_;
  absl::flat_hash_set<Value> on_the_way_;     // the containers of open_
  absl::flat_hash_map<Value, bool> modules_;  // of the objects that were looked at: whether they are modules
  std::string name_;
  std::vector<Catalog::PathStep> path_;
  absl::flat_hash_set<std::string> seen_;
  std::vector<Leaf> leaves_;
  absl::Status status_;
};

}  // namespace

absl::StatusOr<std::vector<Leaf>> Flatten(const Archive& archive) {
  absl::StatusOr<std::vector<Leaf>> leaves =
      Flattener(archive.description(), archive.description_bytes(), archive.is_script()).Run();
  if (leaves.ok()) return leaves;
  return absl::Status(leaves.status().code(), absl::StrCat(archive.where(), leaves.status().message()));
}

}  // namespace reshard::torch_save
