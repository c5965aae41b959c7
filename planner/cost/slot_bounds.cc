#include "planner/cost/slot_bounds.h"

#include <algorithm>
#include <vector>

#include "absl/container/flat_hash_map.h"
#include "absl/container/inlined_vector.h"
#include "planner/transfers/overlap.h"
#include "planner/transfers/slot_atoms.h"
#include "reshard/layout/shard_map.h"
#include "status/macros.h"

namespace reshard::cost {
namespace {

// One box of the other dimensions, within one domain: which atoms are needed, perhaps several times, and which are
// held.
struct Cell {
  int64_t elements = 1;  // per index of the table's dimension
  std::vector<int64_t> needed;
  std::vector<bool> held;
};

// The cells of other dimensions that a device takes part in, as combinations of their pairs.
class Cells {
 public:
  Cells(const ShardMap& from, const ShardMap& to, int slot_dim) {
    for (int d = 0; d < from.rank(); ++d) {
      if (d == slot_dim) continue;
      dims_.push_back(d);
      overlaps_.push_back(transfers::Overlap(from.dim(d), to.dim(d), transfers::Detail::kSizes));
    }
  }

  // Calls visit(number, elements) for each combination of pairs of the rows of the device at `position` of one side.
  template <typename Visit>
  void ForEach(const ShardMap& side, bool is_source, int64_t position, const Visit& visit) const {
    absl::InlinedVector<absl::InlinedVector<int64_t, 4>, 4> pairs;
    for (size_t k = 0; k < dims_.size(); ++k) {
      const transfers::DimOverlap& overlap = overlaps_[k];
      const auto row = static_cast<size_t>(side.Row(position, dims_[k]));
      absl::InlinedVector<int64_t, 4>& of_dim = pairs.emplace_back();
      const auto& first = is_source ? overlap.first_of_from : overlap.first_of_to;
      for (int64_t i = first[row]; i < first[row + 1]; ++i) of_dim.push_back(is_source ? overlap.by_from[i] : i);
      if (of_dim.empty()) return;
    }
    absl::InlinedVector<size_t, 4> at(pairs.size(), 0);
    while (true) {
      int64_t number = 0, elements = 1;
      for (size_t k = 0; k < pairs.size(); ++k) {
        const int64_t pair = pairs[k][at[k]];
        number = number * static_cast<int64_t>(overlaps_[k].pairs.size()) + pair;
        elements *= overlaps_[k].pairs[pair].elements;
      }
      visit(number, elements);
      size_t k = at.size();
      while (k > 0 && ++at[k - 1] == pairs[k - 1].size()) at[--k] = 0;
      if (k == 0) return;
    }
  }

 private:
  std::vector<int> dims_;
  std::vector<transfers::DimOverlap> overlaps_;
};

}  // namespace

std::optional<int> SlotDimOf(const Layout& source, const Layout& target) {
  return target.slot_dim() ? target.slot_dim() : source.slot_dim();
}

absl::StatusOr<Lack> LackWithSlots(const Layout& source, const Layout& target, int slot_dim,
                                   absl::FunctionRef<int64_t(int64_t device)> domain_of) {
  ASSIGN_OR_RETURN(const ShardMap from, ShardMap::Create(source));
  ASSIGN_OR_RETURN(const ShardMap to, ShardMap::Create(target));
  ASSIGN_OR_RETURN(const transfers::SlotAtoms atoms,
                   transfers::SlotAtoms::Create(from.dim(slot_dim), to.dim(slot_dim)));
  const std::vector<std::vector<int64_t>> held_by_row = atoms.HeldByRow(from.dim(slot_dim).num_rows());
  const Cells cells(from, to, slot_dim);
  absl::flat_hash_map<int64_t, absl::flat_hash_map<int64_t, Cell>> domains;
  const auto mark = [&](const ShardMap& side, int64_t p, const auto& visit) {
    const bool is_source = &side == &from;
    absl::flat_hash_map<int64_t, Cell>& domain = domains[domain_of(side.mesh().Device(p))];
    cells.ForEach(side, is_source, p, [&](int64_t number, int64_t elements) {
      Cell& cell = domain[number];
      cell.elements = elements;
      cell.held.resize(static_cast<size_t>(atoms.size()));
      visit(cell);
    });
  };
  for (int64_t p = 0; p < from.mesh().size(); ++p) {
    mark(from, p, [&](Cell& cell) {
      for (const int64_t a : held_by_row[from.Row(p, slot_dim)]) cell.held[a] = true;
    });
  }
  for (int64_t q = 0; q < to.mesh().size(); ++q) {
    mark(to, q, [&](Cell& cell) {
      for (const transfers::AtomSlot& slot : atoms.Needs(to.Row(q, slot_dim))) cell.needed.push_back(slot.atom);
    });
  }
  Lack out;
  for (auto& [id, domain] : domains) {
    int64_t lack = 0;
    for (auto& [number, cell] : domain) {
      for (const int64_t a : cell.needed) {
        if (cell.held[a]) continue;
        lack += cell.elements * atoms.atom(a).length();
        cell.held[a] = true;  // once it is there
      }
    }
    out.most = std::max(out.most, lack);
    out.total += lack;
    if (lack > 0) out.each.emplace_back(id, lack);
  }
  std::sort(out.each.begin(), out.each.end());
  return out;
}

}  // namespace reshard::cost
