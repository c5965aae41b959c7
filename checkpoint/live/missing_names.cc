#include "checkpoint/live/missing_names.h"

#include <algorithm>
#include <cassert>
#include <optional>
#include <set>
#include <string_view>

#include "absl/container/flat_hash_set.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "checkpoint/catalog/nearest.h"
#include "checkpoint/io/show.h"

namespace reshard::live {
namespace {

constexpr size_t kShown = 10;
constexpr size_t kWithNearest = 3;
constexpr size_t kExamples = 3;

struct Prefix {
  std::string text;
  bool there_have_it = false;  // and the missing names lack it
};

// The shortest prefix, ending in a dot, that all missing names lack, or that all have and should not.
std::optional<Prefix> CommonPrefix(const std::vector<std::string>& missing, const std::vector<std::string>& there) {
  const absl::flat_hash_set<std::string_view> known(there.begin(), there.end());
  std::set<std::string> lacking, added;
  const std::string_view first = missing.front();
  for (const std::string& name : there) {
    if (name.size() > first.size() && name[name.size() - first.size() - 1] == '.' && name.ends_with(first)) {
      lacking.insert(name.substr(0, name.size() - first.size()));
    }
  }
  for (size_t dot = first.find('.'); dot != std::string_view::npos; dot = first.find('.', dot + 1)) {
    if (known.contains(first.substr(dot + 1))) added.emplace(first.substr(0, dot + 1));
  }
  const auto all = [&](const auto& is_there) { return std::all_of(missing.begin(), missing.end(), is_there); };
  for (const std::string& prefix : lacking) {
    if (all([&](const std::string& name) { return known.contains(absl::StrCat(prefix, name)); })) {
      return Prefix{prefix, true};
    }
  }
  for (const std::string& prefix : added) {
    if (all([&](const std::string& name) {
          return name.starts_with(prefix) && known.contains(std::string_view(name).substr(prefix.size()));
        })) {
      return Prefix{prefix, false};
    }
  }
  return std::nullopt;
}

// Some of the names that are there, for whoever looked in the wrong place.
std::string Examples(const std::vector<std::string>& there) {
  std::string text = there.empty() ? "" : there.size() == 1 ? "; there is " : "; there are ";
  for (size_t i = 0; i < std::min(there.size(), kExamples); ++i) {
    absl::StrAppend(&text, i == 0 ? "" : ", ", io::Shown(there[i]));
  }
  if (there.size() > kExamples) absl::StrAppend(&text, ", and ", there.size() - kExamples, " more");
  return text;
}

}  // namespace

std::string MissingNames(const std::vector<std::string>& missing, const std::vector<std::string>& there,
                         const std::string& where) {
  assert(!missing.empty());
  std::string text = missing.size() == 1 ? absl::StrCat(io::Shown(missing[0]), " is not in ", where)
                                         : absl::StrCat(missing.size(), " names are not in ", where, ": ");
  const std::optional<Prefix> prefix = CommonPrefix(missing, there);
  bool any_near = false;
  for (size_t i = 0; i < std::min(missing.size(), kShown); ++i) {
    if (missing.size() > 1) absl::StrAppend(&text, i == 0 ? "" : ", ", io::Shown(missing[i]));
    if (prefix || i >= kWithNearest) continue;
    const std::optional<std::string> near = catalog::NearestName(missing[i], there);
    if (near) absl::StrAppend(&text, " (did you mean ", io::Shown(*near), "?)");
    any_near |= near.has_value();
  }
  if (missing.size() > kShown) absl::StrAppend(&text, ", and ", missing.size() - kShown, " more");
  if (!prefix) return any_near ? text : absl::StrCat(text, Examples(there));
  const char* const all = missing.size() == 1 ? "it is" : "all are";
  return absl::StrCat(text, "; ", all, " there ", prefix->there_have_it ? "with" : "without", " the prefix ",
                      io::Shown(prefix->text));
}

}  // namespace reshard::live
