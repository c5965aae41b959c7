#include "checkpoint/catalog/parts.h"

#include <algorithm>
#include <cstddef>
#include <map>
#include <set>
#include <vector>

#include "absl/strings/ascii.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "checkpoint/io/show.h"
#include "status/view.h"

namespace reshard::catalog {
namespace {

constexpr size_t kMostDigits = 7;
constexpr std::string_view kOf = "-of-";
constexpr std::string_view kShard = "shard-";

bool IsDigit(char c) { return absl::ascii_isdigit(static_cast<unsigned char>(c)); }

// The number of the digits from `at` on, and where they end; nothing where there are none, or too many.
std::optional<std::pair<int64_t, size_t>> NumberAt(std::string_view name, size_t at) {
  size_t end = at;
  while (end < name.size() && IsDigit(name[end])) ++end;
  int64_t number = 0;
  if (end == at || end - at > kMostDigits || !absl::SimpleAtoi(status::View(name.substr(at, end - at)), &number)) {
    return std::nullopt;
  }
  return std::pair(number, end);
}

// "model-00002-of-00009.safetensors"
std::optional<PartName> ParseCounted(std::string_view name) {
  const size_t of = name.rfind(kOf);
  if (of == std::string_view::npos) return std::nullopt;
  size_t begin = of;
  while (begin > 0 && IsDigit(name[begin - 1])) --begin;
  const auto number = NumberAt(name, begin);
  const auto count = NumberAt(name, of + kOf.size());
  if (!number || !count || number->second != of || begin == 0 || name[begin - 1] != '-' || count->first < 1 ||
      number->first > count->first) {
    return std::nullopt;
  }
  PartName part;
  std::string_view before = name.substr(0, begin);
  if (before.starts_with(kShard)) {
    const auto shard = NumberAt(name, kShard.size());
    if (shard && shard->first > 0 && name.substr(shard->second).starts_with('-')) {
      part.shard = shard->first;
      before = before.substr(shard->second + 1);
    }
  }
  part.series =
      absl::StrCat(part.shard > 0 ? "shard-?-" : "", status::View(before), "?", status::View(name.substr(of)));
  part.number = number->first;
  part.count = count->first;
  return part;
}

// "consolidated.01.pth", "model.rank_1.pt", "rank0.pt"
std::optional<PartName> ParseRank(std::string_view name) {
  constexpr std::string_view kConsolidated = "consolidated.";
  size_t at = std::string_view::npos;
  if (name.starts_with(kConsolidated) && name.ends_with(".pth")) {
    at = kConsolidated.size();
  } else if (const size_t rank = name.rfind("rank"); rank != std::string_view::npos) {
    // A word of its own.
    if (rank == 0 || !absl::ascii_isalpha(static_cast<unsigned char>(name[rank - 1]))) {
      at = rank + 4;
      if (at < name.size() && (name[at] == '_' || name[at] == '-' || name[at] == '.')) ++at;
    }
  }
  if (at == std::string_view::npos) return std::nullopt;
  const auto number = NumberAt(name, at);
  if (!number) return std::nullopt;
  return PartName{absl::StrCat(status::View(name.substr(0, at)), "?", status::View(name.substr(number->second))),
                  number->first};
}

// The name of a part, as the series has it.
std::string NameOf(std::string_view series, int64_t number) {
  const size_t at = series.rfind('?');
  return absl::StrCat(status::View(series.substr(0, at)), absl::Dec(number, absl::kZeroPad5),
                      status::View(series.substr(at + 1)));
}

}  // namespace

std::optional<PartName> ParsePartName(std::string_view name) {
  std::optional<PartName> part = ParseCounted(name);
  return part ? part : ParseRank(name);
}

std::string MissingParts(absl::Span<const std::string> names) {
  struct Series {
    int64_t count = 0;
    std::set<int64_t> numbers, shards;
  };
  std::map<std::string, Series> all;
  for (const std::string& name : names) {
    const std::optional<PartName> part = ParseCounted(name.substr(name.rfind('/') + 1));
    if (!part) continue;
    Series& series = all[part->series];
    series.count = part->count;
    series.numbers.insert(part->number);
    if (part->shard > 0) series.shards.insert(part->shard);
  }
  constexpr size_t kShown = 5;
  for (const auto& [name, series] : all) {
    // Numbered from 1, or from 0.
    const int64_t first = series.numbers.contains(0) ? 0 : 1;
    std::vector<std::string> missing;
    size_t count = 0;
    for (int64_t number = first; number < first + series.count; ++number) {
      if (series.numbers.contains(number)) continue;
      if (++count <= kShown) missing.push_back(NameOf(name, number));
    }
    if (count > 0) {
      return absl::StrCat(series.count - static_cast<int64_t>(count), " of ", series.count,
                          " parts are here; missing: ", absl::StrJoin(missing, ", "),
                          count > kShown ? absl::StrCat(" and ", count - kShown, " more") : "");
    }
    if (series.shards.empty()) continue;
    for (int64_t shard = 1; shard < *series.shards.rbegin(); ++shard) {
      if (series.shards.contains(shard)) continue;
      return absl::StrCat("of ", *series.shards.rbegin(), " shards at least, shard ", shard, " is missing");
    }
  }
  return "";
}

std::string OtherParts(std::string_view name, absl::Span<const std::string> names) {
  const std::optional<PartName> part = ParsePartName(name);
  if (!part) return "";
  std::set<std::pair<int64_t, std::string>> others;
  for (const std::string& other : names) {
    const std::optional<PartName> its = ParsePartName(other);
    if (its && its->series == part->series) others.emplace(its->number, other);
  }
  others.emplace(part->number, name);
  const bool is_all = others.size() == 1 && part->count < 2;
  if (is_all) return "";
  return absl::StrCat(
      io::Shown(name), " is one of ", std::max<int64_t>(part->count, static_cast<int64_t>(others.size())), " parts",
      others.size() > 1
          ? absl::StrCat(", ", io::Shown(others.begin()->second), " to ", io::Shown(others.rbegin()->second))
          : "");
}

}  // namespace reshard::catalog
