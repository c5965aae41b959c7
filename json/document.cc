#include "json/document.h"

#include <cassert>
#include <nlohmann/json.hpp>
#include <utility>

#include "absl/strings/str_cat.h"
#include "json/walk.h"
#include "reshard/layout/characters.h"
#include "status/macros.h"

namespace reshard::json {
namespace {

using Tree = nlohmann::json;
using Kind = WalkedValue::Kind;

const Tree& Of(const void* value) { return *static_cast<const Tree*>(value); }

Tree TreeOf(const WalkedValue& value) {
  switch (value.kind) {
    case Kind::kNull:
      return nullptr;
    case Kind::kBool:
      return value.boolean;
    case Kind::kInteger:
      return static_cast<uint64_t>(value.integer);
    case Kind::kNegative:
      return value.integer;
    case Kind::kLarge:
      return value.large;
    case Kind::kFraction:
      return value.fraction;
    case Kind::kString:
      return std::move(*value.text);
    case Kind::kObject:
      return Tree::object();
    case Kind::kArray:
      return Tree::array();
  }
  return nullptr;
}

}  // namespace

bool Value::is_object() const { return Of(value_).is_object(); }
bool Value::is_array() const { return Of(value_).is_array(); }
bool Value::is_string() const { return Of(value_).is_string(); }
bool Value::is_null() const { return Of(value_).is_null(); }
size_t Value::size() const { return Of(value_).size(); }
Value Value::at(size_t i) const {
  assert(i < size());
  return Value(&Of(value_)[i]);
}

std::optional<Value> Value::Find(std::string_view key) const {
  if (!is_object()) return std::nullopt;
  const auto it = Of(value_).find(key);
  return it == Of(value_).end() ? std::nullopt : std::optional<Value>(Value(&*it));
}

std::vector<std::string> Value::Keys() const {
  std::vector<std::string> out;
  for (const auto& [key, value] : Of(value_).items()) out.push_back(key);
  return out;
}

std::optional<int64_t> Value::Count() const {
  // Negative numbers and fractions are other types here.
  if (!Of(value_).is_number_unsigned()) return std::nullopt;
  const auto n = Of(value_).get<uint64_t>();
  return n <= static_cast<uint64_t>(INT64_MAX) ? std::optional<int64_t>(static_cast<int64_t>(n)) : std::nullopt;
}

std::optional<int64_t> Value::Integer() const {
  if (Of(value_).is_number_unsigned() || !Of(value_).is_number_integer()) return Count();
  return Of(value_).get<int64_t>();
}

std::optional<double> Value::Number() const {
  return Of(value_).is_number() ? std::optional<double>(Of(value_).get<double>()) : std::nullopt;
}

std::optional<bool> Value::Bool() const {
  return Of(value_).is_boolean() ? std::optional<bool>(Of(value_).get<bool>()) : std::nullopt;
}

std::optional<std::string> Value::Text() const {
  return is_string() ? std::optional<std::string>(Of(value_).get<std::string>()) : std::nullopt;
}

std::string Value::Written() const { return Of(value_).dump(-1, ' ', false, Tree::error_handler_t::replace); }

std::string Value::Shown() const {
  if ((is_array() || is_object()) && size() > 16) return absl::StrCat("a list of ", size());
  constexpr size_t kMost = 80;
  return OneLine(Written(), kMost);
}

absl::StatusOr<Document> Document::Parse(std::string_view text, int64_t depth) {
  auto root = std::make_shared<Tree>();
  std::vector<Tree*> open;  // the containers around the next value, outermost first
  RETURN_IF_ERROR(Walk(text, depth, [&](absl::Span<const PathStep> path, const WalkedValue& value) {
    if (static_cast<int64_t>(path.size()) >= depth && (value.kind == Kind::kObject || value.kind == Kind::kArray)) {
      return absl::InvalidArgumentError(absl::StrCat("arrays and objects are nested more than ", depth, " deep"));
    }
    open.resize(path.size());
    Tree* at = root.get();
    if (!path.empty()) {
      Tree& parent = *open.back();
      // Only the innermost open container grows, so that pointers to those around it hold.
      at = path.back().index >= 0 ? &parent.emplace_back(nullptr) : &parent[path.back().key];
    }
    *at = TreeOf(value);
    if (at->is_structured()) open.push_back(at);
    return absl::OkStatus();
  }));
  Document out;
  out.value_ = std::move(root);
  return out;
}

}  // namespace reshard::json
