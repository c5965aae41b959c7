#include "check/json_ref.h"

#include <nlohmann/json.hpp>

#include "absl/strings/str_cat.h"

namespace reshard::check {
namespace {

using Json = nlohmann::json;

const Json& Of(const void* value) { return *static_cast<const Json*>(value); }

}  // namespace

bool JsonRef::is_object() const { return Of(value_).is_object(); }
bool JsonRef::is_array() const { return Of(value_).is_array(); }
bool JsonRef::is_string() const { return Of(value_).is_string(); }
bool JsonRef::is_null() const { return Of(value_).is_null(); }
size_t JsonRef::size() const { return Of(value_).size(); }
JsonRef JsonRef::at(size_t i) const { return JsonRef(&Of(value_)[i]); }

std::optional<JsonRef> JsonRef::Find(std::string_view key) const {
  if (!is_object()) return std::nullopt;
  const auto it = Of(value_).find(key);
  return it == Of(value_).end() ? std::nullopt : std::optional<JsonRef>(JsonRef(&*it));
}

std::vector<std::string> JsonRef::Keys() const {
  std::vector<std::string> out;
  for (const auto& [key, value] : Of(value_).items()) out.push_back(key);
  return out;
}

std::optional<int64_t> JsonRef::Count() const {
  // Negative numbers and fractions are other types here.
  if (!Of(value_).is_number_unsigned()) return std::nullopt;
  const auto n = Of(value_).get<uint64_t>();
  return n <= static_cast<uint64_t>(INT64_MAX) ? std::optional<int64_t>(static_cast<int64_t>(n)) : std::nullopt;
}

std::optional<double> JsonRef::Number() const {
  return Of(value_).is_number() ? std::optional<double>(Of(value_).get<double>()) : std::nullopt;
}

std::optional<bool> JsonRef::Bool() const {
  return Of(value_).is_boolean() ? std::optional<bool>(Of(value_).get<bool>()) : std::nullopt;
}

std::optional<std::string> JsonRef::Text() const {
  return is_string() ? std::optional<std::string>(Of(value_).get<std::string>()) : std::nullopt;
}

std::string JsonRef::Shown() const {
  const Json& value = Of(value_);
  if (value.is_structured() && value.size() > 16) return absl::StrCat("a list of ", value.size());
  std::string text = value.dump(-1, ' ', false, Json::error_handler_t::replace);
  constexpr size_t kMost = 80;
  if (text.size() > kMost) text = text.substr(0, kMost) + "...";
  return text;
}

std::optional<JsonText> JsonText::Parse(std::string_view text) {
  auto value = std::make_shared<const Json>(Json::parse(text, nullptr, /*allow_exceptions=*/false));
  if (value->is_discarded()) return std::nullopt;
  JsonText out;
  out.value_ = std::move(value);
  return out;
}

}  // namespace reshard::check
