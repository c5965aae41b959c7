// Any bytes as a mesh, a line break and a layout.
#include <algorithm>
#include <memory>
#include <string>

#include "reshard/layout/text.h"
#include "tests/fuzz/fuzz.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using namespace reshard;
  const std::string_view text = testing::Text(data, size);
  const size_t line = std::min(text.find('\n'), text.size());
  const absl::StatusOr<Mesh> parsed = ParseMesh(text.substr(0, line));
  if (!parsed.ok()) return 0;
  const Mesh mesh = *parsed;
  const std::string mesh_text = ToString(mesh);
  const absl::StatusOr<Mesh> mesh_again = ParseMesh(mesh_text);
  testing::Promised(mesh_again.ok() && ToString(*mesh_again) == mesh_text, "a mesh is what it is written as");
  const std::string_view rest = line < text.size() ? text.substr(line + 1) : std::string_view();
  (void)ParseLayoutRule(rest, mesh, {6, 4}).ok();
  const absl::StatusOr<Layout> layout = ParseLayout(rest, mesh);
  if (!layout.ok()) return 0;
  const std::string layout_text = ToString(*layout);
  const absl::StatusOr<Layout> again = ParseLayout(layout_text, mesh);
  testing::Promised(again.ok() && ToString(*again) == layout_text, "a layout is what it is written as");
  return 0;
}
