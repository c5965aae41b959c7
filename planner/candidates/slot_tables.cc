#include "planner/candidates/slot_tables.h"

#include <algorithm>
#include <cstdint>
#include <map>
#include <utility>

#include "absl/container/flat_hash_map.h"
#include "absl/container/flat_hash_set.h"
#include "planner/cost/slot_bounds.h"
#include "planner/transfers/assign_senders.h"
#include "planner/transfers/overlap.h"
#include "planner/transfers/slot_atoms.h"
#include "reshard/layout/checked.h"
#include "reshard/layout/shard_map.h"

namespace reshard::candidates {
namespace {

// A set of atoms, by number.
class AtomSet {
 public:
  AtomSet(int64_t atoms, bool all) : words_(static_cast<size_t>(CeilDiv(atoms, kBits)), all ? ~uint64_t{0} : 0) {}
  bool Has(int64_t atom) const { return (words_[static_cast<size_t>(atom / kBits)] >> (atom % kBits) & 1) != 0; }
  void Add(int64_t atom) { words_[static_cast<size_t>(atom / kBits)] |= uint64_t{1} << (atom % kBits); }
  void Clear() { std::fill(words_.begin(), words_.end(), 0); }
  void KeepThoseOf(const AtomSet& other) {
    for (size_t i = 0; i < words_.size(); ++i) words_[i] &= other.words_[i];
  }

 private:
  static constexpr int64_t kBits = 64;
  std::vector<uint64_t> words_;
};

// What each coordinate of the target's table needs, and what it holds or has near it: on all of its devices, which
// differ in the other axes.
class Needs {
 public:
  Needs(const Task& task, const ShardMap& from, const ShardMap& to, int slot_dim, transfers::SlotAtoms atoms)
      : topology_(task.options.topology), from_(from), to_(to), slot_dim_(slot_dim), atoms_(std::move(atoms)) {
    for (int d = 0; d < from.rank(); ++d) {
      overlaps_.push_back(d == slot_dim ? transfers::DimOverlap()
                                        : transfers::Overlap(from.dim(d), to.dim(d), transfers::Detail::kSizes));
    }
    atoms_of_row_ = atoms_.HeldByRow(from.dim(slot_dim).num_rows());
    FindHolders();
  }

  int64_t coordinates() const { return to_.dim(slot_dim_).num_rows(); }
  // The atoms of a coordinate, in slot order.
  std::vector<int64_t> Atoms(int64_t j) const {
    std::vector<int64_t> out;
    for (const transfers::AtomSlot& slot : atoms_.Needs(j)) out.push_back(slot.atom);
    return out;
  }
  const Interval& atom(int64_t a) const { return atoms_.atom(a); }
  // Whether every device of the coordinate holds all that it needs of the atom, or some device of its domain does.
  bool HeldBy(int64_t j, int64_t a) const { return held_[static_cast<size_t>(j)].Has(a); }
  bool HeldNear(int64_t j, int64_t a) const { return near_[static_cast<size_t>(j)].Has(a); }
  // Equal for coordinates whose devices, pair by pair, lie in one domain.
  int64_t Domain(int64_t j) const { return domain_of_[j]; }

 private:
  int64_t DomainOf(int64_t device) const {
    const int levels = topology_.num_levels();
    return levels == 1 ? device : device / topology_.levels[static_cast<size_t>(levels) - 2].devices;
  }

  // Whether the source device at p has all that the target device at q needs in the other dimensions.
  bool Covers(int64_t p, int64_t q) const {
    for (int d = 0; d < from_.rank(); ++d) {
      if (d == slot_dim_) continue;
      const int64_t row = to_.Row(q, d);
      const transfers::Pair* pair = overlaps_[d].Find(from_.Row(p, d), row);
      if (pair == nullptr || pair->elements != to_.dim(d).length[row]) return false;
    }
    return true;
  }

  void FindHolders() {
    const auto n = static_cast<size_t>(coordinates());
    held_.assign(n, AtomSet(atoms_.size(), true));
    near_ = held_;
    AtomSet held(atoms_.size(), false), near = held;             // of a device
    absl::flat_hash_map<int64_t, std::vector<int64_t>> sources;  // by domain, positions
    for (int64_t p = 0; p < from_.mesh().size(); ++p) sources[DomainOf(from_.mesh().Device(p))].push_back(p);
    std::vector<std::vector<int64_t>> domains(n);
    for (int64_t q = 0; q < to_.mesh().size(); ++q) {
      const int64_t j = to_.Row(q, slot_dim_), device = to_.mesh().Device(q), domain = DomainOf(device);
      domains[j].push_back(domain);
      held.Clear();
      near.Clear();
      if (const auto it = sources.find(domain); it != sources.end()) {
        for (const int64_t p : it->second) {
          if (!Covers(p, q)) continue;
          const bool own = from_.mesh().Device(p) == device;
          for (const int64_t a : atoms_of_row_[from_.Row(p, slot_dim_)]) {
            near.Add(a);
            if (own) held.Add(a);
          }
        }
      }
      held_[static_cast<size_t>(j)].KeepThoseOf(held);
      near_[static_cast<size_t>(j)].KeepThoseOf(near);
    }
    std::map<std::vector<int64_t>, int64_t> numbers;
    for (const std::vector<int64_t>& of_one : domains) {
      domain_of_.push_back(numbers.emplace(of_one, static_cast<int64_t>(numbers.size())).first->second);
    }
  }

  const Topology& topology_;
  const ShardMap& from_;
  const ShardMap& to_;
  const int slot_dim_;
  const transfers::SlotAtoms atoms_;
  std::vector<transfers::DimOverlap> overlaps_;
  std::vector<std::vector<int64_t>> atoms_of_row_;  // of the source
  std::vector<AtomSet> held_, near_;                // by coordinate
  std::vector<int64_t> domain_of_;                  // by coordinate
};

// Per coordinate, the atoms of its slots.
using Table = std::vector<std::vector<int64_t>>;

// The target's table, but an index that a device does not hold stays only in the first of its slots.
Table WithoutDuplicates(const Needs& needs) {
  Table out;
  for (int64_t j = 0; j < needs.coordinates(); ++j) {
    std::vector<int64_t>& slots = out.emplace_back();
    absl::flat_hash_set<int64_t> seen;
    for (const int64_t a : needs.Atoms(j)) {
      if (seen.insert(a).second || needs.HeldBy(j, a)) slots.push_back(a);
    }
  }
  return out;
}

// `table` without the atoms that another device of the same domain gets first.
Table FirstInDomain(const Needs& needs, const Table& table) {
  struct Lacking {
    int64_t atom = 0;
    transfers::SomeDevices needed_by;  // coordinates
  };
  std::vector<Lacking> lacking;
  absl::flat_hash_map<std::pair<int64_t, int64_t>, size_t> index;  // by domain and atom
  for (int64_t j = 0; j < needs.coordinates(); ++j) {
    for (const int64_t a : table[j]) {
      if (needs.HeldBy(j, a) || needs.HeldNear(j, a)) continue;
      const auto [it, added] = index.try_emplace({needs.Domain(j), a}, lacking.size());
      if (added) lacking.emplace_back().atom = a;
      lacking[it->second].needed_by.push_back(static_cast<int32_t>(j));
    }
  }
  std::vector<transfers::Request> requests;
  requests.reserve(lacking.size());
  for (const Lacking& one : lacking) requests.push_back({needs.atom(one.atom).length(), one.needed_by});
  std::vector<int64_t> loads(static_cast<size_t>(needs.coordinates()), 0);
  const std::vector<int32_t> first = transfers::AssignSenders(requests, loads);
  Table out;
  for (int64_t j = 0; j < needs.coordinates(); ++j) {
    std::vector<int64_t>& slots = out.emplace_back();
    for (const int64_t a : table[j]) {
      const auto it = index.find({needs.Domain(j), a});
      const bool later = it != index.end() && first[it->second] != j && !needs.HeldBy(j, a);
      if (!later) slots.push_back(a);
    }
  }
  return out;
}

absl::StatusOr<Layout> LayoutOf(const Layout& target, int slot_dim, const Needs& needs, const Table& table) {
  std::vector<DimLayout> dims = target.dims();
  Factor& factor = dims[slot_dim].factors.front();
  for (size_t j = 0; j < table.size(); ++j) {
    factor.slots[j].clear();
    for (const int64_t a : table[j]) factor.slots[j].push_back(needs.atom(a));
  }
  return Layout::Create(target.mesh(), std::move(dims));
}

}  // namespace

Proposal SlotTables(const Task& task, const SoFar&) {
  const std::optional<int> slot_dim = cost::SlotDimOf(task.source, task.target);
  if (!slot_dim) return {};
  const cost::ChainStep straight{cost::ChainStep::Kind::kMove, task.target};
  if (!task.target.slot_dim()) return {.chains = {{straight}}};
  const auto from = ShardMap::Create(task.source);
  const auto to = ShardMap::Create(task.target);
  if (!from.ok() || !to.ok()) return {};
  auto atoms = transfers::SlotAtoms::Create(from->dim(*slot_dim), to->dim(*slot_dim));
  if (!atoms.ok()) return {};
  const Needs needs(task, *from, *to, *slot_dim, *std::move(atoms));
  const Table once = WithoutDuplicates(needs);
  const Table first = FirstInDomain(needs, once);
  const auto once_layout = LayoutOf(task.target, *slot_dim, needs, once);
  const auto first_layout = LayoutOf(task.target, *slot_dim, needs, first);
  if (!once_layout.ok() || !first_layout.ok()) return {};
  Chain chain;
  if (!(*once_layout == task.target)) chain.push_back({cost::ChainStep::Kind::kMove, *once_layout});
  chain.push_back(straight);
  Proposal out{.chains = {chain}};
  if (!(*first_layout == *once_layout)) {
    chain.insert(chain.begin(), {cost::ChainStep::Kind::kMove, *first_layout});
    out.chains.push_back(std::move(chain));
  }
  return out;
}

}  // namespace reshard::candidates
