#include "planner/candidates/between_meshes.h"
#include "planner/candidates/contiguous_shares.h"
#include "planner/candidates/direct.h"
#include "planner/candidates/fallback.h"
#include "planner/candidates/family.h"
#include "planner/candidates/searched.h"
#include "planner/candidates/slot_tables.h"
#include "planner/candidates/staged.h"
#include "planner/candidates/three_phase.h"
#include "planner/candidates/uneven_phases.h"

namespace reshard::candidates {

absl::Span<const Family> Families() {
  static constexpr Family kFamilies[] = {
      {"direct", Direct, true},
      {"slot tables", SlotTables, true},
      {"three phases", ThreePhase, false},
      {"uneven phases", UnevenPhases, false},
      {"between meshes", BetweenMeshes, false},
      {"searched", Searched, true},
      {"staged", Staged, false},
      {"contiguous shares", ContiguousShares, false},
      {"fallback", Fallback, true},
      {"reductions", Reductions, false},
  };
  return kFamilies;
}

Chain Through(const Layout& source, std::initializer_list<const Layout*> layouts) {
  Chain chain;
  for (const Layout* layout : layouts) {
    const Layout& at = chain.empty() ? source : chain.back().to;
    if (!(*layout == at)) chain.push_back({cost::ChainStep::Kind::kMove, *layout});
  }
  return chain;
}

}  // namespace reshard::candidates
