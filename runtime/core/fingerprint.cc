#include "runtime/core/fingerprint.h"

#include <bit>
#include <string>

#include "absl/strings/str_cat.h"
#include "reshard/layout/text.h"

namespace reshard {
namespace {

uint64_t Mix(uint64_t x) {
  x = (x ^ (x >> 30)) * 0xBF58476D1CE4E5B9ull;
  x = (x ^ (x >> 27)) * 0x94D049BB133111EBull;
  return x ^ (x >> 31);
}

}  // namespace

Fingerprint HashText(std::string_view text) {
  uint64_t high = 0xCBF29CE484222325ull;
  uint64_t low = 0x9E3779B97F4A7C15ull;
  for (const char c : text) {
    const uint64_t byte = static_cast<unsigned char>(c);
    high = (high ^ byte) * 0x100000001B3ull;
    low = (std::rotl(low, 7) + byte) * 0xD6E8FEB86659FD93ull;
  }
  return {Mix(high ^ text.size()), Mix(low + high)};
}

Fingerprint FingerprintOf(const Plan& plan) {
  const std::string_view dtype = Name(plan.dtype);
  std::string text = "reshard.program/1\n";
  absl::StrAppend(&text, absl::string_view(dtype.data(), dtype.size()), "\n");
  const auto add = [&text](const Layout& layout) {
    absl::StrAppend(&text, ToString(layout.mesh()), " ", ToString(layout), "\n");
  };
  add(plan.source);
  add(plan.target);
  for (const Step& step : plan.steps) {
    const std::string_view op = Name(step.op);
    absl::StrAppend(&text, absl::string_view(op.data(), op.size()), " ", step.rounds, "\n");
    add(step.to);
  }
  return HashText(text);
}

}  // namespace reshard
