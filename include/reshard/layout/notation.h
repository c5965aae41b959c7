// Sharding notations of other frameworks. They are imported and exported exactly, or refused with the reason; nothing
// is guessed.
//
//   DTensor     S(0)[1]S(0)[0]R
//                 one placement per mesh dimension; [k] is the shard order: the k-th split of that tensor dimension
//                 (0 is the first, the major one). Also Shard(0), Replicate(), Partial(), Partial(avg), P, P(max),
//                 _StridedShard(dim=0, sf=2) / _S(0, 2)
//   JAX         PartitionSpec('y', None, ('x','y'))
//                 or P(...); unreduced= is read where JAX prints it
//   Shardy      #sdy.sharding<@mesh, [{"x"}, {"y":(1)2}], replicated={"w"}, unreduced={"z"}>
//                 also <["x"=2], device_ids=[..]>
//   HLO         {devices=[2,1,4]<=[4,2]T(1,0) last_tile_dim_replicate}
//                 also {replicated}, {maximal device=3}
//
// Refused: an uneven Shardy, JAX or HLO tiling over several axes of one dimension, where their cut by the ceiling of
// the product differs from the nested cut here; uneven nests of _StridedShard whose split factors do not determine the
// order of mesh axes; HLO device lists that are not a product of mesh factors; anything with an open or unknown mesh.
#ifndef RESHARD_LAYOUT_NOTATION_H_
#define RESHARD_LAYOUT_NOTATION_H_

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "absl/status/statusor.h"
#include "reshard/layout/layout.h"

namespace reshard {

// The notations above; kReshard is the text of reshard/layout/text.h.
enum class Notation { kReshard, kDTensor, kJax, kShardy, kHlo };

// "reshard", "dtensor", "jax", "shardy", "hlo".
const char* Name(Notation notation);
// The notation with that name, or nullopt if there is none.
std::optional<Notation> ParseNotation(std::string_view name);
// All names, for messages: "reshard, dtensor, jax, shardy, hlo".
std::string KnownNotations();

// The notation of another framework that a text is probably in, judged by its first characters; nullopt if none fits.
std::optional<Notation> GuessNotation(std::string_view text);

// The layout that `text` denotes over `mesh` for a tensor of this shape. For kReshard, a layout or a layout rule.
// InvalidArgument: the text is malformed or does not fit the mesh or the shape. Unimplemented: well formed, but without
// an exact equivalent in the algebra; the message says why.
absl::StatusOr<Layout> ImportLayout(Notation notation, std::string_view text, const Mesh& mesh,
                                    const std::vector<int64_t>& shape);

// The same for what people type. Without a shape, text in this library's notation must give the sizes. With kReshard,
// text that is not a layout of this library but is in another notation is recognized and read:
//   S0R, ["S(0)", "R"], PartitionSpec('x'), NamedSharding(mesh=Mesh('x': 4), spec=PartitionSpec('x'))
// InvalidArgument if that needs a shape and none is given.
absl::StatusOr<Layout> ReadLayout(std::string_view text, const Mesh& mesh, Notation notation,
                                  const std::optional<std::vector<int64_t>>& shape);
// ParseMesh, but the error suggests the text that was probably meant: DeviceMesh((dp=2, tp=4), ...) is {dp:2,tp:4}.
absl::StatusOr<Mesh> ReadMesh(std::string_view text);

// The layout in that notation. Post-condition: importing the text over the same mesh gives an equivalent layout.
// Unimplemented if the notation cannot express it exactly; the message says why.
absl::StatusOr<std::string> ExportLayout(Notation notation, const Layout& layout);

}  // namespace reshard

#endif  // RESHARD_LAYOUT_NOTATION_H_
