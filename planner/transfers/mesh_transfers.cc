#include "planner/transfers/mesh_transfers.h"

#include <algorithm>
#include <iterator>
#include <numeric>
#include <optional>

#include "planner/digits/cuts.h"

namespace reshard::transfers {

std::unique_ptr<MeshTransfers> MeshTransfers::Outline(const Mesh& mesh, const digits::Refinement& refinement,
                                                      const std::vector<const DimShards*>& from,
                                                      const std::vector<const DimShards*>& to, int rank, int num_levels,
                                                      Senders senders) {
  auto out = std::unique_ptr<MeshTransfers>(new MeshTransfers());
  out->mesh_ = mesh;
  out->rank_ = rank;
  out->num_levels_ = num_levels;
  out->digits_ = refinement.digits;
  if (num_levels == 1) {
    for (digits::Digit& digit : out->digits_) digit.level = 0;
  }
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
    dim.from_length = from[d]->length;
    dim.to_length = to[d]->length;
  }
  out->uniform_ = out->MeetAtPlaces(refinement, from);
  out->Match(refinement);
  if (senders == Senders::kAll) {
    out->SpreadSenders();
  } else {
    out->sigma_.assign(static_cast<size_t>(out->num_levels_), out->ByPlace());
  }
  return out;
}

std::unique_ptr<MeshTransfers> MeshTransfers::Prepare(const Mesh& mesh, const digits::Refinement& refinement,
                                                      const std::vector<const DimShards*>& from,
                                                      const std::vector<const DimShards*>& to, int rank, int num_levels,
                                                      Senders senders, Detail detail, std::optional<int64_t> only) {
  auto out = Outline(mesh, refinement, from, to, rank, num_levels, senders);
  for (size_t d = 0; d < out->dims_.size(); ++d) {
    Dim& dim = out->dims_[d];
    std::optional<SomeRows> own;
    if (only) {
      own.emplace(*from[d], *to[d]);
      own->from.Add(dim.from.RowAt(*only, out->digits_));
      own->to.Add(dim.to.RowAt(*only, out->digits_));
    }
    dim.overlap = dim.runs =
        std::make_shared<const DimOverlap>(Overlap(*from[d], *to[d], detail, own ? &*own : nullptr));
  }
  out->SumUp();
  return out;
}

std::unique_ptr<MeshTransfers> MeshTransfers::Create(const Mesh& mesh, const digits::Refinement& refinement,
                                                     const std::vector<const DimShards*>& from,
                                                     const std::vector<const DimShards*>& to, int rank, int num_levels,
                                                     Senders senders, Detail detail, const MeshTransfers* like) {
  std::unique_ptr<MeshTransfers> out;
  if (like == nullptr) {
    out = Prepare(mesh, refinement, from, to, rank, num_levels, senders, detail);
  } else {
    out = Outline(mesh, refinement, from, to, rank, num_levels, senders);
    for (size_t d = 0; d < out->dims_.size(); ++d) {
      out->dims_[d].overlap = out->dims_[d].runs = like->dims_[d].overlap;
    }
    out->SumUp();
  }
  out->EnumerateClasses();
  // With few classes, few rows are looked at.
  if (!out->uniform_) {
    const auto classes = static_cast<int64_t>(out->num_classes_);
    out->EachSums([classes](PinnedSums& sums) { sums.Tabulate(classes); });
  }
  out->ComputeLoads();
  out->FindAxes();
  out->ClassifyPattern();
  if (!out->uniform_) out->ForgetClasses();
  return out;
}

// Finds which source digit is at the place of each target digit.
void MeshTransfers::Match(const digits::Refinement& refinement) {
  const size_t k = digits_.size();
  displaced_.assign(k, -1);
  for (int d = 0; d < rank_; ++d) {
    // Exact places first; then, in a range that both layouts cut completely (6 as 2,3 against 3,2), digits of equal
    // size in order. Blocks, which every device keeps, cut nothing.
    absl::InlinedVector<const digits::DimCut*, 8> sources, targets, blocks;
    digits::Cuts of_sources{1}, of_targets{1};
    const auto collect = [&](const std::vector<digits::DimCut>& places, auto& into, digits::Cuts& boundaries) {
      for (const digits::DimCut& place : places) {
        if (place.dim != d) continue;
        boundaries.Add(place.hi);
        (place.digit >= 0 ? into : blocks).push_back(&place);
      }
    };
    collect(refinement.from, sources, of_sources);
    collect(refinement.to, targets, of_targets);
    digits::Cuts::Sorted common;
    std::set_intersection(of_sources.begin(), of_sources.end(), of_targets.begin(), of_targets.end(),
                          std::back_inserter(common));
    // The first common boundary of a place's range, or -1 if the range has no common end or blocks cut it.
    const auto block = [&](const digits::DimCut& place) {
      const auto end = std::lower_bound(common.begin(), common.end(), place.hi);
      if (end == common.end()) return int64_t{-1};
      const int64_t start = *std::prev(std::upper_bound(common.begin(), end, place.lo));
      const bool cut = std::any_of(blocks.begin(), blocks.end(),
                                   [&](const digits::DimCut* kept) { return kept->lo < *end && start < kept->hi; });
      return cut ? int64_t{-1} : start;
    };
    absl::InlinedVector<bool, 8> taken(sources.size(), false);
    for (bool exact : {true, false}) {
      for (const digits::DimCut* target : targets) {
        if (displaced_[target->digit] >= 0) continue;
        for (size_t i = 0; i < sources.size(); ++i) {
          const digits::DimCut* source = sources[i];
          if (taken[i] || source->hi / source->lo != target->hi / target->lo) continue;
          // A reflected axis shares elements with two coordinates of a plain one, so no digit is fixed by the other.
          if (source->kind != target->kind || source->kind == Factor::Kind::kSizes) continue;
          const bool fits = exact ? source->lo == target->lo : block(*source) == block(*target) && block(*source) >= 0;
          if (!fits) continue;
          displaced_[target->digit] = source->digit;
          taken[i] = true;
          break;
        }
      }
    }
  }
}

// The identity on the digits that the source does not use.
Sigma MeshTransfers::InPlace() const {
  Sigma sigma(digits_.size(), -1);
  for (size_t e = 0; e < sigma.size(); ++e) {
    if (from_dim_[e] < 0) sigma[e] = static_cast<int>(e);
  }
  return sigma;
}

// If only the target uses digit e, at a place where the source has digit a, all receivers of a source shard have the
// same e, and with sigma(e) = e the holders along e would be idle while one of them served everybody. The digit x in
// which the receivers of that shard do differ is found by following places: it is a or, if a itself moves to the place
// of another source digit, that digit, and so on.
Sigma MeshTransfers::ByPlace() const {
  const size_t k = digits_.size();
  Sigma sigma = InPlace();
  for (size_t e = 0; e < k; ++e) {
    if (from_dim_[e] >= 0 || displaced_[e] < 0) continue;
    int x = displaced_[e];
    for (size_t guard = 0; guard < k && displaced_[x] >= 0; ++guard) {
      if (displaced_[x] == x) break;
      x = displaced_[x];
    }
    // A receiver whose coordinates on e and x differ lacks a shard that differs from its own on x. So its holder has to
    // differ from it on x anyway, and differing on e too makes it no farther unless e is at a farther level than x.
    // This does not hold if x was found through several places.
    const bool no_farther = uniform_ && x == displaced_[e] && digits_[e].level <= digits_[x].level;
    if (digits_[e].level == 0 || no_farther) sigma[e] = x;
  }
  return sigma;
}

// Digits along which holders may be chosen freely for receivers that find none nearer than `level`, and on which all
// receivers of a shard agree.
std::vector<int> MeshTransfers::Starved(int level) const {
  std::vector<int> out;
  for (size_t e = 0; e < digits_.size(); ++e) {
    if (from_dim_[e] < 0 && displaced_[e] >= 0 && digits_[e].level <= level) out.push_back(static_cast<int>(e));
  }
  return out;
}

// Digits on which the receivers of a shard differ, although they say nothing about the holder yet. Those of near levels
// first: at `level` itself, receivers that are like the holder have one nearby.
std::vector<int> MeshTransfers::SpareDigits(int level) const {
  std::vector<int> out;
  for (int near = 0; near <= level; ++near) {
    for (size_t x = 0; x < digits_.size(); ++x) {
      if (from_dim_[x] >= 0 && displaced_[x] < 0 && digits_[x].level == near) out.push_back(static_cast<int>(x));
    }
  }
  return out;
}

// Example: [<a>8, <c>8] -> [<c>8, <b>8] on {a:2,b:2,c:2}. All receivers of a shard have its c as their b, so that one
// of its two holders would serve them all. They differ on a: sigma(b) = a.
void MeshTransfers::SpreadSenders() {
  for (int level = 0; level < num_levels_; ++level) {
    Sigma& sigma = sigma_.emplace_back(InPlace());
    std::vector<int> spare = SpareDigits(level);
    for (int e : Starved(level)) {
      const auto x =
          std::find_if(spare.begin(), spare.end(), [&](int s) { return digits_[s].size == digits_[e].size; });
      if (x == spare.end()) continue;
      sigma[e] = *x;
      spare.erase(x);
    }
  }
}

std::vector<AxisRef> MeshTransfers::CutsToSpread() const {
  struct Left {
    int digit;
    int64_t pre = 1;  // of the digit, what is matched already
    int64_t size;     // what is not
  };
  std::vector<AxisRef> cuts;
  std::vector<Left> spare;
  for (int x : SpareDigits(num_levels_ - 1)) spare.push_back({x, 1, digits_[x].size});
  const auto take = [&](Left& left, int64_t part) {
    const AxisRef& ref = digits_[left.digit].ref;
    if (part < left.size || left.pre > 1) cuts.push_back({ref.axis, ref.pre * left.pre, part});
    left.pre *= part;
    left.size /= part;
  };
  for (int e : Starved(num_levels_ - 1)) {
    Left starved{e, 1, digits_[e].size};
    while (starved.size > 1) {
      const auto common = [&](const Left& x) { return std::gcd(x.size, starved.size); };
      const auto best = std::max_element(spare.begin(), spare.end(), [&](const Left& a, const Left& b) {
        return std::pair(common(a), -a.size) < std::pair(common(b), -b.size);
      });
      if (best == spare.end() || common(*best) == 1) break;
      const int64_t part = common(*best);
      take(starved, part);
      take(*best, part);
    }
  }
  return cuts;
}

// Whether what a device does follows from which of its coordinates are equal: all factors are plain axes or blocks that
// divide evenly, the boundaries of both layouts form one chain in every dimension, and digits of the two sides that
// overlap are at the same place.
bool MeshTransfers::MeetAtPlaces(const digits::Refinement& refinement, const std::vector<const DimShards*>& from) {
  for (int d = 0; d < rank_; ++d) {
    digits::Cuts boundaries{1};
    for (const auto* side : {&refinement.from, &refinement.to}) {
      for (const digits::DimCut& place : *side) {
        if (place.dim != d) continue;
        if (place.kind != Factor::Kind::kAxis && place.kind != Factor::Kind::kBlocks) return false;
        boundaries.Add(place.hi);
      }
    }
    const int64_t size = from[d]->size;
    if (!boundaries.IsChain() || size == 0 || size % boundaries.end()[-1] != 0) return false;
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
  absl::InlinedVector<int, 12> first(k);  // per digit: the first of those that links tie to it
  std::iota(first.begin(), first.end(), 0);
  const auto link = [&](size_t e, size_t f) {
    const digits::DigitLink one{digits_[e].ref, digits_[f].ref};
    if (e == f || std::find(links_.begin(), links_.end(), one) != links_.end()) return;
    links_.push_back(one);
    const auto [low, high] = std::minmax(first[e], first[f]);
    std::replace(first.begin(), first.end(), int{high}, int{low});
  };
  for (const auto& [e, f] : met_) link(e, f);
  for (const Sigma& sigma : sigma_) {
    for (size_t e = 0; e < k; ++e) {
      if (sigma[e] >= 0) link(e, sigma[e]);
    }
  }
  std::optional<std::vector<digits::DeviceClass>> classes;
  if (uniform_) classes = digits::ClassesUnder(mesh_, links_);
  uniform_ = classes.has_value();
  num_classes_ = uniform_ ? classes->size() : static_cast<size_t>(active);
  coordinates_.resize(num_classes_ * k);
  for (Dim& dim : dims_) {
    dim.from_row.resize(num_classes_);
    dim.to_row.resize(num_classes_);
  }
  if (!uniform_) {
    EnumerateActive();
    return;
  }
  for (size_t i = 0; i < num_classes_; ++i) {
    const digits::DeviceClass& one = (*classes)[i];
    devices_.push_back(one.devices);
    int32_t* const at = coordinates_.data() + i * k;
    for (size_t e = 0; e < k; ++e) at[e] = digits_[e].Coordinate(one.position);
    for (Dim& dim : dims_) {
      dim.from_row[i] = static_cast<int32_t>(dim.from.Row(at));
      dim.to_row[i] = static_cast<int32_t>(dim.to.Row(at));
    }
  }
  NumberPatterns(first);
}

// Digits that neither layout uses change nothing: devices that differ only in these do the same. The others are
// enumerated like the digits of a number.
void MeshTransfers::EnumerateActive() {
  const size_t k = digits_.size();
  struct Column {
    int32_t* row = nullptr;  // of the next class
    int32_t at = 0;          // its value
  };
  absl::InlinedVector<Column, 8> columns;
  // By digit and column: how far the row moves where this digit goes up by one and those after it return to 0.
  std::vector<int32_t> steps(k * 2 * dims_.size(), 0);
  for (Dim& dim : dims_) {
    for (const auto& [side, rows] : {std::pair(&dim.from, &dim.from_row), std::pair(&dim.to, &dim.to_row)}) {
      const size_t c = columns.size();
      columns.push_back({rows->data(), 0});
      int64_t after = 0;
      for (size_t e = k; e-- > 0;) {
        const auto at = std::find(side->digits.begin(), side->digits.end(), static_cast<int>(e));
        const int64_t weight = at == side->digits.end() ? 0 : side->weights[at - side->digits.begin()];
        steps[e * 2 * dims_.size() + c] = static_cast<int32_t>(weight - after);
        after += weight * (digits_[e].size - 1);
      }
    }
  }
  absl::InlinedVector<int32_t, 12> at(k, 0);
  for (size_t i = 0; i < num_classes_; ++i) {
    std::copy(at.begin(), at.end(), coordinates_.begin() + static_cast<ptrdiff_t>(i * k));
    for (Column& column : columns) *column.row++ = column.at;
    size_t e = k;
    while (e-- > 0) {
      if (!active_digit_[e]) continue;
      if (++at[e] < digits_[e].size) break;
      at[e] = 0;
    }
    if (e >= k) break;
    const int32_t* step = &steps[e * columns.size()];
    for (Column& column : columns) column.at += *step++;
  }
}

void MeshTransfers::NumberPatterns(absl::Span<const int> first) {
  for (size_t e = 0; e < digits_.size(); ++e) {
    if (std::count(first.begin(), first.end(), first[e]) > 1) linked_.emplace_back(static_cast<int>(e), first[e]);
  }
  if (linked_.size() > kMostLinked) return;
  class_of_pattern_.reserve(num_classes_);
  for (size_t i = 0; i < num_classes_; ++i) class_of_pattern_.emplace_back(PatternOf(coordinates(i)), i);
  std::sort(class_of_pattern_.begin(), class_of_pattern_.end());
}

// Each linked digit gives the number of the first digit tied to it that has its coordinate:
//   a, b, c are tied together, with coordinates 3, 5, 3: 0, 1, 0, in four bits each.
uint64_t MeshTransfers::PatternOf(const int32_t* coordinates) const {
  uint64_t pattern = 0;
  for (size_t i = 0; i < linked_.size(); ++i) {
    size_t equal = 0;
    while (linked_[equal].second != linked_[i].second ||
           coordinates[linked_[equal].first] != coordinates[linked_[i].first]) {
      ++equal;
    }
    pattern = pattern << 4 | equal;
  }
  return pattern;
}

void MeshTransfers::SumSent() {
  within_.reserve(static_cast<size_t>(num_levels_));
  nearer_.reserve(static_cast<size_t>(num_levels_));
  for (int level = 0; level < num_levels_; ++level) {
    const Sigma& sigma = sigma_[level];
    Pins pins;
    bool swaps = false;
    for (size_t e = 0; e < digits_.size(); ++e) {
      const int digit = static_cast<int>(e);
      if (digits_[e].level > level) {
        pins.emplace_back(digit, digit);
      } else if (sigma[e] >= 0) {
        pins.emplace_back(sigma[e], digit);
        swaps |= sigma[e] != digit;
      }
    }
    within_.push_back(ReceiversOf(pins));
    nearer_.emplace_back();
    if (level == 0 ? !swaps : sigma == sigma_[level - 1]) continue;
    for (size_t d = 0; d < digits_.size(); ++d) {
      if (from_dim_[d] >= 0 && digits_[d].level == level) pins.emplace_back(static_cast<int>(d), static_cast<int>(d));
    }
    nearer_.back() = ReceiversOf(pins);
  }
}

MeshTransfers::Receivers MeshTransfers::ReceiversOf(const Pins& pins) const {
  Receivers out;
  out.pinned_by.assign(digits_.size(), -1);
  for (const auto& [receiver, sender] : pins) {
    int& by = out.pinned_by[receiver];
    if (by < 0) {
      by = sender;
    } else if (by != sender) {
      out.equal.emplace_back(by, sender);
    }
  }
  for (size_t f = 0; f < digits_.size(); ++f) {
    if (to_dim_[f] < 0 && out.pinned_by[f] < 0) out.times *= digits_[f].size;
  }
  absl::InlinedVector<int, 8> fixed_by;
  out.sums.reserve(dims_.size());
  for (const Dim& dim : dims_) {
    fixed_by.clear();
    for (int f : dim.to.digits) fixed_by.push_back(out.pinned_by[f]);
    out.sums.emplace_back(*dim.overlap, digits_, dim.from, dim.to, fixed_by, false);
  }
  return out;
}

}  // namespace reshard::transfers
