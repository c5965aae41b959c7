#include <algorithm>
#include <map>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "planner/report/levels.h"
#include "reshard/planner/report.h"

namespace reshard {

std::string report::LevelName(const Topology& topology, size_t level) {
  if (level == 0) return absl::StrCat("within domains of ", topology.levels[0].devices);
  const int64_t inside = topology.levels[level - 1].devices, outside = topology.levels[level].devices;
  if (outside == 0) return absl::StrCat("between domains of ", inside);
  return absl::StrCat("between domains of ", inside, " within those of ", outside);
}

namespace {

// How many domains of `devices` ids each have how many devices of the mesh: "2 of 8", "1 of 8 and 1 of 7".
std::string SizesOfDomains(const Mesh& mesh, int64_t devices) {
  std::map<int64_t, int64_t> in_domain;
  for (int64_t position = 0; position < mesh.size(); ++position) ++in_domain[mesh.Device(position) / devices];
  std::map<int64_t, int64_t, std::greater<>> domains_with;
  for (const auto& [domain, count] : in_domain) ++domains_with[count];
  constexpr size_t kShown = 3;
  std::vector<std::string> parts;
  for (const auto& [count, domains] : domains_with) {
    if (parts.size() == kShown) {
      parts.emplace_back("smaller ones");
      break;
    }
    parts.push_back(absl::StrCat(domains, " of ", count));
  }
  return absl::StrJoin(parts, " and ");
}

bool StaysInside(const Mesh& mesh, int axis, int64_t devices) {
  for (int64_t position = 0; position < mesh.size(); ++position) {
    const int64_t first = position - mesh.Coordinate(position, axis) * mesh.stride(axis);
    if (mesh.Device(position) / devices != mesh.Device(first) / devices) return false;
  }
  return true;
}

}  // namespace

std::string DescribeDomains(const Topology& topology, const Mesh& mesh) {
  std::string out;
  for (const Topology::Level& level : topology.levels) {
    if (level.devices < 1) break;  // the outermost: everything is inside
    std::vector<std::string> inside, across;
    for (int axis = 0; axis < mesh.num_axes(); ++axis) {
      if (mesh.axis(axis).size == 1) continue;
      (StaysInside(mesh, axis, level.devices) ? inside : across).push_back(mesh.axis(axis).name);
    }
    absl::StrAppend(&out, "domains of ", level.devices, " (", topology.name, "): ", mesh.size(),
                    mesh.size() == 1 ? " device" : " devices", " = ", SizesOfDomains(mesh, level.devices));
    const auto says = [&](const std::vector<std::string>& axes, const char* one, const char* many) {
      if (!axes.empty()) absl::StrAppend(&out, "; ", absl::StrJoin(axes, ", "), axes.size() == 1 ? one : many);
    };
    says(inside, " stays inside", " stay inside");
    says(across, " crosses them", " cross them");
    out += "\n";
  }
  return out;
}

std::string DescribeDomains(const Plan& plan) {
  const Mesh &from = plan.source.mesh(), &to = plan.target.mesh();
  const Topology& topology = plan.options.topology;
  return DescribeDomains(topology, from) + (from == to ? "" : DescribeDomains(topology, to));
}

}  // namespace reshard
