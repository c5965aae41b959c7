#include "runtime/program/plan_signature.h"

#include <bit>
#include <string>
#include <string_view>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "reshard/layout/text.h"

namespace reshard {
namespace {

uint64_t Mix(uint64_t x) {
  x = (x ^ (x >> 30)) * 0xBF58476D1CE4E5B9ull;
  x = (x ^ (x >> 27)) * 0x94D049BB133111EBull;
  return x ^ (x >> 31);
}

// Not a cryptographic hash: it detects mistakes, not adversaries.
class Hash128 {
 public:
  void Add(std::string_view text) {
    for (const char c : text) {
      const uint64_t byte = static_cast<unsigned char>(c);
      high_ = (high_ ^ byte) * 0x100000001B3ull;
      low_ = (std::rotl(low_, 7) + byte) * 0xD6E8FEB86659FD93ull;
    }
    high_ = Mix(high_ ^ text.size());
  }
  Fingerprint Finish() const { return {Mix(high_), Mix(low_ + high_)}; }

 private:
  uint64_t high_ = 0xCBF29CE484222325ull;
  uint64_t low_ = 0x9E3779B97F4A7C15ull;
};

std::string StepsText(const Plan& plan) {
  std::string text;
  for (const Step& step : plan.steps) {
    const std::string_view op = Name(step.op);
    absl::StrAppend(&text, text.empty() ? "" : ", ", absl::string_view(op.data(), op.size()));
    if (step.rounds > 1) absl::StrAppend(&text, " in ", step.rounds, " rounds");
    if (step.first_holder != 0) absl::StrAppend(&text, " from holder ", step.first_holder);
    absl::StrAppend(&text, " to ", ToString(step.to));
  }
  if (plan.chunks.count > 1) {
    absl::StrAppend(&text, ", in ", plan.chunks.count, " chunks of blocks of ", plan.chunks.block, " along dimension ",
                    plan.chunks.dim);
  }
  return text.empty() ? "none" : text;
}

// Without its name: what counts is what plans are chosen by, wherever a rank got it from.
std::string TopologyText(const Topology& topology) {
  std::string text;
  for (const Topology::Level& level : topology.levels) {
    absl::StrAppend(&text, text.empty() ? "" : ", ",
                    level.devices == 0 ? "all" : absl::StrCat("domains of ", level.devices), " at ",
                    level.bytes_per_second, " B/s and ", level.latency_ns, " ns");
    if (level.nics != 0) absl::StrAppend(&text, " over ", level.nics, " links");
  }
  return text;
}

}  // namespace

Signature::Signature(std::vector<Field> named_fields) : fields(std::move(named_fields)) {
  Hash128 hash;
  for (const Field& field : fields) {
    hash.Add(field.name);
    hash.Add(field.value);
  }
  fingerprint = hash.Finish();
}

Signature program::SignatureOf(const Plan& plan) {
  return Signature({{"dtype", std::string(Name(plan.dtype))},
                    {"shape", absl::StrCat("[", absl::StrJoin(plan.source.shape(), ", "), "]")},
                    {"mesh", ToString(plan.source.mesh())},
                    {"source", ToString(plan.source)},
                    {"target mesh", ToString(plan.target.mesh())},
                    {"target", ToString(plan.target)},
                    {"topology", TopologyText(plan.options.topology)},
                    {"steps", StepsText(plan)}});
}

}  // namespace reshard
