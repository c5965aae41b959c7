#include "checkpoint/formats/deepspeed/parameters.h"

#include "absl/status/status.h"
#include "checkpoint/io/show.h"
#include "reshard/layout/checked.h"
#include "status/view.h"

namespace reshard::deepspeed {
namespace {

using Kind = pickle::Pickle::Kind;

}  // namespace

std::optional<Value> DictOf(const pickle::Pickle& values, std::optional<Value> value) {
  if (!value || values.kind(*value) == Kind::kDict) return value;
  if (values.kind(*value) != Kind::kObject) return std::nullopt;
  const std::optional<Value> contents = values.Contents(*value);
  return contents && values.kind(*contents) == Kind::kDict ? contents : std::nullopt;
}

std::optional<Value> Member(const pickle::Pickle& values, std::optional<Value> dict, std::string_view key) {
  std::optional<Value> found;
  if (const std::optional<Value> items = DictOf(values, dict)) {
    values.ForEachItem(*items, [&](Value name, Value member) {
      if (values.IsText(name, key)) found = member;
      return true;
    });
  }
  return found;
}

std::vector<Value> ListOf(const pickle::Pickle& values, std::optional<Value> list) {
  std::vector<Value> members;
  if (!list || (values.kind(*list) != Kind::kList && values.kind(*list) != Kind::kTuple)) return members;
  values.ForEach(*list, [&](Value member) {
    members.push_back(member);
    return true;
  });
  return members;
}

namespace {

// A torch.Size, or any tuple or list of sizes.
std::optional<std::vector<int64_t>> ShapeOf(const pickle::Pickle& values, Value value) {
  if (values.kind(value) == Kind::kObject) {
    const absl::Span<const Value> given = values.Tuple(values.Arguments(value));
    if (given.size() != 1) return std::nullopt;
    value = given[0];
  }
  if (values.kind(value) != Kind::kTuple && values.kind(value) != Kind::kList) return std::nullopt;
  std::vector<int64_t> shape;
  for (const Value size : ListOf(values, value)) {
    const std::optional<int64_t> number = values.Int(size);
    if (!number || *number < 0) return std::nullopt;
    shape.push_back(*number);
  }
  return shape;
}

}  // namespace

absl::StatusOr<Group> ReadGroup(const torch_save::Archive& archive, Value value, std::string_view what) {
  const pickle::Pickle& values = archive.description();
  const std::optional<Value> dict = DictOf(values, value);
  if (!dict) return archive.Bad(status::View(what), " is not a dict of shapes");
  Group group;
  absl::Status status;
  values.ForEachItem(*dict, [&](Value key, Value size) {
    const std::optional<std::vector<int64_t>> shape = ShapeOf(values, size);
    if (values.kind(key) != Kind::kString || !shape) {
      status = archive.Bad(status::View(what), " has something that is not a name and its shape");
      return false;
    }
    std::optional<int64_t> count = 1;
    for (const int64_t one : *shape) count = count ? CheckedMul(*count, one) : count;
    if (!count || *count > int64_t{1} << 58) {
      status = archive.Bad(status::View(what), ": ", io::Shown(values.Text(key)), " is too large to count");
      return false;
    }
    group.push_back({std::string(values.Text(key)), *shape, *count});
    return true;
  });
  if (!status.ok()) return status;
  return group;
}

}  // namespace reshard::deepspeed
