#include "tests/oracle/holdings.h"

#include <algorithm>
#include <bit>
#include <map>
#include <set>
#include <stdexcept>

namespace oracle {

int64_t ElementSet::Count() const {
  int64_t count = 0;
  for (const uint64_t word : words_) count += std::popcount(word);
  return count;
}

int64_t ElementSet::CountCommon(const ElementSet& other) const {
  int64_t count = 0;
  for (size_t i = 0; i < words_.size(); ++i) count += std::popcount(words_[i] & other.words_[i]);
  return count;
}

bool ElementSet::Within(const ElementSet& other) const {
  for (size_t i = 0; i < words_.size(); ++i) {
    if ((words_[i] & ~other.words_[i]) != 0) return false;
  }
  return true;
}

void ElementSet::Merge(const ElementSet& other) {
  for (size_t i = 0; i < words_.size(); ++i) words_[i] |= other.words_[i];
}

std::vector<std::vector<char>> DimMask(const Layout& layout, size_t dim) {
  const Dim& d = layout.dims[dim];
  if (SlotTable(d) != nullptr || !d.flattened.empty()) {
    std::vector<std::vector<char>> mask;
    for (int64_t p = 0; p < layout.mesh.size(); ++p) {
      std::vector<char>& mine = mask.emplace_back(static_cast<size_t>(d.size), 0);
      for (const int64_t i : InOrder(layout, dim, p)) mine[i] = 1;
    }
    return mask;
  }
  std::vector<Ref> refs;
  for (const Factor& factor : d.factors) {
    if (!factor.is_digit) refs.push_back(factor.ref);
  }
  std::vector<std::vector<int64_t>> coordinates;  // of each position along refs
  for (int64_t p = 0; p < layout.mesh.size(); ++p) {
    std::vector<int64_t>& mine = coordinates.emplace_back();
    for (const Ref& ref : refs) mine.push_back(Coordinate(layout.mesh, ref, p));
  }
  std::vector<std::vector<char>> mask(coordinates.size(), std::vector<char>(static_cast<size_t>(d.size), 0));
  for (int64_t i = 0; i < d.size; ++i) {
    const std::vector<int64_t> required = RequiredCoordinates(d, i);
    for (size_t p = 0; p < coordinates.size(); ++p) mask[p][i] = coordinates[p] == required;
  }
  return mask;
}

std::vector<int64_t> InOrder(const Layout& layout, size_t dim, int64_t position) {
  return HeldIndices(layout.mesh, layout.dims[dim], position);
}

std::vector<Span> Spans(const Layout& layout, size_t dim, int64_t position) {
  std::vector<Span> spans;
  std::vector<int64_t> indices = InOrder(layout, dim, position);
  std::sort(indices.begin(), indices.end());
  indices.erase(std::unique(indices.begin(), indices.end()), indices.end());
  for (const int64_t i : indices) {
    if (!spans.empty() && spans.back().end == i) {
      ++spans.back().end;
    } else {
      spans.push_back({i, i + 1});
    }
  }
  return spans;
}

namespace {

// Slots, or indices where there is no slot table.
int64_t LocalSize(const Layout& layout, size_t dim, int64_t position, const std::vector<char>& mask) {
  if (const Factor* table = SlotTable(layout.dims[dim])) {
    return static_cast<int64_t>(table->slots[Coordinate(layout.mesh, table->ref, position)].size());
  }
  return std::count(mask.begin(), mask.end(), 1);
}

}  // namespace

Holdings::Holdings(const Layout& from) : layout(from) {
  for (const Dim& dim : layout.dims) elements *= dim.size;
  for (size_t p = 0; p < layout.mesh.ids.size(); ++p) {
    std::vector<int64_t> held = {0};  // numbers of the held prefixes
    std::vector<int64_t>& shape = local_shape.emplace_back();
    for (size_t d = 0; d < layout.dims.size(); ++d) {
      std::vector<int64_t> next;
      const std::vector<int64_t> along = InOrder(layout, d, static_cast<int64_t>(p));
      shape.push_back(static_cast<int64_t>(along.size()));
      for (const int64_t prefix : held) {
        for (const int64_t i : along) next.push_back(prefix * layout.dims[d].size + i);
      }
      held = std::move(next);
    }
    ElementSet& set = sets.emplace_back(elements);
    for (const int64_t e : held) set.Insert(e);
    order.push_back(std::move(held));
  }
}

int64_t Holdings::LargestLocal() const {
  int64_t largest = 0;
  for (const std::vector<int64_t>& of_one : order) largest = std::max(largest, static_cast<int64_t>(of_one.size()));
  return largest;
}

int64_t Holdings::Number(const std::vector<int64_t>& index) const {
  int64_t number = 0;
  for (size_t d = 0; d < index.size(); ++d) number = number * layout.dims[d].size + index[d];
  return number;
}

Contributions::Contributions(const Layout& source) : source_(source) {
  std::map<std::vector<int64_t>, int64_t> numbers;
  for (int64_t p = 0; p < source.mesh.size(); ++p) {
    std::vector<int64_t> coordinates;
    for (const Ref& ref : source.partial) coordinates.push_back(Coordinate(source.mesh, ref, p));
    own_.push_back(numbers.emplace(coordinates, static_cast<int64_t>(numbers.size())).first->second);
  }
  if (numbers.size() > 64) throw std::runtime_error("oracle: more than 64 contributions");
  for (size_t i = 0; i < numbers.size(); ++i) all_ |= uint64_t{1} << i;
}

uint64_t Contributions::Needed(const Layout& layout, int64_t position) const {
  if (!Pends(layout)) return all_;
  if (layout.mesh.axes != source_.mesh.axes || layout.mesh.ids != source_.mesh.ids) {
    throw std::runtime_error("oracle: partial over another mesh");
  }
  uint64_t needed = 0;
  for (int64_t p = 0; p < source_.mesh.size(); ++p) {
    bool same = true;
    for (const Ref& ref : layout.partial) {
      same = same && Coordinate(layout.mesh, ref, p) == Coordinate(layout.mesh, ref, position);
    }
    if (same) needed |= Own(p);
  }
  return needed;
}

namespace {

void Scale(LowerBounds& bounds, int64_t element_bytes) {
  bounds.recv_max *= element_bytes;
  bounds.recv_total *= element_bytes;
  bounds.local_max *= element_bytes;
}

}  // namespace

LowerBounds MovementBounds(const Layout& from, const Layout& to, int64_t element_bytes) {
  LowerBounds bounds;
  std::vector<std::vector<std::vector<char>>> a;
  std::vector<std::vector<std::vector<char>>> b;
  for (size_t d = 0; d < to.dims.size(); ++d) {
    a.push_back(DimMask(from, d));
    b.push_back(DimMask(to, d));
  }
  for (int64_t p = 0; p < from.mesh.size(); ++p) {
    int64_t local = 1;
    for (size_t d = 0; d < a.size(); ++d) local *= LocalSize(from, d, p, a[d][p]);
    bounds.local_max = std::max(bounds.local_max, local);
  }
  for (int64_t q = 0; q < to.mesh.size(); ++q) {
    const int64_t p = from.mesh.Position(to.mesh.ids[q]);
    int64_t wanted = 1, local = 1;
    int64_t common = p < 0 ? 0 : 1;
    for (size_t d = 0; d < to.dims.size(); ++d) {
      const std::vector<char>& t = b[d][q];
      wanted *= std::count(t.begin(), t.end(), 1);
      local *= LocalSize(to, d, q, t);
      if (p < 0) continue;
      const std::vector<char>& s = a[d][p];
      int64_t both = 0;
      for (size_t i = 0; i < t.size(); ++i) both += t[i] != 0 && s[i] != 0 ? 1 : 0;
      common *= both;
    }
    bounds.local_max = std::max(bounds.local_max, local);
    bounds.recv_max = std::max(bounds.recv_max, wanted - common);
    bounds.recv_total += wanted - common;
  }
  Scale(bounds, element_bytes);
  return bounds;
}

LowerBounds Bounds(const Layout& from, const Layout& to, int64_t element_bytes) {
  const Contributions contributions(from);
  const Holdings a(from);
  const Holdings b(to);
  LowerBounds bounds;
  bounds.local_max = std::max(a.LargestLocal(), b.LargestLocal());
  std::set<int64_t> devices(from.mesh.ids.begin(), from.mesh.ids.end());
  devices.insert(to.mesh.ids.begin(), to.mesh.ids.end());

  // Targets that want the same sum of the same element can be served by one tree of messages.
  std::map<uint64_t, std::vector<int64_t>> groups;
  for (int64_t q = 0; q < to.mesh.size(); ++q) groups[contributions.Needed(to, q)].push_back(q);
  int64_t largest_reduced = 0;
  for (const auto& [needed, targets] : groups) {
    const int64_t contributors = std::popcount(needed);
    // Both views of a target: its position in `from` when what it holds there counts, else -1.
    std::vector<int64_t> helps;
    for (const int64_t q : targets) {
      const int64_t p = from.mesh.Position(to.mesh.ids[q]);
      helps.push_back(p >= 0 && (contributions.Own(p) & needed) != 0 ? p : -1);
    }
    if (contributors == 1) {
      for (size_t i = 0; i < targets.size(); ++i) {
        const ElementSet& want = b.sets[targets[i]];
        const int64_t have = helps[i] < 0 ? 0 : want.CountCommon(a.sets[helps[i]]);
        bounds.recv_max = std::max(bounds.recv_max, want.Count() - have);
        bounds.recv_total += want.Count() - have;
      }
      continue;
    }
    for (int64_t e = 0; e < b.elements; ++e) {
      int64_t wanting = 0;
      bool contributor_is_target = false;
      for (size_t i = 0; i < targets.size(); ++i) {
        if (!b.sets[targets[i]].Contains(e)) continue;
        ++wanting;
        contributor_is_target = contributor_is_target || (helps[i] >= 0 && a.sets[helps[i]].Contains(e));
      }
      if (wanting > 0) bounds.recv_total += contributors + wanting - 1 - (contributor_is_target ? 1 : 0);
    }
    for (const int64_t q : targets) largest_reduced = std::max(largest_reduced, b.sets[q].Count());
  }
  Scale(bounds, element_bytes);
  if (largest_reduced > 0) {
    const auto num_devices = static_cast<int64_t>(devices.size());
    const int64_t mean = (bounds.recv_total + num_devices - 1) / num_devices;
    bounds.recv_max = std::max({bounds.recv_max, largest_reduced * element_bytes, mean});
  }
  return bounds;
}

bool Pends(const Layout& layout) {
  return std::any_of(layout.partial.begin(), layout.partial.end(), [](const Ref& ref) { return ref.size > 1; });
}

namespace {

// Every cut of the dimension makes parts of one length. -1 if not, else the elements that each device holds.
int64_t EvenLength(const Dim& dim) {
  int64_t held = dim.size;
  if (!dim.flattened.empty()) {
    held = 1;
    for (const Dim& inner : dim.flattened) {
      const int64_t length = EvenLength(inner);
      if (length < 0) return -1;
      held *= length;
    }
  }
  int64_t interval = held;
  for (const Factor& factor : dim.factors) {
    if (interval % factor.parts != 0) return -1;
    interval /= factor.parts;
    if (!factor.is_digit) held /= factor.parts;
    for (const int64_t size : factor.sizes) {
      if (size != interval) return -1;
    }
  }
  return held;
}

}  // namespace

bool EvenlyDivided(const Layout& layout) {
  return std::all_of(layout.dims.begin(), layout.dims.end(), [](const Dim& dim) { return EvenLength(dim) >= 0; });
}

bool Equivalent(const Layout& a, const Layout& b) {
  if (a.shape() != b.shape()) return false;
  const Holdings x(a);
  const Holdings y(b);
  // Something partial over a single device is the value itself.
  const bool any_partial = Pends(a) || Pends(b);
  if (any_partial && a.partial_op != b.partial_op) return false;
  const Contributions contributions(a);
  for (size_t p = 0; p < x.sets.size(); ++p) {
    const int64_t q = b.mesh.Position(a.mesh.ids[p]);
    if (q < 0 ? x.sets[p].Count() != 0 : x.sets[p] != y.sets[q]) return false;
    if (q >= 0 && x.order[p] != y.order[q]) return false;
    if (any_partial && q >= 0 && contributions.Needed(b, q) != contributions.Own(static_cast<int64_t>(p))) return false;
  }
  for (size_t q = 0; q < y.sets.size(); ++q) {
    if (a.mesh.Position(b.mesh.ids[q]) < 0 && y.sets[q].Count() != 0) return false;
  }
  return true;
}

}  // namespace oracle
