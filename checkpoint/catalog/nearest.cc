#include "checkpoint/catalog/nearest.h"

#include <algorithm>
#include <numeric>

#include "absl/strings/ascii.h"
#include "reshard/checkpoint/pattern.h"
#include "reshard/checkpoint/wrappers.h"

namespace reshard::catalog {
namespace {

constexpr size_t kLongest = 256;
// Looking at more takes longer than anybody waits for a hint.
constexpr size_t kMostNames = 50'000;

// The least number of characters to change, add or take away until the pattern matches. In a pattern `*` and `?` are
// wildcards; otherwise they stand for themselves.
size_t CharactersBetween(std::string_view pattern, std::string_view name, bool is_pattern) {
  std::vector<size_t> row(name.size() + 1);
  std::iota(row.begin(), row.end(), size_t{0});
  for (const char c : pattern) {
    const bool any = is_pattern && c == '*';
    size_t diagonal = row[0];
    row[0] += any ? 0 : 1;
    for (size_t j = 1; j <= name.size(); ++j) {
      const size_t up = row[j];
      if (any) {
        row[j] = std::min(up, row[j - 1]);
      } else {
        const bool same = (is_pattern && c == '?') || absl::ascii_tolower(c) == absl::ascii_tolower(name[j - 1]);
        row[j] = std::min({up + 1, row[j - 1] + 1, diagonal + (same ? 0 : 1)});
      }
      diagonal = up;
    }
  }
  return row[name.size()];
}

std::vector<std::string> PartsOf(std::string_view name) {
  std::vector<std::string> parts(1);
  for (const char c : WithoutKnownParts(name)) {
    if (c == '.') {
      parts.emplace_back();
    } else {
      parts.back() += c;
    }
  }
  return parts;
}

bool IsNumber(std::string_view part) {
  return !part.empty() && std::all_of(part.begin(), part.end(), absl::ascii_isdigit);
}

constexpr double kPart = 1;   // one more, or less
constexpr double kOther = 2;  // nothing in common
// A number says which layer, or which expert: no name of another one is near.
constexpr double kNumber = 1000;

double CostOf(std::string_view part) { return IsNumber(part) ? kNumber : kPart; }

double BetweenParts(std::string_view asked, std::string_view there) {
  if (asked == there) return 0;
  if (IsNumber(asked) || IsNumber(there)) return kNumber;
  const auto changed = static_cast<double>(CharactersBetween(asked, there, false));
  return std::min(kOther, kOther * changed / static_cast<double>(std::max<size_t>(1, asked.size())));
}

double BetweenNames(const std::vector<std::string>& asked, const std::vector<std::string>& there) {
  std::vector<double> row(there.size() + 1);
  for (size_t j = 1; j < row.size(); ++j) row[j] = row[j - 1] + CostOf(there[j - 1]);
  for (const std::string& part : asked) {
    double diagonal = row[0];
    row[0] += CostOf(part);
    for (size_t j = 1; j <= there.size(); ++j) {
      const double up = row[j];
      row[j] =
          std::min({up + CostOf(part), row[j - 1] + CostOf(there[j - 1]), diagonal + BetweenParts(part, there[j - 1])});
      diagonal = up;
    }
  }
  return row.back();
}

// The first of the names with the smallest distance, if that is at most `most`.
template <typename Distance>
std::optional<std::string> Nearest(const std::vector<std::string>& names, double most, const Distance& distance) {
  const std::string* best = nullptr;
  for (size_t i = 0; i < std::min(names.size(), kMostNames); ++i) {
    if (names[i].size() > kLongest) continue;
    const double d = distance(names[i]);
    if (d > most || (best != nullptr && d == most)) continue;
    most = d;
    best = &names[i];
  }
  return best == nullptr ? std::nullopt : std::optional<std::string>(*best);
}

}  // namespace

std::optional<std::string> NearestName(std::string_view name, const std::vector<std::string>& names) {
  if (name.size() > kLongest) return std::nullopt;
  const std::vector<std::string> asked = PartsOf(name);
  const double most = (static_cast<double>(asked.size()) + 1) / 2;
  return Nearest(names, most, [&](const std::string& there) { return BetweenNames(asked, PartsOf(there)); });
}

std::optional<std::string> NearestToPattern(std::string_view pattern, const std::vector<std::string>& names) {
  if (NamesOne(pattern)) return NearestName(pattern, names);
  if (pattern.size() > kLongest) return std::nullopt;
  const auto literal = std::count_if(pattern.begin(), pattern.end(), [](char c) { return c != '*' && c != '?'; });
  return Nearest(names, static_cast<double>(literal) / 2, [&](const std::string& there) {
    return static_cast<double>(CharactersBetween(pattern, there, true));
  });
}

}  // namespace reshard::catalog
