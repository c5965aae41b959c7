// Reads the members of a JSON object one by one and records what is not as it should be.
#ifndef RESHARD_CHECK_PLAN_TEXT_READER_H_
#define RESHARD_CHECK_PLAN_TEXT_READER_H_

#include <cstdint>
#include <optional>
#include <set>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "json/document.h"
#include "reshard/check/finding.h"

namespace reshard::plan_text {

// A required member that is absent, an ill-typed one and an unknown one are findings; members that a plan may leave out
// come back empty. If another tool wrote the plan (not `strict`), nothing is required and unknown keys are ignored.
class Reader {
 public:
  Reader(json::Value object, std::string where, bool strict, std::vector<Finding>& findings)
      : object_(object), where_(std::move(where)), strict_(strict), findings_(findings) {}

  // A member of any type. Asking for a member makes it known.
  std::optional<json::Value> Get(const char* key, bool required = false);
  std::optional<int64_t> Count(const char* key, bool required = true, int64_t least = 0);
  std::optional<std::string> Text(const char* key, bool required);
  std::optional<std::vector<std::string>> Texts(const char* key, bool required);
  std::optional<json::Value> List(const char* key, bool required);
  std::optional<json::Value> Object(const char* key, bool required);
  // Unknown members are findings; call at the end.
  void Rest();

  void Find(std::string_view key, std::string said, std::string why);
  std::string Where(std::string_view key, size_t i) const;

  // A list of objects, each read by `read(reader)`. Nothing when the list is absent or an entry is not an object.
  template <typename Entry, typename Read>
  std::optional<std::vector<Entry>> Objects(const char* key, bool required, const Read& read) {
    const auto list = List(key, required);
    if (!list) return std::nullopt;
    std::vector<Entry> out;
    for (size_t i = 0; i < list->size(); ++i) {
      if (!list->at(i).is_object()) {
        findings_.push_back({Where(key, i), list->at(i).Shown(), "", "it should be an object"});
        return std::nullopt;
      }
      Reader entry(list->at(i), Where(key, i), strict_, findings_);
      out.push_back(read(entry));
      entry.Rest();
    }
    return out;
  }

 private:
  const json::Value object_;
  const std::string where_;
  const bool strict_;
  std::vector<Finding>& findings_;
  std::set<std::string, std::less<>> known_;
};

}  // namespace reshard::plan_text

#endif  // RESHARD_CHECK_PLAN_TEXT_READER_H_
