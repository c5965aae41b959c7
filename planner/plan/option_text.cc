#include "reshard/planner/option_text.h"

#include <algorithm>
#include <cmath>
#include <numeric>

#include "absl/strings/ascii.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"

namespace reshard {

absl::StatusOr<int64_t> ParseBytes(std::string_view text) {
  static constexpr struct {
    std::string_view suffix;
    double factor;
  } kUnits[] = {{"tib", 1099511627776.0},
                {"gib", 1073741824.0},
                {"mib", 1048576.0},
                {"kib", 1024.0},
                {"tb", 1e12},
                {"gb", 1e9},
                {"mb", 1e6},
                {"kb", 1e3},
                {"b", 1.0},
                {"ti", 1099511627776.0},
                {"gi", 1073741824.0},
                {"mi", 1048576.0},
                {"ki", 1024.0},
                {"t", 1099511627776.0},
                {"g", 1073741824.0},
                {"m", 1048576.0},
                {"k", 1024.0}};
  const std::string lower = absl::AsciiStrToLower(std::string(text));
  std::string number = lower;
  double factor = 1;
  for (const auto& unit : kUnits) {
    if (lower.size() > unit.suffix.size() && lower.ends_with(unit.suffix)) {
      number = lower.substr(0, lower.size() - unit.suffix.size());
      factor = unit.factor;
      break;
    }
  }
  absl::StripAsciiWhitespace(&number);
  int64_t whole = 0;
  double value = 0;
  const bool digits_only = !number.empty() && std::all_of(number.begin(), number.end(), absl::ascii_isdigit);
  const bool plain = !number.empty() && std::all_of(number.begin(), number.end(),
                                                    [](char c) { return absl::ascii_isdigit(c) || c == '.'; });
  if (digits_only && factor == 1 && absl::SimpleAtoi(number, &whole)) return whole;
  if (!plain || !absl::SimpleAtod(number, &value) || !(value * factor < 9.2e18)) {
    return absl::InvalidArgumentError(
        absl::StrCat("\"", Clipped(text), "\" is not a size; write bytes or a unit, like 512, 64KiB, 2GiB"));
  }
  return std::llround(std::floor(value * factor));
}

absl::Status ParseOps(std::string_view text, PlanOptions& options) {
  if (text == "all") return absl::OkStatus();
  if (text == "boxes") {
    options.boxes_only = true;
    return absl::OkStatus();
  }
  options.ops = OpSet::None();
  std::vector<std::string> names;
  for (int i = 0; i < kNumOps; ++i) names.emplace_back(Name(static_cast<Op>(i)));
  const std::string copy(text);
  for (absl::string_view part : absl::StrSplit(copy, ',')) {
    part = absl::StripAsciiWhitespace(part);
    const auto op = ParseOp(std::string_view(part.data(), part.size()));
    if (!op) {
      std::string all;
      for (const std::string& name : names) absl::StrAppend(&all, all.empty() ? "" : ", ", name);
      const auto near = Nearest(std::string_view(part.data(), part.size()), names);
      return absl::InvalidArgumentError(absl::StrCat(
          "\"", Clipped(std::string_view(part.data(), part.size())), "\" is not an operation",
          near ? absl::StrCat("; did you mean ", *near, "?") : "", " (all, boxes, or a list of ", all, ")"));
    }
    options.ops = options.ops.with(*op);
  }
  return absl::OkStatus();
}

std::string Clipped(std::string_view word) {
  constexpr size_t kMost = 60;
  return word.size() <= kMost ? std::string(word) : absl::StrCat(std::string(word.substr(0, kMost)), "...");
}

std::optional<std::string> Nearest(std::string_view word, const std::vector<std::string>& candidates) {
  if (word.size() > 64) return std::nullopt;
  auto distance = [](std::string_view a, std::string_view b) {
    std::vector<size_t> row(b.size() + 1);
    std::iota(row.begin(), row.end(), size_t{0});
    for (size_t i = 1; i <= a.size(); ++i) {
      size_t diagonal = row[0];
      row[0] = i;
      for (size_t j = 1; j <= b.size(); ++j) {
        const size_t up = row[j];
        const bool same = absl::ascii_tolower(a[i - 1]) == absl::ascii_tolower(b[j - 1]);
        row[j] = std::min({row[j] + 1, row[j - 1] + 1, diagonal + (same ? 0 : 1)});
        diagonal = up;
      }
    }
    return row[b.size()];
  };
  std::optional<std::string> best;
  size_t least = word.size() / 2 + 1;
  for (const std::string& candidate : candidates) {
    const size_t d = distance(word, candidate);
    if (d < least) {
      least = d;
      best = candidate;
    }
  }
  return best;
}

}  // namespace reshard
