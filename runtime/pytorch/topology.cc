#include "reshard/torch/topology.h"

#include <algorithm>
#include <cstdlib>
#include <fstream>
#include <sstream>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "status/macros.h"
#include "status/mutex.h"

namespace reshard {
namespace {

struct Configured {
  status::Mutex mutex;
  int64_t version ABSL_GUARDED_BY(mutex) = 1;
  std::optional<Topology> topology ABSL_GUARDED_BY(mutex);
};

Configured& TheConfigured() {
  // Never destroyed: threads of the process may still be in a call when statics go.
  static Configured* const configured = new Configured;
  return *configured;
}

absl::StatusOr<std::optional<Topology>> ReadEnvironment() {
  const char* const name = std::getenv("RESHARD_TOPOLOGY");
  if (name == nullptr || *name == '\0') return std::nullopt;
  const std::string text = name;
  absl::StatusOr<Topology> preset = Topology::Preset(text);
  if (preset.ok()) return *std::move(preset);
  std::ifstream file(text, std::ios::binary);
  if (!file) {
    return absl::NotFoundError(
        absl::StrCat("RESHARD_TOPOLOGY: ", std::string(preset.status().message()), ", and no such file"));
  }
  std::ostringstream content;
  content << file.rdbuf();
  const absl::StatusOr<Topology> parsed = Topology::FromJson(content.str(), text);
  if (!parsed.ok()) {
    return absl::InvalidArgumentError(absl::StrCat("RESHARD_TOPOLOGY: ", std::string(parsed.status().message())));
  }
  return *parsed;
}

// How many of the group's devices a domain has; the last domain may have fewer. Nullopt if they are not one run of that
// length per domain.
std::optional<int64_t> RunLength(absl::Span<const int64_t> ranks, int64_t devices) {
  std::vector<int64_t> seen, lengths;
  for (const int64_t rank : ranks) {
    const int64_t domain = rank / devices;
    if (!seen.empty() && seen.back() == domain) {
      ++lengths.back();
      continue;
    }
    if (std::find(seen.begin(), seen.end(), domain) != seen.end()) return std::nullopt;
    seen.push_back(domain);
    lengths.push_back(1);
  }
  if (lengths.empty()) return std::nullopt;
  for (size_t i = 0; i + 1 < lengths.size(); ++i) {
    if (lengths[i] != lengths[0]) return std::nullopt;
  }
  return lengths.back() <= lengths[0] ? std::optional<int64_t>(lengths[0]) : std::nullopt;
}

int64_t LargestDivisor(int64_t of, int64_t at_most) {
  int64_t divisor = std::max<int64_t>(1, std::min(of, at_most));
  while (of % divisor != 0) --divisor;
  return divisor;
}

}  // namespace

void SetTopology(std::optional<Topology> topology) {
  Configured& configured = TheConfigured();
  const status::MutexLock lock(configured.mutex);
  configured.topology = std::move(topology);
  ++configured.version;
}

int64_t TopologyVersion() {
  Configured& configured = TheConfigured();
  const status::MutexLock lock(configured.mutex);
  return configured.version;
}

absl::StatusOr<std::optional<Topology>> ConfiguredTopology() {
  {
    Configured& configured = TheConfigured();
    const status::MutexLock lock(configured.mutex);
    if (configured.topology) return configured.topology;
  }
  // A job's environment does not change: it is read once, even if that is an error.
  static const auto* const environment = new absl::StatusOr<std::optional<Topology>>(ReadEnvironment());
  return *environment;
}

Topology OnRanks(const Topology& topology, absl::Span<const int64_t> global_ranks) {
  bool same = true;
  for (size_t i = 0; i < global_ranks.size(); ++i) same &= global_ranks[i] == static_cast<int64_t>(i);
  if (same) return topology;
  Topology out{topology.name, {}};
  for (size_t i = 0; i < topology.levels.size(); ++i) {
    Topology::Level level = topology.levels[i];
    const int64_t inside = out.levels.empty() ? 1 : out.levels.back().devices;
    if (i + 1 < topology.levels.size()) {
      const std::optional<int64_t> run = RunLength(global_ranks, level.devices);
      if (!run) continue;
      const bool one_domain = *run == static_cast<int64_t>(global_ranks.size());
      level.devices = one_domain ? (*run + inside - 1) / inside * inside : *run;
      if (level.devices % inside != 0) continue;
    }
    if (level.nics != 0) {
      level.nics = LargestDivisor(inside, level.nics);
      if (level.nics == inside) level.nics = 0;
    }
    out.levels.push_back(level);
  }
  return out;
}

}  // namespace reshard
