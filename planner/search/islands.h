// Which parts of a mesh's axes stay within the islands of a topology.
//
// Where the islands are sub-meshes, every axis is cut into parts, major first, such that two devices that differ in one
// part only meet at the level of that part. {dp:4,tp:16} over nodes of 8 devices has dp at level 1 and tp cut in two:
// tp:(1)2 at level 1, tp:(2)8 at level 0.
#ifndef RESHARD_PLANNER_SEARCH_ISLANDS_H_
#define RESHARD_PLANNER_SEARCH_ISLANDS_H_

#include <cstdint>
#include <optional>
#include <vector>

#include "reshard/layout/layout.h"
#include "reshard/planner/topology.h"

namespace reshard::search {

struct LevelPart {
  AxisRef ref;
  int level = 0;
};

// One list of parts an axis. Nothing when some level's islands are not sub-meshes of one shape (a node that is half in
// the mesh, axes that are no multiple of an island). A topology of one level has whole axes.
using MeshLevels = std::vector<std::vector<LevelPart>>;
std::optional<MeshLevels> LevelsOf(const Mesh& mesh, const Topology& topology);

// What the islands of `level` hold together: the same layout over the mesh of islands, whose device ids are the
// islands' numbers. Parts of axes inside the islands become integer digits, which keep every block; a reduction that is
// pending inside an island is taken as done. Nothing when the mesh has no levels or a factor with explicit sizes or a
// reflected axis would have to be cut.
std::optional<Layout> IslandLayout(const Layout& layout, const Topology& topology, int level);

}  // namespace reshard::search

#endif  // RESHARD_PLANNER_SEARCH_ISLANDS_H_
