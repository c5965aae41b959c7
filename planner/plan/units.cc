#include "reshard/planner/units.h"

#include <cmath>
#include <iterator>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "status/view.h"

namespace reshard {
namespace {

// 3 significant digits, without trailing zeros after the point. A half is rounded up, as the pages' JavaScript does.
std::string Short(double value) {
  const int decimals = value >= 100 ? 0 : value >= 10 ? 1 : 2;
  const long double scale = decimals == 0 ? 1 : decimals == 1 ? 10 : 100;  // the product is exact
  const auto rounded = static_cast<double>(std::floor(value * scale + 0.5L) / scale);
  std::string out = absl::StrFormat("%.*f", decimals, rounded);
  if (out.find('.') != std::string::npos) {
    while (out.back() == '0') out.pop_back();
    if (out.back() == '.') out.pop_back();
  }
  return out;
}

}  // namespace

std::string Counted(int64_t count, std::string_view one) {
  return absl::StrCat(count, " ", status::View(one), count == 1 ? "" : "s");
}

std::string HumanBytes(int64_t bytes) {
  constexpr const char* kUnits[] = {"B", "KiB", "MiB", "GiB", "TiB", "PiB", "EiB"};
  auto value = static_cast<double>(bytes);
  size_t unit = 0;
  for (; value >= 1024 && unit + 1 < std::size(kUnits); ++unit) value /= 1024;
  return absl::StrCat(Short(value), " ", kUnits[unit]);
}

std::string ExactBytes(int64_t bytes) {
  constexpr int64_t kSmall = 1024;
  if (bytes > -kSmall && bytes < kSmall) return Counted(bytes, "byte");
  return absl::StrCat(bytes, " bytes (", HumanBytes(bytes), ")");
}

std::string HumanTime(int64_t nanoseconds) {
  if (nanoseconds < 1000) return absl::StrCat(nanoseconds, " ns");
  const auto value = static_cast<double>(nanoseconds);
  if (nanoseconds < 1'000'000) return absl::StrCat(Short(value / 1e3), " us");
  if (nanoseconds < 1'000'000'000) return absl::StrCat(Short(value / 1e6), " ms");
  return absl::StrCat(Short(value / 1e9), " s");
}

}  // namespace reshard
