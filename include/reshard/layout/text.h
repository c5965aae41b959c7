// The text form of meshes and layouts (grammar: docs/layouts.md). Parsing and printing round-trip.
//
//   {X:4,Y:4,Z:16}@32              a mesh
//   [32<X,Y>512, 128]              a layout: local size, factors major first, global size
//   [32<X>128, 64] sum<Y>          partial over Y: the devices along it hold the terms of a sum
//   [<tp>, *]                      a layout rule: the sizes come from the tensor
//
// Errors are InvalidArgument: one line with the reason and the column (from 1), then the text with a caret under it:
//   unknown axis "Q" at column 5; the mesh has X, Y
//     [32<Q>64]
//         ^
#ifndef RESHARD_LAYOUT_TEXT_H_
#define RESHARD_LAYOUT_TEXT_H_

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "reshard/layout/layout.h"
#include "reshard/layout/mesh.h"

namespace reshard {

// A mesh, like `{X:4,Y:2}` or `{X:2}@[7,3]`. Refuses what Mesh::Create refuses.
absl::StatusOr<Mesh> ParseMesh(std::string_view text);

// A layout with sizes over the given mesh. A local size, where the text has one, is checked against the largest local
// size over all devices.
absl::StatusOr<Layout> ParseLayout(std::string_view text, const Mesh& mesh);
// The same with the mesh as text, too.
absl::StatusOr<Layout> ParseLayout(std::string_view text, std::string_view mesh);

// A layout rule: like a layout, but sizes may be left out; `*` is any one unsharded dimension, `...` all remaining
// ones, and a bare `[...]` fits every rank, 0 included. Sizes that are present must agree with `shape`.
// InvalidArgument also if the rule and the shape differ in rank.
absl::StatusOr<Layout> ParseLayoutRule(std::string_view text, const Mesh& mesh, const std::vector<int64_t>& shape);

// Checks that the text is a layout rule for some shape, as far as the text alone can tell. InvalidArgument: it is
// malformed or names an axis that the mesh does not have.
absl::Status CheckLayoutRule(std::string_view text, const Mesh& mesh);

// ParseLayoutRule for a rule that is meant for tensors of any rank. If the tensor has fewer dimensions than the rule,
// the rule drops its last dimensions, or its first ones if it begins with `...`, but none that gives a size; the
// dimensions that remain are cut. So `[<tp>, ...]` leaves a 0-d tensor whole.
absl::StatusOr<Layout> ParseLayoutRuleForAnyRank(std::string_view text, const Mesh& mesh,
                                                 const std::vector<int64_t>& shape);

// Canonical text. Post-conditions: ParseMesh(ToString(m)) == m; ParseLayout(ToString(l), l.mesh()) == l.
std::string ToString(const Mesh& mesh);
// A dimension that is cut starts with its local size, the largest over all devices.
std::string ToString(const Layout& layout);
// `X`, or `X:(pre)size` if the reference is to a part of the axis.
std::string ToString(const Mesh& mesh, const AxisRef& ref);

// An InvalidArgument status in the form above, with the caret under byte `column` of `text`, counted from 0; `advice`,
// if any, follows the column. Text that is long or has several lines is shortened around the column; bytes that are not
// printable ASCII are shown as '?'.
absl::Status ErrorAt(std::string_view text, size_t column, std::string_view reason, std::string_view advice = "");

// Whether a layout was refused because it names an axis that its mesh does not have.
bool NamesUnknownAxis(const absl::Status& status);

}  // namespace reshard

#endif  // RESHARD_LAYOUT_TEXT_H_
