// Where the indices of a dimension cut by a slot table lie: runs of indices (atoms) that neither side takes apart, each
// with all rows that hold it.
#ifndef RESHARD_PLANNER_TRANSFERS_SLOT_ATOMS_H_
#define RESHARD_PLANNER_TRANSFERS_SLOT_ATOMS_H_

#include <cstdint>
#include <optional>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/types/span.h"
#include "reshard/layout/shard_map.h"

namespace reshard::transfers {

// A row that holds an atom: where the atom begins in the row, its first slot if the row holds it several times.
struct AtomHolder {
  int32_t row = 0;
  int64_t local = 0;
};

// An atom that a row needs, and where.
struct AtomSlot {
  int64_t atom = 0;
  int64_t local = 0;
};

class SlotAtoms {
 public:
  // ResourceExhausted above 2^24 pairs of an atom and a row of either side.
  static absl::StatusOr<SlotAtoms> Create(const DimShards& from, const DimShards& to);

  // Number of atoms.
  int64_t size() const { return static_cast<int64_t>(atoms_.size()); }
  const Interval& atom(int64_t a) const { return atoms_[a]; }
  // The rows of `from` that hold the atom, ascending. At least one.
  absl::Span<const AtomHolder> Holders(int64_t a) const {
    return absl::MakeConstSpan(holders_).subspan(first_holder_[a], first_holder_[a + 1] - first_holder_[a]);
  }
  // The entry of this row in Holders(a); null if the row does not hold the atom.
  const AtomHolder* Find(int64_t a, int64_t from_row) const;
  // The atoms that each of the `rows` rows of `from` holds, ascending.
  std::vector<std::vector<int64_t>> HeldByRow(int64_t rows) const;
  // The atoms that a row of `to` needs, in slot order.
  absl::Span<const AtomSlot> Needs(int64_t to_row) const {
    return absl::MakeConstSpan(needs_).subspan(first_need_[to_row], first_need_[to_row + 1] - first_need_[to_row]);
  }

 private:
  std::vector<Interval> atoms_;
  std::vector<AtomHolder> holders_;
  std::vector<int64_t> first_holder_;
  std::vector<AtomSlot> needs_;
  std::vector<int64_t> first_need_;
};

}  // namespace reshard::transfers

#endif  // RESHARD_PLANNER_TRANSFERS_SLOT_ATOMS_H_
