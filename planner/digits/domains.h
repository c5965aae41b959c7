// Which parts of a mesh's axes stay within the domains of a topology.
//
// If the domains are sub-meshes, every axis is cut into parts, major first, such that two devices that differ in only
// one part meet at the level of that part. {dp:4,tp:16} over nodes of 8 devices has dp at level 1 and tp cut in two:
// tp:(1)2 at level 1 and tp:(2)8 at level 0.
#ifndef RESHARD_PLANNER_DIGITS_DOMAINS_H_
#define RESHARD_PLANNER_DIGITS_DOMAINS_H_

#include <cstdint>
#include <optional>
#include <vector>

#include "reshard/layout/layout.h"
#include "reshard/planner/topology.h"

namespace reshard::digits {

struct LevelPart {
  AxisRef ref;
  int level = 0;
};

// One list of parts per axis; nullopt if some level's domains are not sub-meshes of one shape (a node that is only
// partly in the mesh, axes that are not a multiple of a domain). On a topology of one level axes stay whole.
using MeshLevels = std::vector<std::vector<LevelPart>>;
std::optional<MeshLevels> LevelsOf(const Mesh& mesh, const Topology& topology);

// Per axis, how many domains of `level` it leads through: the size of its leading part that lies outside of them.
std::vector<int64_t> OuterSizes(const MeshLevels& levels, int level);

// A part of an axis, split where it enters the domains: the leading part of the axis of size `outer` lies outside them.
struct ApartRef {
  std::optional<AxisRef> outside;
  int64_t inside = 1;  // coordinates that are left within a domain
};
// nullopt where the border is not between two digits of it.
std::optional<ApartRef> Apart(const AxisRef& ref, int64_t outer);

// What the domains of `level` hold as a whole: the same layout over the mesh of domains, whose device ids are the
// numbers of the domains. Parts of axes inside the domains become block factors, which keep every block; a reduction
// over axes inside a domain is taken as done. nullopt if the mesh has no levels, or if a factor with explicit sizes or
// a reflected axis would have to be cut.
std::optional<Layout> DomainLayout(const Layout& layout, const Topology& topology, int level);

}  // namespace reshard::digits

#endif  // RESHARD_PLANNER_DIGITS_DOMAINS_H_
