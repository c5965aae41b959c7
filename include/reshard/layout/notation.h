// Other notations for the same thing, imported and exported exactly, or refused with the reason; never guessed.
//
//   DTensor     S(0)[1]S(0)[0]R      one placement a mesh dimension; [k] is the shard order: the k-th split of that
//                                    tensor dimension (0 is the first, the major one). Also Shard(0), Replicate(),
//                                    Partial(), Partial(avg), P, P(max), _StridedShard(dim=0, sf=2) / _S(0, 2).
//   JAX         PartitionSpec('y', None, ('x','y'))   or P(...); unreduced= is read where JAX prints it
//   Shardy      #sdy.sharding<@mesh, [{"x"}, {"y":(1)2}], replicated={"w"}, unreduced={"z"}>  (also <["x"=2],
//   device_ids=[..]>) HLO         {devices=[2,1,4]<=[4,2]T(1,0) last_tile_dim_replicate}, {replicated}, {maximal
//   device=3}
//
// Refused, with the reason: an uneven Shardy or JAX or HLO tiling over several axes of one dimension where their
// ceil-of-the-product cut and our nested cut differ; an uneven _StridedShard nest; HLO lists that are no product of
// mesh factors; anything with an open or unknown mesh.
#ifndef RESHARD_LAYOUT_NOTATION_H_
#define RESHARD_LAYOUT_NOTATION_H_

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "absl/status/statusor.h"
#include "reshard/layout/layout.h"

namespace reshard {

enum class Notation { kReshard, kDTensor, kJax, kShardy, kHlo };

// "reshard", "dtensor", "jax", "shardy", "hlo".
const char* Name(Notation notation);
std::optional<Notation> ParseNotation(std::string_view name);

// The layout that `text` means over `mesh` for a tensor of this shape. For kReshard, a layout or a layout rule.
// InvalidArgument: the text is malformed, does not fit mesh or shape. Unimplemented: well formed, but it has no exact
// equivalent in the algebra; the message says why.
absl::StatusOr<Layout> ImportLayout(Notation notation, std::string_view text, std::shared_ptr<const Mesh> mesh,
                                    const std::vector<int64_t>& shape);

// The text in that notation. Post-condition: importing it over the same mesh gives an equivalent layout.
// Unimplemented when the notation cannot say it exactly; the message says why.
absl::StatusOr<std::string> ExportLayout(Notation notation, const Layout& layout);

}  // namespace reshard

#endif  // RESHARD_LAYOUT_NOTATION_H_
