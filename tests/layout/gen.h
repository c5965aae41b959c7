// Random meshes and layouts for property tests. Every choice is drawn from RapidCheck, so that counter-examples shrink.
#ifndef RESHARD_TESTS_LAYOUT_GEN_H_
#define RESHARD_TESTS_LAYOUT_GEN_H_

#include <cstdint>
#include <string>
#include <vector>

#include "reshard/layout/layout.h"
#include "reshard/layout/mesh.h"
#include "tests/layouts.h"

namespace reshard::testing {

// Only inside a property.
int64_t Draw(int64_t low, int64_t high);  // low..high, both included

struct MeshGen {
  int max_axes = 3;
  std::vector<int64_t> sizes = {1, 2, 3, 4, 6};
  bool other_ids = true;  // also a first device, and explicit ids
};
Mesh AnyMesh(const MeshGen& gen = {});

struct LayoutGen {
  int max_rank = 3;
  int64_t max_size = 40;
  bool even = false;  // sizes that every cut divides
  bool sub_axes = true;
  bool digits = true;
  bool reflected = true;
  bool sizes = true;
  bool partial = true;
};
// Never fails: what would break a rule is left out.
Layout AnyLayout(const Mesh& mesh, const LayoutGen& gen = {});

// A std::string of a Status' message.
std::string Message(const absl::Status& status);
// Without the text that it is about.
std::string FirstLine(const absl::Status& status);

// The meaning of a layout, word for word from layout.h, one index at a time: whether the device at `position` holds
// `index` along dimension d. Shares no code with the library.
bool HoldsByDefinition(const Layout& layout, int64_t position, int d, int64_t index);

}  // namespace reshard::testing

#endif  // RESHARD_TESTS_LAYOUT_GEN_H_
