// Every way to shard a tensor over axes of a mesh by contiguous boxes: the layouts of the sweeps over all pairs.
#ifndef RESHARD_TESTS_BENCH_BOX_LAYOUTS_H_
#define RESHARD_TESTS_BENCH_BOX_LAYOUTS_H_

#include <vector>

#include "reshard/layout/layout.h"

namespace reshard::bench {

struct BoxLayout {
  Layout layout;
  // The axes of every dimension stand in mesh order, which is all that DTensor's placements can say by themselves.
  bool default_order = true;
};

// Some of the axes, in any order, into the dimensions of a tensor of `rank` dimensions, each as long as the mesh is
// large so that everything divides. 2^3 devices and rank 3: 106 layouts.
std::vector<BoxLayout> BoxLayouts(const Mesh& mesh, int rank);

}  // namespace reshard::bench

#endif  // RESHARD_TESTS_BENCH_BOX_LAYOUTS_H_
