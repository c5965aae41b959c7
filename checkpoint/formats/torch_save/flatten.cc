#include "checkpoint/formats/torch_save/flatten.h"

#include <algorithm>
#include <cstddef>
#include <optional>
#include <string_view>
#include <utility>

#include "absl/container/flat_hash_map.h"
#include "absl/container/flat_hash_set.h"
#include "absl/strings/str_cat.h"
#include "checkpoint/formats/torch_save/tensor_record.h"
#include "checkpoint/io/show.h"

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
};

class Flattener {
 public:
  Flattener(const pickle::Pickle& pickle, int64_t bytes) : pickle_(pickle), steps_(4 * bytes), names_(64 * bytes) {}

  absl::StatusOr<std::vector<Leaf>> Run() {
    status_ = Enter(pickle_.root());
    while (status_.ok() && !open_.empty()) {
      Open& here = open_.back();
      name_.resize(here.name_before);
      path_.resize(open_.size() - 1);
      if (here.next == here.members.size()) {
        on_the_way_.erase(here.container);
        open_.pop_back();
        continue;
      }
      auto& [step, value] = here.members[here.next++];
      const std::string* const key = std::get_if<std::string>(&step);
      if (!path_.empty()) name_ += '.';
      name_ += key != nullptr ? *key : absl::StrCat(std::get<1>(step));
      if ((names_ -= static_cast<int64_t>(name_.size())) < 0) return TooMany();
      path_.push_back(std::move(step));
      status_ = Enter(value);
    }
    if (!status_.ok()) return status_;
    return std::move(leaves_);
  }

 private:
  bool Spend(int64_t steps) {
    steps_ -= steps;
    return steps_ >= 0;
  }
  absl::Status TooMany() const { return absl::DataLossError("containers that are in one another again and again"); }

  absl::Status Enter(Value value) {
    if (!Spend(1)) return TooMany();
    const Kind kind = pickle_.kind(value);
    const bool is_list = kind == Kind::kList || kind == Kind::kTuple;
    const bool enters = kind == Kind::kDict || (is_list && HasContent(value));
    if (steps_ < 0) return TooMany();
    if (!enters) return AddLeaf(value);
    if (!on_the_way_.insert(value).second) {
      return absl::DataLossError(absl::StrCat(Where(), "a container that contains itself"));
    }
    Open opened;
    opened.container = value;
    opened.name_before = name_.size();
    absl::Status status;
    if (kind == Kind::kDict) {
      absl::flat_hash_map<std::string, std::pair<size_t, Kind>> places;  // a key may be set again
      pickle_.ForEachItem(value, [&](Value key, Value member) {
        std::optional<std::string> text = KeyText(key);
        if (!text) status = absl::UnimplementedError(absl::StrCat(Where(), "a key that is neither text nor number"));
        if (!Spend(1) || (names_ -= text ? static_cast<int64_t>(text->size()) : 0) < 0) status = TooMany();
        if (!status.ok()) return false;
        const auto [at, added] = places.try_emplace(*text, std::pair(opened.members.size(), pickle_.kind(key)));
        if (added) {
          opened.members.emplace_back(*std::move(text), member);
        } else if (at->second.second == pickle_.kind(key)) {
          opened.members[at->second.first].second = member;
        } else {  // 1 and "1"
          status = absl::DataLossError(absl::StrCat(Where(), "two values would both be called ", io::Shown(*text)));
        }
        return status.ok();
      });
    } else {
      pickle_.ForEach(value, [&](Value member) {
        opened.members.emplace_back(static_cast<int64_t>(opened.members.size()), member);
        return Spend(1);
      });
      if (steps_ < 0) status = TooMany();
    }
    open_.push_back(std::move(opened));
    return status;
  }

  // Whether a list contains a dict or a tensor, at any depth; a tuple: a tensor.
  bool HasContent(Value list) {
    const bool is_tuple = pickle_.kind(list) == Kind::kTuple;
    std::vector<Value> pending = {list};
    while (!pending.empty()) {
      const Value next = pending.back();
      pending.pop_back();
      bool found = false;
      pickle_.ForEach(next, [&](Value member) {
        const Kind kind = pickle_.kind(member);
        found = IsAnyTensor(member) || (kind == Kind::kDict && !is_tuple);
        if (kind == Kind::kList || kind == Kind::kTuple) pending.push_back(member);
        return !found && Spend(1);
      });
      if (found || steps_ < 0) return true;
    }
    return false;
  }

  bool IsAnyTensor(Value value) const {
    return IsTensor(pickle_, value) || pickle_.IsObjectOf(value, pickle::Known::kRebuildParameter) ||
           pickle_.IsObjectOf(value, pickle::Known::kRebuildFromType);
  }

  std::optional<std::string> KeyText(Value key) const {
    switch (pickle_.kind(key)) {
      case Kind::kString:
        return std::string(pickle_.Text(key));
      case Kind::kInt:
        return absl::StrCat(*pickle_.Int(key));
      case Kind::kBool:
        return std::string(pickle_.IsTrue(key) ? "True" : "False");
      case Kind::kNone:
        return std::string("None");
      default:
        return std::nullopt;
    }
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
  int64_t steps_;  // that are left
  int64_t names_;  // bytes of names that are left
  std::vector<Open> open_;
  absl::flat_hash_set<Value> on_the_way_;  // the containers of open_
  std::string name_;
  std::vector<Catalog::PathStep> path_;
  absl::flat_hash_set<std::string> seen_;
  std::vector<Leaf> leaves_;
  absl::Status status_;
};

}  // namespace

absl::StatusOr<std::vector<Leaf>> Flatten(const pickle::Pickle& description, int64_t bytes) {
  return Flattener(description, bytes).Run();
}

}  // namespace reshard::torch_save
