#include "check/plan_text/reader.h"

#include "absl/strings/str_cat.h"

namespace reshard::plan_text {

std::optional<json::Value> Reader::Get(const char* key, bool required) {
  known_.insert(key);
  const auto value = object_.Find(key);
  if (!value && required && strict_) Find(key, "", "the key is missing");
  return value;
}

std::optional<int64_t> Reader::Count(const char* key, bool required, int64_t least) {
  const auto value = Get(key, required);
  if (!value) return std::nullopt;
  const auto out = value->Count();
  if (out && *out >= least) return out;
  Find(key, value->Shown(), absl::StrCat("it should be a whole number of at least ", least, " that fits 64 bits"));
  return std::nullopt;
}

std::optional<std::string> Reader::Text(const char* key, bool required) {
  const auto value = Get(key, required);
  if (!value) return std::nullopt;
  auto out = value->Text();
  if (!out) Find(key, value->Shown(), "it should be a string");
  return out;
}

std::optional<std::vector<std::string>> Reader::Texts(const char* key, bool required) {
  const auto list = List(key, required);
  if (!list) return std::nullopt;
  std::vector<std::string> out;
  for (size_t i = 0; i < list->size(); ++i) {
    auto text = list->at(i).Text();
    if (!text) {
      Find(key, list->Shown(), "it should be a list of strings");
      return std::nullopt;
    }
    out.push_back(*std::move(text));
  }
  return out;
}

std::optional<json::Value> Reader::List(const char* key, bool required) {
  const auto value = Get(key, required);
  if (!value || value->is_array()) return value;
  Find(key, value->Shown(), "it should be a list");
  return std::nullopt;
}

std::optional<json::Value> Reader::Object(const char* key, bool required) {
  const auto value = Get(key, required);
  if (!value || value->is_object()) return value;
  Find(key, value->Shown(), "it should be an object");
  return std::nullopt;
}

void Reader::Rest() {
  if (!strict_) return;
  for (const std::string& key : object_.Keys()) {
    if (!known_.contains(key)) Find(key, object_.Find(key)->Shown(), "unknown key");
  }
}

void Reader::Find(std::string_view key, std::string said, std::string why) {
  const std::string at = where_.empty() ? std::string(key) : absl::StrCat(where_, ".", std::string(key));
  findings_.push_back({at, std::move(said), "", std::move(why)});
}

std::string Reader::Where(std::string_view key, size_t i) const {
  return absl::StrCat(where_.empty() ? "" : where_ + ".", std::string(key), "[", i, "]");
}

}  // namespace reshard::plan_text
