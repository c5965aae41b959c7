#include "reshard/planner/relabel.h"

#include <algorithm>
#include <map>
#include <optional>
#include <string>
#include <utility>

#include "absl/container/flat_hash_map.h"
#include "absl/container/flat_hash_set.h"
#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "layout/flatten.h"
#include "planner/relabel/assignment.h"
#include "planner/transfers/overlap.h"
#include "planner/transfers/slot_atoms.h"
#include "reshard/layout/checked.h"
#include "reshard/layout/shard_map.h"
#include "reshard/layout/text.h"
#include "status/macros.h"
#include "status/no_throw.h"

namespace reshard {
namespace {

constexpr int64_t kMostPairs = int64_t{1} << 24;  // of classes

// Positions, or devices, that are alike in every tensor.
struct Classes {
  std::vector<int32_t> of;      // the class of each
  std::vector<int32_t> first;   // the first member of each class
  std::vector<int64_t> counts;  // members of each class
  size_t size() const { return counts.size(); }
};

Classes Classify(const std::vector<std::vector<int32_t>>& keys) {
  Classes out;
  std::map<std::vector<int32_t>, int32_t> known;
  for (size_t i = 0; i < keys.size(); ++i) {
    const auto [it, added] = known.emplace(keys[i], static_cast<int32_t>(out.counts.size()));
    if (added) {
      out.first.push_back(static_cast<int32_t>(i));
      out.counts.push_back(0);
    }
    out.of.push_back(it->second);
    ++out.counts[it->second];
  }
  return out;
}

// One distinct tensor: how often it occurs, and what rows of each dimension share.
struct Tensor {
  Layout target;                               // over the dimensions that it has in common with the source
  int64_t bytes_per_element = 0;               // times the number of equal tensors
  std::vector<std::vector<int64_t>> overlaps;  // per dimension: elements by from_row, to_row
  std::vector<int64_t> to_rows;                // per dimension
};

// The indices that each row of `to` needs and each row of `from` holds, by from_row, to_row; an index counts once.
absl::StatusOr<std::vector<int64_t>> SharedSlots(const DimShards& from, const DimShards& to) {
  ASSIGN_OR_RETURN(const transfers::SlotAtoms atoms, transfers::SlotAtoms::Create(from, to));
  std::vector<int64_t> out(static_cast<size_t>(from.num_rows() * to.num_rows()), 0);
  for (int64_t row = 0; row < to.num_rows(); ++row) {
    absl::flat_hash_set<int64_t> seen;
    for (const transfers::AtomSlot& slot : atoms.Needs(row)) {
      if (!seen.insert(slot.atom).second) continue;
      for (const transfers::AtomHolder& holder : atoms.Holders(slot.atom)) {
        out[holder.row * to.num_rows() + row] += atoms.atom(slot.atom).length();
      }
    }
  }
  return out;
}

// Elements of the fragment at a position; an element in several slots counts once.
int64_t NeededElements(const ShardMap& map, int64_t position) {
  int64_t elements = 1;
  for (int d = 0; d < map.rank(); ++d) {
    const DimShards& dim = map.dim(d);
    const auto row = static_cast<size_t>(map.Row(position, d));
    int64_t along = dim.length[row];
    if (dim.slots) {
      std::vector<Interval> runs(dim.intervals.begin() + dim.first[row], dim.intervals.begin() + dim.first[row + 1]);
      std::sort(runs.begin(), runs.end(), [](const Interval& a, const Interval& b) { return a.begin < b.begin; });
      int64_t reached = 0;
      along = 0;
      for (const Interval& run : runs) {
        along += std::max(int64_t{0}, run.end - std::max(reached, run.begin));
        reached = std::max(reached, run.end);
      }
    }
    elements *= along;
  }
  return elements;
}

// State: the problem. Rows stand for the target mesh's devices by what they hold, columns for its positions by what is
// needed there; device i of the rows is the one that has position i now.
class Relabeler {
 public:
  Relabeler(absl::Span<const Problem> problems, absl::Span<const std::string> names)
      : problems_(problems), names_(names) {}
  absl::StatusOr<Relabeling> Make();

 private:
  absl::Status Validate() const;
  absl::Status ReadTensors();
  std::vector<int64_t> Weights() const;
  std::vector<int64_t> OrderFrom(const std::vector<int64_t>& flow) const;
  std::string NameOf(size_t problem) const {
    if (problem < names_.size() && !names_[problem].empty()) return absl::StrCat(names_[problem], ": ");
    return problems_.size() == 1 ? "" : absl::StrCat("tensor ", problem, ": ");
  }
  const Mesh& mesh() const { return problems_[0].target.mesh(); }

  const absl::Span<const Problem> problems_;
  const absl::Span<const std::string> names_;
  std::vector<Tensor> tensors_;
  // Per device and position, all tensors' rows of all dimensions; -1 for a device outside a source mesh.
  std::vector<std::vector<int32_t>> held_, needed_;
  Classes rows_, columns_;
  int64_t needed_bytes_ = 0;  // by all positions together
};

absl::Status Relabeler::Validate() const {
  if (problems_.empty()) return absl::InvalidArgumentError("no tensors to find an order of devices for");
  if (!names_.empty() && names_.size() != problems_.size()) {
    return absl::InvalidArgumentError(absl::StrCat(names_.size(), " names for ", problems_.size(), " tensors"));
  }
  int64_t total = 0;
  for (size_t i = 0; i < problems_.size(); ++i) {
    const Problem& problem = problems_[i];
    if (problem.source.shape() != problem.target.shape()) {
      return absl::InvalidArgumentError(absl::StrCat(NameOf(i), "source ", ToString(problem.source), " and target ",
                                                     ToString(problem.target), " are layouts of different shapes"));
    }
    if (problem.source.partial() || problem.target.partial()) {
      return absl::UnimplementedError(
          absl::StrCat(NameOf(i), "values that are still partial cannot go to other devices; reduce them first"));
    }
    if (!(problem.target.mesh() == mesh())) {
      return absl::InvalidArgumentError(absl::StrCat(NameOf(i), "target mesh ", ToString(problem.target.mesh()),
                                                     " is not the first tensor's ", ToString(mesh()),
                                                     "; an order of devices is that of one mesh"));
    }
    auto bytes = CheckedMul(problem.source.num_elements(), SizeOf(problem.dtype));
    if (bytes) bytes = CheckedMul(*bytes, mesh().size());
    if (bytes) bytes = CheckedAdd(total, *bytes);
    if (!bytes) {
      return absl::InvalidArgumentError(
          absl::StrCat(NameOf(i), "the bytes of the tensors up to here on all devices together do not fit in 64 bits"));
    }
    total = *bytes;
  }
  return absl::OkStatus();
}

absl::Status Relabeler::ReadTensors() {
  const auto devices = static_cast<size_t>(mesh().size());
  held_.resize(devices);
  needed_.resize(devices);
  absl::flat_hash_map<std::pair<Layout, Layout>, size_t> known;
  for (const Problem& problem : problems_) {
    const auto [it, added] = known.emplace(std::pair(problem.source, problem.target), tensors_.size());
    if (!added) {
      tensors_[it->second].bytes_per_element += SizeOf(problem.dtype);
      continue;
    }
    ASSIGN_OR_RETURN(const auto ends, layout::OverCommonDims(problem.source, problem.target));
    ASSIGN_OR_RETURN(auto from, ShardMap::Create(ends.first));
    ASSIGN_OR_RETURN(auto to, ShardMap::Create(ends.second));
    Tensor tensor{ends.second, SizeOf(problem.dtype), {}, {}};
    for (int d = 0; d < from.rank(); ++d) {
      const int64_t from_rows = from.dim(d).num_rows(), to_rows = to.dim(d).num_rows();
      if (from_rows > kMostPairs / to_rows) {
        return absl::ResourceExhaustedError("too many different shards to find an order of devices for");
      }
      if (from.dim(d).slots || to.dim(d).slots) {
        ASSIGN_OR_RETURN(std::vector<int64_t> shared, SharedSlots(from.dim(d), to.dim(d)));
        tensor.overlaps.push_back(std::move(shared));
      } else {
        std::vector<int64_t> elements(static_cast<size_t>(from_rows * to_rows), 0);
        for (const transfers::Pair& pair :
             transfers::Overlap(from.dim(d), to.dim(d), transfers::Detail::kSizes).pairs) {
          elements[pair.from_row * to_rows + pair.to_row] = pair.elements;
        }
        tensor.overlaps.push_back(std::move(elements));
      }
      tensor.to_rows.push_back(to_rows);
    }
    for (size_t p = 0; p < devices; ++p) {
      const auto at = problem.source.mesh().Position(mesh().Device(static_cast<int64_t>(p)));
      // A 0-d tensor has no rows, but a device may still not have it.
      held_[p].push_back(at ? 0 : -1);
      for (int d = 0; d < from.rank(); ++d) {
        held_[p].push_back(at ? static_cast<int32_t>(from.Row(*at, d)) : -1);
        needed_[p].push_back(static_cast<int32_t>(to.Row(static_cast<int64_t>(p), d)));
      }
    }
    tensors_.push_back(std::move(tensor));
  }
  for (const Tensor& tensor : tensors_) {
    ASSIGN_OR_RETURN(auto to, ShardMap::Create(tensor.target));
    for (int64_t p = 0; p < mesh().size(); ++p) needed_bytes_ += NeededElements(to, p) * tensor.bytes_per_element;
  }
  return absl::OkStatus();
}

// Bytes that a device of each row class keeps at a position of each column class.
std::vector<int64_t> Relabeler::Weights() const {
  std::vector<int64_t> out(rows_.size() * columns_.size(), 0);
  for (size_t r = 0; r < rows_.size(); ++r) {
    const std::vector<int32_t>& held = held_[rows_.first[r]];
    for (size_t c = 0; c < columns_.size(); ++c) {
      const std::vector<int32_t>& needed = needed_[columns_.first[c]];
      int64_t bytes = 0;
      size_t at_held = 0, at_needed = 0;
      for (const Tensor& tensor : tensors_) {
        int64_t elements = held[at_held++] < 0 ? 0 : 1;
        for (size_t d = 0; d < tensor.overlaps.size(); ++d) {
          const int64_t from_row = held[at_held++], to_row = needed[at_needed++];
          if (elements != 0) elements *= tensor.overlaps[d][from_row * tensor.to_rows[d] + to_row];
        }
        bytes += elements * tensor.bytes_per_element;
      }
      out[r * columns_.size() + c] = bytes;
    }
  }
  return out;
}

// For every position the device that takes it, given as the position where that device is now. Of each class, the
// devices that may stay do; the others come in ascending order.
std::vector<int64_t> Relabeler::OrderFrom(const std::vector<int64_t>& flow) const {
  const size_t n = rows_.of.size();
  std::vector<int64_t> left = flow, out(n, -1);
  std::vector<bool> placed(n, false);
  for (size_t i = 0; i < n; ++i) {
    int64_t& count = left[static_cast<size_t>(rows_.of[i]) * columns_.size() + static_cast<size_t>(columns_.of[i])];
    if (count == 0) continue;
    --count;
    out[i] = static_cast<int64_t>(i);
    placed[i] = true;
  }
  std::vector<std::vector<int64_t>> free(columns_.size());
  for (size_t i = n; i-- > 0;) {
    if (out[i] < 0) free[columns_.of[i]].push_back(static_cast<int64_t>(i));
  }
  std::vector<size_t> column(rows_.size(), 0);
  for (size_t i = 0; i < n; ++i) {
    if (placed[i]) continue;
    const auto r = static_cast<size_t>(rows_.of[i]);
    while (left[r * columns_.size() + column[r]] == 0) ++column[r];
    --left[r * columns_.size() + column[r]];
    std::vector<int64_t>& places = free[column[r]];
    out[places.back()] = static_cast<int64_t>(i);
    places.pop_back();
  }
  return out;
}

absl::StatusOr<Relabeling> Relabeler::Make() {
  RETURN_IF_ERROR(Validate());
  RETURN_IF_ERROR(ReadTensors());
  rows_ = Classify(held_);
  columns_ = Classify(needed_);
  if (static_cast<int64_t>(rows_.size()) > kMostPairs / static_cast<int64_t>(columns_.size())) {
    return absl::ResourceExhaustedError(absl::StrCat("an order of devices is found for at most ", kMostPairs,
                                                     " pairs of different shards held and needed; here are ",
                                                     rows_.size(), " x ", columns_.size()));
  }
  relabel::Transportation problem{rows_.counts, columns_.counts, Weights(), {}};
  problem.stay.assign(problem.weight.size(), 0);
  Relabeling out;
  int64_t kept_before = 0, kept = 0;
  for (size_t i = 0; i < rows_.of.size(); ++i) {
    const size_t at = static_cast<size_t>(rows_.of[i]) * columns_.size() + static_cast<size_t>(columns_.of[i]);
    ++problem.stay[at];
    kept_before += problem.weight[at];
  }
  const std::vector<int64_t> flow = relabel::BestFlow(problem);
  for (size_t at = 0; at < flow.size(); ++at) kept += flow[at] * problem.weight[at];
  out.bytes_before = needed_bytes_ - kept_before;
  out.bytes = needed_bytes_ - kept;
  std::vector<int64_t> ids;
  for (int64_t position : OrderFrom(flow)) ids.push_back(mesh().Device(position));
  ASSIGN_OR_RETURN(auto relabelled, Mesh::Create(mesh().axes(), std::move(ids)));
  out.target_mesh = relabelled;
  return out;
}

}  // namespace

std::vector<int64_t> Relabeling::devices() const {
  std::vector<int64_t> out;
  for (int64_t p = 0; p < target_mesh.size(); ++p) out.push_back(target_mesh.Device(p));
  return out;
}

absl::StatusOr<Relabeling> Relabel(const Problem& problem) { return Relabel({&problem, 1}); }

absl::StatusOr<Relabeling> Relabel(absl::Span<const Problem> problems, absl::Span<const std::string> names) {
  return status::NoThrow("finding an order of devices", [&] { return Relabeler(problems, names).Make(); });
}

absl::StatusOr<Layout> OnMesh(const Layout& layout, const Mesh& mesh) {
  if (layout.mesh().axes() != mesh.axes()) {
    return absl::InvalidArgumentError(
        absl::StrCat("the axes of mesh ", ToString(mesh), " are not those of ", ToString(layout.mesh())));
  }
  return Layout::Create(mesh, layout.dims(), layout.partial());
}

}  // namespace reshard
