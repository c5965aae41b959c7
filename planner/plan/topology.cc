#include "reshard/planner/topology.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <optional>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "json/document.h"
#include "reshard/layout/mesh.h"

namespace reshard {
namespace {

constexpr int64_t kGiga = 1'000'000'000;

struct NamedPreset {
  std::string_view name;
  std::vector<Topology::Level> levels;
};

// Vendor figures per GPU and direction: NVLink 3, 4 and 5 have 300, 450 and 900 GB/s; an MI300X has seven links of 64
// GB/s, one to each other GPU of its node; one 200 or 400 Gb/s NIC per GPU; PCIe 4 x16; copies between processes on one
// host. Latencies are typical of a grouped send/receive, and not known for any one of them. docs/topologies.md has the
// sources.
const std::vector<NamedPreset>& Presets() {
  static const auto* presets = new std::vector<NamedPreset>{
      {"flat", {{0, 50 * kGiga, 5000}}},
      {"dgx-a100", {{8, 300 * kGiga, 3000}, {0, 25 * kGiga, 12000}}},
      {"dgx-h100", {{8, 450 * kGiga, 3000}, {0, 50 * kGiga, 12000}}},
      {"dgx-h200", {{8, 450 * kGiga, 3000}, {0, 50 * kGiga, 12000}}},
      {"dgx-b200", {{8, 900 * kGiga, 3000}, {0, 50 * kGiga, 12000}}},
      {"gb200", {{72, 900 * kGiga, 3000}, {0, 50 * kGiga, 12000}}},
      {"mi300x", {{8, 448 * kGiga, 3000}, {0, 50 * kGiga, 12000}}},
      {"pcie", {{8, 25 * kGiga, 8000}, {0, 12 * kGiga, 20000}}},
      {"cpu", {{0, 5 * kGiga, 20000}}},
  };
  return *presets;
}

}  // namespace

Topology Topology::Flat() { return {"flat", Presets()[0].levels}; }

absl::StatusOr<Topology> Topology::Preset(std::string_view name) {
  std::string names;
  for (const NamedPreset& preset : Presets()) {
    if (preset.name == name) return Topology{std::string(name), preset.levels};
    absl::StrAppend(&names, names.empty() ? "" : ", ", std::string(preset.name));
  }
  return absl::NotFoundError(absl::StrCat("no topology is named \"", std::string(name), "\"; there are ", names));
}

absl::StatusOr<Topology> Topology::FromJson(std::string_view text, std::string_view name) {
  auto bad = [&](std::string_view reason) {
    return absl::InvalidArgumentError(absl::StrCat("topology ", std::string(name), ": ", std::string(reason)));
  };
  // Sixteen levels take a tenth of this.
  constexpr size_t kMostBytes = 8192;
  if (text.size() > kMostBytes) return bad("more than 8192 bytes");
  const absl::StatusOr<json::Document> parsed = json::Document::Parse(text);
  if (!parsed.ok()) return bad(std::string(parsed.status().message()));
  const std::optional<json::Value> levels = parsed->root().Find("levels");
  if (!levels || !levels->is_array() || levels->size() == 0) {
    return bad("needs \"levels\", a list with at least one level");
  }
  if (levels->size() > 16) return bad("more than 16 levels");
  Topology out{std::string(name), {}};
  for (size_t i = 0; i < levels->size(); ++i) {
    const bool last = i + 1 == levels->size();
    const json::Value entry = levels->at(i);
    Level level;
    if (!entry.is_object()) return bad("a level is an object");
    for (const std::string& key : entry.Keys()) {
      if (key != "devices" && key != "gb_per_s" && key != "latency_us" && key != "nics") {
        return bad("unknown key \"" + key + "\"");
      }
    }
    const auto number = [&](const char* key) {
      const std::optional<json::Value> value = entry.Find(key);
      return value ? value->Number() : std::nullopt;
    };
    const auto given = [&](const char* key) {
      std::optional<json::Value> value = entry.Find(key);
      return value && !value->is_null() ? value : std::nullopt;
    };
    if (!number("gb_per_s")) return bad("a level needs \"gb_per_s\", a number");
    if (!number("latency_us")) return bad("a level needs \"latency_us\", a number");
    const double bandwidth = *number("gb_per_s");
    const double latency = *number("latency_us");
    if (!(bandwidth >= 1e-6 && bandwidth <= 1e6)) return bad("\"gb_per_s\" is outside 0.000001 .. 1000000");
    if (!(latency >= 0 && latency <= 1e9)) return bad("\"latency_us\" is outside 0 .. 1000000000");
    level.bytes_per_second = std::llround(bandwidth * 1e9);
    level.latency_ns = std::llround(latency * 1e3);
    if (const auto nics = given("nics")) {
      const int64_t inside = out.levels.empty() ? 1 : out.levels.back().devices;
      level.nics = nics->Count().value_or(0);
      if (level.nics < 1 || inside % level.nics != 0) {
        return bad("\"nics\" of a level is a whole number that divides the devices of a domain of the level inside it");
      }
      if (level.nics == inside) level.nics = 0;
    }
    if (const auto devices = given("devices")) {
      if (!devices->Count()) return bad("\"devices\" is a whole number");
      level.devices = *devices->Count();
      const int64_t inner = out.levels.empty() ? 1 : out.levels.back().devices;
      if (level.devices < 1 || level.devices > kMaxDeviceId || level.devices % inner != 0) {
        return bad("\"devices\" of a level is a positive multiple of the level inside it");
      }
      if (last) {
        // A last level with a size still has to reach every device.
        level.devices = 0;
      }
    } else if (!last) {
      return bad("every level but the last needs \"devices\"");
    }
    out.levels.push_back(level);
  }
  return out;
}

absl::Status Topology::SetNodes(int64_t nodes, int64_t devices) {
  if (nodes < 1 || devices < 1 || nodes > kMaxDevices / devices) {
    return absl::InvalidArgumentError(
        absl::StrCat(nodes, "x", devices, " is not a number of nodes and one of devices, like 8x8"));
  }
  if (num_levels() != 2) {
    return absl::InvalidArgumentError(absl::StrCat("the topology ", name, " has ", num_levels(),
                                                   num_levels() == 1 ? " level" : " levels",
                                                   "; one with two is needed, such as dgx-h100"));
  }
  levels[0].devices = devices;
  levels[1].nics = std::min(levels[1].nics, devices);
  return absl::OkStatus();
}

absl::Status Topology::Validate() const {
  if (levels.empty()) return absl::InvalidArgumentError("the topology has no levels");
  for (size_t i = 0; i < levels.size(); ++i) {
    const Level& level = levels[i];
    const bool last = i + 1 == levels.size();
    if (level.bytes_per_second <= 0 || level.latency_ns < 0 || (!last && level.devices < 1)) {
      return absl::InvalidArgumentError(
          absl::StrCat("level ", i, " of the topology has no positive bandwidth, a negative latency or no devices"));
    }
    if (level.nics < 0 || DevicesPerNic(static_cast<int>(i)) < 1) {
      return absl::InvalidArgumentError(
          absl::StrCat("level ", i, " of the topology has more links than devices, or a negative number of them"));
    }
  }
  return absl::OkStatus();
}

int Topology::LevelOf(int64_t device_a, int64_t device_b) const {
  for (size_t i = 0; i + 1 < levels.size(); ++i) {
    if (device_a / levels[i].devices == device_b / levels[i].devices) return static_cast<int>(i);
  }
  return static_cast<int>(levels.size()) - 1;
}

int64_t Topology::DevicesPerNic(int level) const {
  const int64_t nics = levels[level].nics;
  return nics == 0 || level == 0 ? 1 : levels[static_cast<size_t>(level) - 1].devices / nics;
}

int64_t Topology::StepTime(int level, int64_t peers_max, int64_t nic_bytes_max, int64_t rounds) const {
  const Level& link = levels[level];
  const auto transfer = [&](__int128 bytes) {
    const __int128 scaled = bytes * kGiga;
    return scaled / link.bytes_per_second + (scaled % link.bytes_per_second != 0 ? 1 : 0);
  };
  const __int128 peers = peers_max, latency = link.latency_ns;
  // The first message flows while the others are posted; the last one is posted last, and flows by itself.
  const __int128 flowing = latency * std::min<__int128>(1 + peers, 2) * rounds + transfer(nic_bytes_max);
  const __int128 each = peers == 0 ? 0 : (nic_bytes_max + peers - 1) / peers;
  const __int128 posting = latency * (1 + peers) * rounds + transfer(each);
  const __int128 most = std::numeric_limits<int64_t>::max() / 1024;  // sums of steps must not wrap either
  return static_cast<int64_t>(std::min(std::max(flowing, posting), most));
}

}  // namespace reshard
