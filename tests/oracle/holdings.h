// Who holds what, element by element, and what no plan between two layouts can beat.
#ifndef RESHARD_TESTS_ORACLE_HOLDINGS_H_
#define RESHARD_TESTS_ORACLE_HOLDINGS_H_

#include <cstdint>
#include <vector>

#include "tests/oracle/text.h"

namespace oracle {

// A set of elements, by row-major global number.
class ElementSet {
 public:
  ElementSet() = default;
  explicit ElementSet(int64_t elements) : words_(static_cast<size_t>((elements + 63) / 64)) {}

  void Insert(int64_t e) { words_[e / 64] |= uint64_t{1} << (e % 64); }
  bool Contains(int64_t e) const { return (words_[e / 64] >> (e % 64) & 1) != 0; }
  int64_t Count() const;
  int64_t CountCommon(const ElementSet& other) const;
  bool Within(const ElementSet& other) const;
  void Merge(const ElementSet& other);
  bool operator==(const ElementSet&) const = default;
  bool operator<(const ElementSet& other) const { return words_ < other.words_; }

 private:
  std::vector<uint64_t> words_;
};

// A half-open interval of indices.
struct Span {
  int64_t begin = 0;
  int64_t end = 0;
  bool operator==(const Span&) const = default;
};

// mask[position][index]: who holds which index of dimension `dim`.
std::vector<std::vector<char>> DimMask(const Layout& layout, size_t dim);
// The indices that one device holds, in local order.
std::vector<int64_t> InOrder(const Layout& layout, size_t dim, int64_t position);
// The same as DimMask for one device as sorted, disjoint, non-touching, non-empty spans.
std::vector<Span> Spans(const Layout& layout, size_t dim, int64_t position);

// Every element of a small tensor.
struct Holdings {
  explicit Holdings(const Layout& layout);

  Layout layout;
  int64_t elements = 1;                           // of the whole tensor
  std::vector<ElementSet> sets;                   // by position
  std::vector<std::vector<int64_t>> order;        // by position: the elements in local order, with repetitions
  std::vector<std::vector<int64_t>> local_shape;  // by position

  int64_t LargestLocal() const;
  // The row-major number of an element.
  int64_t Number(const std::vector<int64_t>& index) const;
};

// Whether anything is partial over more than one device.
bool Pends(const Layout& layout);
// Whether every factor cuts into chunks of one size, so that all shards have the same shape.
bool EvenlyDivided(const Layout& layout);

// Contributions to a partial value, numbered by the coordinates along the axes that are partial in `source`. A value is
// the set of contributions that have been combined into it.
class Contributions {
 public:
  // Throws std::runtime_error above 64 contributions.
  explicit Contributions(const Layout& source);
  // What the device at `position` of the source mesh contributes.
  uint64_t Own(int64_t position) const { return uint64_t{1} << own_[position]; }
  // What the values of the device must be made of in `layout`: everything when nothing is partial there. Throws when
  // something is partial over another mesh.
  uint64_t Needed(const Layout& layout, int64_t position) const;

 private:
  Layout source_;
  std::vector<int64_t> own_;
  uint64_t all_ = 0;
};

// In bytes.
struct LowerBounds {
  int64_t recv_max = 0;
  int64_t recv_total = 0;
  int64_t local_max = 0;  // the larger of both ends
};

// Without partial values; any size, dimension by dimension.
LowerBounds MovementBounds(const Layout& from, const Layout& to, int64_t element_bytes);
// Small tensors, partial values allowed.
LowerBounds Bounds(const Layout& from, const Layout& to, int64_t element_bytes);

// Whether both say the same of every device id, element by element.
bool Equivalent(const Layout& a, const Layout& b);

}  // namespace oracle

#endif  // RESHARD_TESTS_ORACLE_HOLDINGS_H_
