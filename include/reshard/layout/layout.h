// A layout says which device holds which elements of a tensor: over a mesh, the tensor's global shape, for each
// dimension a list of factors (major first), and the axes over which the values are still partial.
//
// Meaning. A dimension of n elements with factors f1..fk starts as the interval [0,n). A factor of size s cuts every
// current interval of length m into s chunks of c = ceil(m/s): chunk j = [min(m,j*c), min(m,(j+1)*c)).
//   axis X        keeps chunk j, where j is the device's coordinate along X
//   sub-axis      the same with the middle digit of X split into (pre, size, rest)
//   ~X            keeps chunk j in even-numbered and chunk s-1-j in odd-numbered intervals (ascending, empty included)
//   block s       (a plain integer) keeps all s chunks as separate intervals
//   X=[a,b,..]    cuts into chunks of exactly these sizes, which add up to the length of every interval they cut
//   X={a,b|c|..}  a slot table, the only factor of its dimension: per coordinate, the indices that it holds, in slot
//                 order; several devices may hold an index, and one device may hold it in several slots
// Neighboring dimensions may be flattened into one, row-major: <dp>(512, <tp>128). Factors inside cut their dimension
// first; those in front cut what a device then holds, in local order, as if it were one interval.
// An axis that appears nowhere replicates the tensor. Where values are partial over an axis, every device along it
// holds one contribution to the same elements.
#ifndef RESHARD_LAYOUT_LAYOUT_H_
#define RESHARD_LAYOUT_LAYOUT_H_

#include <cassert>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/types/span.h"
#include "reshard/layout/mesh.h"

namespace reshard {

inline constexpr int kMaxRank = 64;      // maximum number of dimensions of a tensor
inline constexpr int kMaxFlattened = 4;  // how deep flattened dimensions may nest
// Maximum number of intervals that one device may hold along one dimension; layouts with more are refused.
inline constexpr int64_t kMaxIntervals = int64_t{1} << 20;

// Half-open interval of global indices along one dimension.
struct Interval {
  int64_t begin = 0;                              // first index, in elements
  int64_t end = 0;                                // one past the last index
  int64_t length() const { return end - begin; }  // in elements
  bool operator==(const Interval&) const = default;
  template <typename H>
  friend H AbslHashValue(H h, const Interval& interval) {
    return H::combine(std::move(h), interval.begin, interval.end);
  }
};

// A mesh axis or a part of one. An axis of size n is read as three digits (pre, size, rest) with rest = n/(pre*size);
// the reference denotes the middle one, coordinate / rest % size. The whole axis is pre = 1, size = n.
struct AxisRef {
  int axis = 0;      // index into Mesh::axes()
  int64_t pre = 1;   // size of the digit in front, the more significant one
  int64_t size = 1;  // number of values of the digit referred to
  bool operator==(const AxisRef&) const = default;
  template <typename H>
  friend H AbslHashValue(H h, const AxisRef& ref) {
    return H::combine(std::move(h), ref.axis, ref.pre, ref.size);
  }
};

// One cut of a dimension, as described at the top of this file.
struct Factor {
  // X or a sub-axis of it; ~X; a block, written as an integer; X=[a,b,..]; X={a,b|c|..}.
  enum class Kind { kAxis, kReflected, kBlocks, kSizes, kDigit [[deprecated("kBlocks")]] = kBlocks, kSlots = 4 };
  Kind kind = Kind::kAxis;      // which of these it is; decides which fields below count
  AxisRef axis;                 // all kinds but kBlocks; whole axes for kReflected, kSizes and kSlots
  bool written_as_sub = false;  // kAxis: printed as X:(pre)size even if it is the whole axis
  int64_t blocks = 1;           // kBlocks: how many
  std::vector<int64_t> sizes;   // kSizes: chunk sizes in elements, one per coordinate
  // kSlots: one list per coordinate, of the runs of indices that fill its slots, in slot order. A run that continues
  // the one before is merged into it.
  std::vector<std::vector<Interval>> slots;

  // X, or the sub-axis of it that the reference denotes.
  static Factor Along(const AxisRef& ref) {
    Factor factor;
    factor.axis = ref;
    return factor;
  }
  // ~X.
  static Factor Reflected(const AxisRef& axis) {
    Factor factor = Along(axis);
    factor.kind = Kind::kReflected;
    return factor;
  }
  // A block.
  static Factor Blocks(int64_t count) {
    Factor factor;
    factor.kind = Kind::kBlocks;
    factor.blocks = count;
    return factor;
  }

  // X={..}: the index in each slot, coordinate by coordinate.
  static Factor Slots(const AxisRef& axis, absl::Span<const std::vector<int64_t>> indices);

  // Number of chunks that the factor cuts an interval into.
  int64_t parts() const { return kind == Kind::kBlocks ? blocks : axis.size; }
  // False for a block, which does not depend on the device.
  bool has_axis() const { return kind != Kind::kBlocks; }
  bool operator==(const Factor&) const = default;
  template <typename H>
  friend H AbslHashValue(H h, const Factor& factor) {
    return H::combine(std::move(h), factor.kind, factor.axis, factor.written_as_sub, factor.blocks, factor.sizes,
                      factor.slots);
  }
};

// One dimension of a layout: a dimension of the tensor, or several neighboring ones flattened into one.
struct DimLayout {
  int64_t size = 0;             // of the whole tensor, in elements; Create computes it where dimensions are flattened
  std::vector<Factor> factors;  // major first; none: every device holds the whole dimension
  // The dimensions that are flattened into this one, outermost first, each with the factors that cut it before
  // flattening; empty for a dimension of the tensor.
  std::vector<DimLayout> flattened = {};

  // Whether an axis cuts a flattened dimension before flattening; `factors` alone then do not say who holds what.
  bool cut_before_flattened() const;
  // The axes that choose the shard, major first: those of the flattened dimensions, then those of `factors`.
  std::vector<AxisRef> Axes() const;

  bool operator==(const DimLayout&) const = default;
  template <typename H>
  friend H AbslHashValue(H h, const DimLayout& dim) {
    return H::combine(std::move(h), dim.size, dim.factors, dim.flattened);
  }
};

// How partial values combine.
enum class ReduceOp { kSum, kAvg, kMin, kMax, kProd };
// "sum", "avg", "min", "max", "prod".
const char* Name(ReduceOp op);
// The inverse; nullopt for any other text.
std::optional<ReduceOp> FindReduceOp(std::string_view name);

// A reduction that is still to be done: the values held are partial, and the tensor's value is their reduction by `op`
// over the devices along `axes`.
struct Partial {
  ReduceOp op = ReduceOp::kSum;  // combines the contributions
  std::vector<AxisRef> axes;     // each device along these holds one contribution
  bool operator==(const Partial&) const = default;
  template <typename H>
  friend H AbslHashValue(H h, const Partial& partial) {
    return H::combine(std::move(h), partial.op, partial.axes);
  }
};

// An immutable layout that obeys every rule of the algebra. A value type: copies share their state, so a copy costs a
// reference count, and a moved-from layout keeps its value.
class Layout {
 public:
  // A 0-d tensor on one device.
  Layout();
  Layout(const Layout&) = default;
  Layout& operator=(const Layout&) = default;

  // Checks every rule of the algebra. InvalidArgument names the broken rule: rank above kMaxRank, negative sizes, an
  // element count that does not fit in an int64, an unknown axis, an axis (or overlapping sub-axes of it) used twice, a
  // sub-axis that does not divide its axis, explicit sizes that do not add up, a block count below 1, more than
  // kMaxIntervals intervals, a slot table next to other factors of its dimension or to a second slot table, an index
  // that no slot holds, a device with more slots than the dimension has indices; dimensions flattened more than
  // kMaxFlattened deep, a slot table inside flattened dimensions, blocks, reflected axes and explicit sizes that cut
  // fragments of different lengths.
  static absl::StatusOr<Layout> Create(const Mesh& mesh, std::vector<DimLayout> dims,
                                       std::optional<Partial> partial = std::nullopt);

  // The devices, and the axes that the factors refer to.
  const Mesh& mesh() const { return state_->mesh; }
  // Number of dimensions; those flattened into one count once.
  int rank() const { return static_cast<int>(dims().size()); }
  // One per dimension.
  const std::vector<DimLayout>& dims() const { return state_->dims; }
  // Requires 0 <= d < rank().
  const DimLayout& dim(int d) const {
    assert(d >= 0 && d < rank());
    return dims()[d];
  }
  // The dimension that a slot table cuts; nullopt if there is none.
  std::optional<int> slot_dim() const { return state_->slot_dim; }
  // Whether dimensions are flattened.
  bool flattens() const { return state_->flattens; }
  // Whether the factors of each dimension say who holds what: there is no slot table, and no dimension is cut before it
  // is flattened. Otherwise shard_map.h says it.
  bool only_factors() const { return state_->only_factors; }
  // The reduction still to be done; nullopt if the values are complete.
  const std::optional<Partial>& partial() const { return state_->partial; }
  [[deprecated("partial()")]] const std::optional<Partial>& pending() const { return partial(); }  // until 0.4
  // The same fragments with a different partial reduction; nullopt: with complete values. Errors as for Create.
  absl::StatusOr<Layout> WithPartial(std::optional<Partial> partial) const;
  Layout WithoutPartial() const;
  // Global sizes in elements, one per dimension of the tensor.
  std::vector<int64_t> shape() const;
  // Number of elements of the whole tensor.
  int64_t num_elements() const { return state_->num_elements; }

  // The non-empty intervals that the device at `position` holds along dimension d, in local order: sorted, disjoint and
  // not touching, unless a slot table cuts the dimension.
  std::vector<Interval> Intervals(int64_t position, int d) const;
  // Number of elements that the device at `position` holds along each dimension of the layout; flattened dimensions
  // count as one.
  std::vector<int64_t> LocalShape(int64_t position) const;
  // For each dimension, the maximum over all devices: what text prints as the local size.
  std::vector<int64_t> MaxLocalShape() const;
  // Number of elements of the largest fragment of any device.
  int64_t MaxLocalElements() const;

  // The value, 0 .. ref.size-1, of the digit `ref` at a device position.
  int64_t Coordinate(int64_t position, const AxisRef& ref) const;

  // Same mesh, same factors as written, partial in the same way. See Equivalent() for equality of meaning.
  bool operator==(const Layout& other) const;
  // Constant time.
  template <typename H>
  friend H AbslHashValue(H h, const Layout& layout) {
    return H::combine(std::move(h), layout.state_->hash);
  }

 private:
  struct State {
    State(const Mesh& of_mesh, std::vector<DimLayout> of_dims, std::optional<Partial> of_partial, int64_t elements);
    Mesh mesh;
    std::vector<DimLayout> dims;
    std::optional<Partial> partial;
    int64_t num_elements;
    std::optional<int> slot_dim;
    bool flattens;
    bool only_factors;
    size_t hash;  // of mesh, dims and partial
  };

  explicit Layout(std::shared_ptr<const State> state) : state_(std::move(state)) {}

  std::shared_ptr<const State> state_;  // never null
};

// The layout of a tensor of these sizes with dimension `dim` cut by `factors`; -1 cuts none. Errors as for
// Layout::Create, also for a dimension that does not exist.
absl::StatusOr<Layout> EvenLayout(const Mesh& mesh, absl::Span<const int64_t> sizes, int dim = -1,
                                  std::vector<Factor> factors = {});

}  // namespace reshard

#endif  // RESHARD_LAYOUT_LAYOUT_H_
