// The text form of meshes and layouts (grammar: docs/layouts.md). Parsing and printing round-trip.
//
//   {X:4,Y:4,Z:16}@32              a mesh
//   [32<X,Y>512, 128]              a layout: local size, factors major first, global size
//   [32<X>128, 64] sum<Y>          with a pending reduction
//   [<tp>, *]                      a layout rule: sizes come from the tensor
//
// Errors are InvalidArgument with one line of reason, followed by the text and a caret under the column:
//   unknown axis "Q"; the mesh has X, Y at column 5
//     [32<Q>64]
//         ^
#ifndef RESHARD_LAYOUT_TEXT_H_
#define RESHARD_LAYOUT_TEXT_H_

#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "reshard/layout/layout.h"
#include "reshard/layout/mesh.h"

namespace reshard {

absl::StatusOr<Mesh> ParseMesh(std::string_view text);

// A layout with sizes over the given mesh. A local size that is given is checked against the largest over devices.
absl::StatusOr<Layout> ParseLayout(std::string_view text, std::shared_ptr<const Mesh> mesh);

// A layout rule: like a layout but sizes may be left out; `*` is any unsharded dimension, `...` the rest, and a bare
// `[...]` fits every rank including 0. Sizes that are given must agree with `shape`.
// InvalidArgument when the rule has another rank than the shape.
absl::StatusOr<Layout> ParseLayoutRule(std::string_view text, std::shared_ptr<const Mesh> mesh,
                                       const std::vector<int64_t>& shape);

// Canonical text. Post-conditions: ParseMesh(ToString(m)) == m; ParseLayout(ToString(l), l.mesh_ptr()) == l.
std::string ToString(const Mesh& mesh);
std::string ToString(const Layout& layout);
// `X`, or `X:(pre)size` when only a part of the axis is meant.
std::string ToString(const Mesh& mesh, const AxisRef& ref);

// An InvalidArgument status whose message shows `text` with a caret under byte `column` (0-based). Long or multi-line
// text is shortened around the column; bytes that are not printable ASCII are shown as '?'.
absl::Status ErrorAt(std::string_view text, size_t column, std::string_view reason);

}  // namespace reshard

#endif  // RESHARD_LAYOUT_TEXT_H_
