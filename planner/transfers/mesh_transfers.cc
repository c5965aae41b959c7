#include "planner/transfers/mesh_transfers.h"

#include <algorithm>
#include <map>
#include <optional>
#include <set>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "reshard/layout/text.h"

namespace reshard::transfers {

absl::StatusOr<std::optional<std::unique_ptr<MeshTransfers>>> MeshTransfers::Create(
    const Mesh& mesh, const digits::Refinement& refinement, const std::vector<const DimShards*>& from,
    const std::vector<const DimShards*>& to, int rank, const Topology& topology, bool aligned) {
  auto out = std::unique_ptr<MeshTransfers>(new MeshTransfers());
  out->mesh_ = mesh;
  out->rank_ = rank;
  out->num_levels_ = aligned ? topology.num_levels() : 1;
  out->digits_ = refinement.digits;
  const size_t k = out->digits_.size();
  out->from_dim_.assign(k, -1);
  out->to_dim_.assign(k, -1);
  out->dims_.resize(from.size());
  for (size_t d = 0; d < from.size(); ++d) {
    Dim& dim = out->dims_[d];
    dim.from = digits::RowDigitsOf(refinement, from[d]->digits);
    dim.to = digits::RowDigitsOf(refinement, to[d]->digits);
    for (int digit : dim.from.digits) out->from_dim_[digit] = static_cast<int>(d);
    for (int digit : dim.to.digits) out->to_dim_[digit] = static_cast<int>(d);
  }
  out->AddDims(from, to);
  out->uniform_ = out->MeetAtPlaces(refinement, from);
  out->Match(refinement);
  out->EnumerateClasses();
  out->SumByRow();
  if (out->num_levels_ > 1) out->SumNear();
  if (!out->ComputeLoads()) return std::nullopt;
  if (topology.num_levels() != out->num_levels_) {
    constexpr int64_t kMaxMessages = int64_t{1} << 24;
    if (out->figures_.messages_total > kMaxMessages) {
      return absl::ResourceExhaustedError(
          absl::StrCat("the domains of topology ", topology.name, " are not sub-meshes of ", ToString(mesh),
                       ", and the step has more than ", kMaxMessages, " messages to count one by one"));
    }
    out->CountLevels(topology);
  }
  out->FindAxes();
  out->ClassifyPattern();
  return out;
}

void MeshTransfers::AddDims(const std::vector<const DimShards*>& from, const std::vector<const DimShards*>& to) {
  for (size_t d = 0; d < dims_.size(); ++d) {
    Dim& dim = dims_[d];
    dim.overlap = Overlap(*from[d], *to[d]);
    dim.from_length = from[d]->length;
    dim.to_length = to[d]->length;
  }
}

// Finds sigma. If only the target uses digit e, at a place where the source has digit a, all receivers of a source
// shard have the same e, and with sigma(e) = e the holders along e would be idle while one of them served everybody.
// The digit x in which the receivers of that shard do differ is found by following places: it is a or, if a itself
// moves to the place of another source digit, that digit, and so on.
void MeshTransfers::Match(const digits::Refinement& refinement) {
  const size_t k = digits_.size();
  sigma_.assign(k, -1);
  for (size_t e = 0; e < k; ++e) {
    if (from_dim_[e] < 0) sigma_[e] = static_cast<int>(e);
  }
  std::vector<int> displaced(k, -1);  // target digit -> the source digit at its place
  for (int d = 0; d < rank_; ++d) {
    // Exact places first; then, in a range that both layouts cut completely (6 as 2,3 against 3,2), digits of equal
    // size in order. Blocks, which every device keeps, cut nothing.
    std::vector<const digits::DimCut*> sources, targets, blocks;
    std::map<int64_t, int> boundaries;
    auto collect = [&](const std::vector<digits::DimCut>& places, std::vector<const digits::DimCut*>& into, int bit) {
      boundaries[1] |= bit;
      for (const digits::DimCut& place : places) {
        if (place.dim != d) continue;
        boundaries[place.hi] |= bit;
        (place.digit >= 0 ? into : blocks).push_back(&place);
      }
    };
    collect(refinement.from, sources, 1);
    collect(refinement.to, targets, 2);
    auto block = [&](const digits::DimCut& place) {  // the first boundary of its range, or -1 if that has no common end
      int64_t start = 1;
      for (const auto& [boundary, bits] : boundaries) {
        if (bits != 3) continue;
        if (boundary >= place.hi) {
          const int64_t end = boundary;  // Clang 14 captures no structured binding
          const bool complete = std::none_of(blocks.begin(), blocks.end(), [&](const digits::DimCut* kept) {
            return kept->lo < end && start < kept->hi;
          });
          return complete ? start : int64_t{-1};
        }
        if (boundary <= place.lo) start = boundary;
      }
      return int64_t{-1};
    };
    std::vector<bool> taken(sources.size(), false);
    for (bool exact : {true, false}) {
      for (const digits::DimCut* target : targets) {
        if (displaced[target->digit] >= 0) continue;
        for (size_t i = 0; i < sources.size(); ++i) {
          const digits::DimCut* source = sources[i];
          if (taken[i] || source->hi / source->lo != target->hi / target->lo) continue;
          // A reflected axis shares elements with two coordinates of a plain one, so no digit is fixed by the other.
          if (source->kind != target->kind || source->kind == Factor::Kind::kSizes) continue;
          const bool fits = exact ? source->lo == target->lo : block(*source) == block(*target) && block(*source) >= 0;
          if (!fits) continue;
          displaced[target->digit] = source->digit;
          taken[i] = true;
          break;
        }
      }
    }
  }
  for (size_t e = 0; e < k; ++e) {
    if (from_dim_[e] >= 0 || displaced[e] < 0) continue;
    int x = displaced[e];
    for (size_t guard = 0; guard < k && displaced[x] >= 0; ++guard) {
      if (displaced[x] == x) break;
      x = displaced[x];
    }
    // A receiver whose coordinates on e and x differ lacks a shard that differs from its own on x. So its holder has to
    // differ from it on x anyway, and differing on e too makes it no farther unless e is at a farther level than x.
    // This does not hold if x was found through several places.
    const bool no_farther = uniform_ && x == displaced[e] && digits_[e].level <= digits_[x].level;
    if (num_levels_ == 1 || digits_[e].level == 0 || no_farther) sigma_[e] = x;
  }
  sigma_inverse_.assign(k, -1);
  for (size_t e = 0; e < k; ++e) {
    if (sigma_[e] < 0) continue;
    sigma_inverse_[sigma_[e]] = static_cast<int>(e);
    has_swaps_ |= sigma_[e] != static_cast<int>(e);
  }
}

// Whether what a device does follows from which of its coordinates are equal: all factors are plain axes or blocks that
// divide evenly, the boundaries of both layouts form one chain in every dimension, and digits of the two sides that
// overlap are at the same place.
bool MeshTransfers::MeetAtPlaces(const digits::Refinement& refinement, const std::vector<const DimShards*>& from) {
  for (int d = 0; d < rank_; ++d) {
    std::set<int64_t> boundaries{1};
    for (const auto* side : {&refinement.from, &refinement.to}) {
      for (const digits::DimCut& place : *side) {
        if (place.dim != d) continue;
        if (place.kind != Factor::Kind::kAxis && place.kind != Factor::Kind::kBlocks) return false;
        boundaries.insert(place.hi);
      }
    }
    int64_t reached = 1;
    for (int64_t boundary : boundaries) {
      if (boundary % reached != 0) return false;
      reached = boundary;
    }
    const int64_t size = from[d]->size;
    if (size == 0 || size % reached != 0) return false;
    for (const digits::DimCut& source : refinement.from) {
      for (const digits::DimCut& target : refinement.to) {
        if (source.dim != d || target.dim != d || source.digit < 0 || target.digit < 0) continue;
        if (source.hi <= target.lo || target.hi <= source.lo) continue;
        if (source.lo != target.lo || source.hi != target.hi) return false;
        met_.emplace_back(source.digit, target.digit);
      }
    }
  }
  // The additional dimension for axes that stay partial: a contribution only ever meets itself.
  for (size_t d = static_cast<size_t>(rank_); d < dims_.size(); ++d) {
    for (int digit : dims_[d].from.digits) met_.emplace_back(digit, digit);
  }
  return true;
}

void MeshTransfers::EnumerateClasses() {
  const size_t k = digits_.size();
  active_digit_.assign(k, false);
  int64_t active = 1;
  for (size_t e = 0; e < k; ++e) {
    active_digit_[e] = from_dim_[e] >= 0 || to_dim_[e] >= 0;
    if (active_digit_[e]) active *= digits_[e].size;
  }
  for (const auto& [e, f] : met_) {
    if (e != f) links_.push_back({digits_[e].ref, digits_[f].ref});
  }
  for (size_t e = 0; e < k; ++e) {
    if (swapped(e)) links_.push_back({digits_[e].ref, digits_[sigma_[e]].ref});
  }
  std::optional<std::vector<digits::DeviceClass>> classes;
  if (uniform_) classes = digits::ClassesUnder(mesh_, links_);
  uniform_ = classes.has_value();
  if (uniform_) {
    classes_ = *std::move(classes);
  } else {
    // Digits that neither layout uses change nothing: devices that differ only in these do the same.
    classes_.reserve(active);
    for (int64_t i = 0; i < active; ++i) {
      int64_t rest = i, position = 0;
      for (size_t e = k; e-- > 0;) {
        if (!active_digit_[e]) continue;
        position += rest % digits_[e].size * digits_[e].stride;
        rest /= digits_[e].size;
      }
      classes_.push_back({position, mesh_.size() / active});
    }
  }
  coordinates_.reserve(classes_.size() * k);
  for (const digits::DeviceClass& one : classes_) {
    for (const digits::Digit& digit : digits_) coordinates_.push_back(digit.Coordinate(one.position));
  }
  for (Dim& dim : dims_) {
    for (size_t i = 0; i < classes_.size(); ++i) {
      dim.from_row.push_back(dim.from.Row(coordinates(i)));
      dim.to_row.push_back(dim.to.Row(coordinates(i)));
    }
  }
}

void MeshTransfers::SumByRow() {
  for (Dim& dim : dims_) {
    dim.received.resize(dim.overlap.to_rows);
    dim.sent_pins.assign(dim.to.digits.size(), -1);
    dim.kept_pins.assign(dim.to.digits.size(), -1);
    // A sender's coordinates pin those digits of its receivers that are some sigma(e). Receivers that hold the shard
    // themselves have the sender's coordinates on all digits but the swapped ones, on which they may have any.
    dim.sent_pinned = dim.kept_pinned = 1;
    for (size_t j = 0; j < dim.to.digits.size(); ++j) {
      const auto f = static_cast<size_t>(dim.to.digits[j]);
      dim.sent_pins[j] = sigma_inverse_[f];
      if (dim.sent_pins[j] >= 0) dim.sent_pinned *= digits_[f].size;
      dim.kept_pins[j] = swapped(f) ? -1 : static_cast<int>(f);
      if (!swapped(f)) dim.kept_pinned *= digits_[f].size;
    }
    dim.sent.resize(dim.overlap.from_rows * dim.sent_pinned);
    if (has_swaps_) dim.kept.resize(dim.overlap.from_rows * dim.kept_pinned);
    auto key = [&](const std::vector<int>& pins, int64_t to_row) {
      int64_t out = 0;
      for (size_t j = 0; j < pins.size(); ++j) {
        if (pins[j] < 0) continue;
        const int64_t size = digits_[dim.to.digits[j]].size;
        out = out * size + to_row / dim.to.weights[j] % size;
      }
      return out;
    };
    int64_t row = -1, sent_key = 0, kept_key = 0;
    for (const Pair& pair : dim.overlap.pairs) {
      if (pair.to_row != row) {
        row = pair.to_row;
        sent_key = key(dim.sent_pins, row);
        if (has_swaps_) kept_key = key(dim.kept_pins, row);
      }
      dim.received[row].Add(pair.in_to, pair.elements);
      dim.sent[pair.from_row * dim.sent_pinned + sent_key].Add(pair.in_from, pair.elements);
      if (has_swaps_) {
        dim.kept[pair.from_row * dim.kept_pinned + kept_key].Add(pair.in_from, pair.elements);
      }
    }
  }
}

}  // namespace reshard::transfers
