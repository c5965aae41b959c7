#include "planner/digits/digit_model.h"

#include <algorithm>
#include <map>
#include <set>

#include "layout/flatten.h"

namespace reshard::digits {
namespace {

bool PlainFactors(const Layout& layout) {
  for (const DimLayout& dim : layout.dims()) {
    int64_t parts = 1;
    for (const Factor& factor : dim.factors) {
      if (factor.kind != Factor::Kind::kAxis && factor.kind != Factor::Kind::kBlocks) return false;
      parts *= factor.parts();
      if (dim.size % parts != 0) return false;
    }
    if (dim.size == 0) return false;
  }
  return true;
}

// Where each mesh digit stands: index of a place in (dim, lo) terms, -1 replicated, -2 partial.
std::vector<int> Positions(const std::vector<DimCut>& used, const std::vector<int>& partial,
                           const std::vector<DigitModel::DigitPlace>& places, size_t digits) {
  std::vector<int> out(digits, kReplicated);
  for (const DimCut& place : used) {
    if (place.digit < 0) continue;
    for (size_t i = 0; i < places.size(); ++i) {
      if (places[i].dim == place.dim && places[i].lo == place.lo && places[i].lo * places[i].size == place.hi) {
        out[place.digit] = static_cast<int>(i);
      }
    }
  }
  for (int digit : partial) out[digit] = kPartialDigit;
  return out;
}

}  // namespace

std::optional<DigitModel> DigitModel::Create(const Layout& source, const Layout& target, bool boxes,
                                             const MeshLevels* levels, bool keep_still,
                                             const std::vector<AxisRef>& cuts, int most_digits) {
  if (!(source.mesh() == target.mesh()) || !PlainFactors(source) || !PlainFactors(target)) return std::nullopt;
  const auto refinement = Refine(source, target, levels, cuts);
  if (!refinement) return std::nullopt;
  DigitModel out;
  out.has_levels_ = levels != nullptr;
  out.source_layout_ = source;
  out.target_layout_ = target;
  out.all_digits_ = refinement->digits;
  out.devices_ = source.mesh().size();
  out.elements_ = source.num_elements();

  // The chain of boundaries of every dimension and the places between them.
  std::vector<int64_t> tail(static_cast<size_t>(source.rank()), 1);
  std::vector<int64_t> tail_lo(static_cast<size_t>(source.rank()), 1);
  for (int d = 0; d < source.rank(); ++d) {
    std::set<int64_t> boundaries{1};
    for (const auto* used : {&refinement->from, &refinement->to}) {
      for (const DimCut& place : *used) {
        if (place.dim != d) continue;
        boundaries.insert(place.lo);
        boundaries.insert(place.hi);
      }
    }
    int64_t lo = 1;
    for (int64_t hi : boundaries) {
      if (hi % lo != 0) return std::nullopt;
      if (hi > lo) out.places_.push_back({d, lo, hi / lo, false, false});
      lo = hi;
    }
    if (source.dim(d).size % lo != 0) return std::nullopt;
    tail[d] = source.dim(d).size / lo;
    tail_lo[d] = lo;
  }
  const size_t k = refinement->digits.size();
  const std::vector<int> from = Positions(refinement->from, refinement->from_partial, out.places_, k);
  const std::vector<int> to = Positions(refinement->to, refinement->to_partial, out.places_, k);
  for (const auto* used : {&refinement->from, &refinement->to}) {
    const auto& at = used == &refinement->from ? from : to;
    for (const DimCut& place : *used) {
      if (place.digit >= 0 && at[place.digit] == kReplicated) return std::nullopt;
    }
  }

  // Digits that stand still at a place only define independent groups, and so do those that stay partial; with boxes
  // a digit may have to step aside to keep intermediates contiguous. Digits that replicate in both layouts can make
  // what moves smaller for a while: as many of them as there is room for.
  std::vector<bool> in_model(k);
  for (size_t e = 0; e < k; ++e) {
    in_model[e] = from[e] != to[e] || boxes || keep_still;
    out.num_moving_ += from[e] != to[e] ? 1 : 0;
  }
  auto room = most_digits - std::count(in_model.begin(), in_model.end(), true);
  if (room < 0) return std::nullopt;
  for (size_t e = 0; e < k; ++e) {
    if (in_model[e] || from[e] != kReplicated) continue;
    in_model[e] = room > 0;
    out.complete_ &= room > 0;
    --room;
  }
  for (size_t e = 0; e < k && keep_still; ++e) {
    if (in_model[e] || room <= 0) continue;
    in_model[e] = true;
    --room;
  }
  out.model_digit_.assign(k, -1);
  out.fixed_place_.assign(k, -1);
  out.fixed_partial_.assign(k, false);
  for (size_t e = 0; e < k; ++e) {
    if (!in_model[e]) {
      out.fixed_place_[e] = from[e] >= 0 ? from[e] : -1;
      out.fixed_partial_[e] = from[e] == kPartialDigit;
      if (from[e] >= 0) {
        DigitPlace& place = out.places_[from[e]];
        out.elements_ /= place.size;
        place.fixed = true;
      }
      continue;
    }
    out.model_digit_[e] = static_cast<int>(out.sizes_.size());
    out.source_.at[out.sizes_.size()] = static_cast<int8_t>(from[e]);
    out.target_.at[out.sizes_.size()] = static_cast<int8_t>(to[e]);
    out.sizes_.push_back(refinement->digits[e].size);
    out.refined_.push_back(refinement->digits[e]);
  }

  // Places beyond those two: one for each digit, or as many in a row as fit when intermediates are boxes.
  for (size_t e = 0; e < out.sizes_.size(); ++e) {
    for (size_t d = 0; d < tail.size(); ++d) {
      if (tail[d] % out.sizes_[e] != 0) continue;
      out.places_.push_back({static_cast<int>(d), tail_lo[d], out.sizes_[e], false, true});
      tail_lo[d] *= out.sizes_[e];
      tail[d] /= out.sizes_[e];
      if (!boxes) break;
    }
  }
  if (out.places_.size() > 100) return std::nullopt;
  return out;
}

int64_t DigitModel::LocalElements(const State& state) const {
  int64_t local = elements_;
  for (size_t e = 0; e < sizes_.size(); ++e) {
    if (state.at[e] >= 0) local /= sizes_[e];
  }
  return local;
}

bool DigitModel::IsBox(const State& state) const {
  std::vector<bool> occupied(places_.size(), false);
  for (int place : fixed_place_) {
    if (place >= 0) occupied[place] = true;
  }
  for (size_t e = 0; e < sizes_.size(); ++e) {
    if (state.at[e] >= 0) occupied[state.at[e]] = true;
  }
  for (size_t i = 0; i < places_.size(); ++i) {
    if (occupied[i]) continue;
    for (size_t j = 0; j < places_.size(); ++j) {
      if (occupied[j] && places_[j].dim == places_[i].dim && places_[j].lo > places_[i].lo) return false;
    }
  }
  return true;
}

DigitModel DigitModel::Compacted(const std::vector<State>& states) const {
  DigitModel out = *this;
  std::vector<bool> used(places_.size(), false);
  for (const State& state : states) {
    for (int8_t place : state.at) {
      if (place >= 0) used[place] = true;
    }
  }
  // Tail places of a dimension follow each other from the end of what source and target use.
  std::map<int, int64_t> next;
  for (size_t i = 0; i < places_.size(); ++i) {
    if (!places_[i].tail) continue;
    int64_t& lo = next.emplace(places_[i].dim, places_[i].lo).first->second;
    out.places_[i].lo = lo;
    if (used[i]) lo *= places_[i].size;
  }
  return out;
}

Layout DigitModel::ToLayout(const State& state) const {
  if (state == source_) return source_layout_;
  if (state == target_) return target_layout_;
  std::vector<int> digit_at(places_.size(), -1);
  std::vector<AxisRef> partial;
  auto append = [&](std::vector<AxisRef>& refs, const AxisRef& ref) {
    if (!refs.empty() && refs.back().axis == ref.axis && refs.back().pre * refs.back().size == ref.pre) {
      refs.back().size *= ref.size;
    } else {
      refs.push_back(ref);
    }
  };
  for (size_t e = 0; e < all_digits_.size(); ++e) {
    const int m = model_digit_[e];
    const int place = m < 0 ? fixed_place_[e] : state.at[m];
    const bool is_partial = m < 0 ? fixed_partial_[e] : state.at[m] == kPartialDigit;
    if (is_partial) append(partial, all_digits_[e].ref);
    if (place >= 0) digit_at[place] = static_cast<int>(e);
  }
  std::vector<DimLayout> dims(source_layout_.dims().size());
  for (size_t d = 0; d < dims.size(); ++d) {
    dims[d] = layout::Whole(source_layout_.dim(static_cast<int>(d)));
    std::vector<std::pair<int64_t, size_t>> order;
    for (size_t i = 0; i < places_.size(); ++i) {
      if (places_[i].dim == static_cast<int>(d) && digit_at[i] >= 0) order.emplace_back(places_[i].lo, i);
    }
    std::sort(order.begin(), order.end());
    int64_t reached = 1;
    for (const auto& [lo, i] : order) {
      if (lo > reached) dims[d].factors.push_back(Factor::Blocks(lo / reached));
      const AxisRef& ref = all_digits_[digit_at[i]].ref;
      auto& factors = dims[d].factors;
      if (!factors.empty() && factors.back().has_axis() && factors.back().axis.axis == ref.axis &&
          factors.back().axis.pre * factors.back().axis.size == ref.pre) {
        factors.back().axis.size *= ref.size;
      } else {
        factors.push_back(Factor::Along(ref));
      }
      reached = lo * places_[i].size;
    }
  }
  std::optional<Partial> reduction;
  if (!partial.empty()) reduction = Partial{source_layout_.partial()->op, partial};
  return *Layout::Create(source_layout_.mesh(), std::move(dims), std::move(reduction));
}

}  // namespace reshard::digits
