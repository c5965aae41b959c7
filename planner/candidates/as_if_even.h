// Treats layouts whose sizes do not divide as if they did: digits of the mesh then describe them as they describe even
// layouts, and what is found with them is applied to the real sizes.
#ifndef RESHARD_PLANNER_CANDIDATES_AS_IF_EVEN_H_
#define RESHARD_PLANNER_CANDIDATES_AS_IF_EVEN_H_

#include <optional>

#include "reshard/layout/layout.h"

namespace reshard::candidates {

class AsIfEven {
 public:
  // nullopt unless both layouts are over one mesh and cut by axes and blocks only.
  static std::optional<AsIfEven> Of(const Layout& from, const Layout& to);

  // The same factors over dimensions that all of them divide.
  const Layout& from() const { return even_from_; }
  const Layout& to() const { return even_to_; }

  // Applies the factors of a layout between from() and to() to the real sizes. Leaves out only the blocks along
  // dimensions where no axis cuts as `from` does: they would keep places for axes that are still to come, and parts of
  // few elements divide badly. Without them the parts are contiguous, and equal in size up to one element. nullopt
  // where Layout::Create refuses the result.
  //
  // Example: [<a>131071, 65537] -> [131071, <a>65537] on {a:1024}. Half way between them, with a cut in two, is
  // [<32,a:(32)32>1024, <a:(1)32,32>1024], which becomes [<32,a:(32)32>131071, <a:(1)32>65537]. On the way back it is
  // [<a:(1)32,32>1024, <32,a:(32)32>1024], and the rows go without blocks: [<a:(1)32>131071, <32,a:(32)32>65537].
  std::optional<Layout> AtRealSizes(const Layout& between) const;

 private:
  AsIfEven() = default;
  Layout from_, even_from_, even_to_;
};

}  // namespace reshard::candidates

#endif  // RESHARD_PLANNER_CANDIDATES_AS_IF_EVEN_H_
