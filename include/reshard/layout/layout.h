// A layout says who holds what: a tensor's global shape, for each dimension a list of factors (major first), and the
// axes over which the held values are still partial, all over a mesh.
//
// Meaning. A dimension of n elements with factors f1..fk starts as the interval [0,n). A factor of size s cuts every
// current interval of length m into s chunks of c = ceil(m/s): chunk j = [min(m,j*c), min(m,(j+1)*c)).
//   axis X        keeps chunk j where j is the device's coordinate along X
//   sub-axis      the same with the middle digit of X split into (pre, size, rest)
//   ~X            keeps chunk j in even-numbered and chunk s-1-j in odd-numbered intervals (ascending, empty included)
//   integer digit keeps all s chunks as separate intervals
//   X=[a,b,..]    cuts into chunks of exactly these sizes; they add up to the length of every interval they cut
// An axis that appears nowhere replicates. Partial values over an axis: every device along it holds one contribution to
// the same elements.
#ifndef RESHARD_LAYOUT_LAYOUT_H_
#define RESHARD_LAYOUT_LAYOUT_H_

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "reshard/layout/mesh.h"

namespace reshard {

inline constexpr int kMaxRank = 64;
// More intervals than this in one dimension of one device are refused.
inline constexpr int64_t kMaxIntervals = int64_t{1} << 20;

// Half-open interval of global indices along one dimension.
struct Interval {
  int64_t begin = 0;
  int64_t end = 0;
  int64_t length() const { return end - begin; }
  bool operator==(const Interval&) const = default;
};

// A mesh axis or a part of it. The axis of size n is read as three digits (pre, size, rest), rest = n/(pre*size); the
// reference means the middle one: coordinate / rest % size. The whole axis is pre = 1, size = n.
struct AxisRef {
  int axis = 0;
  int64_t pre = 1;
  int64_t size = 1;
  bool operator==(const AxisRef&) const = default;
};

struct Factor {
  enum class Kind { kAxis, kReflected, kDigit, kSizes };
  Kind kind = Kind::kAxis;
  AxisRef axis;                 // all kinds but kDigit; whole axes for kReflected and kSizes
  bool written_as_sub = false;  // kAxis: printed as X:(pre)size even when it is the whole axis
  int64_t digit = 1;            // kDigit: the number of blocks
  std::vector<int64_t> sizes;   // kSizes: one a coordinate

  // Chunks it cuts an interval into.
  int64_t parts() const { return kind == Kind::kDigit ? digit : axis.size; }
  bool has_axis() const { return kind != Kind::kDigit; }
  bool operator==(const Factor&) const = default;
};

struct DimLayout {
  int64_t size = 0;  // global elements
  std::vector<Factor> factors;
  bool operator==(const DimLayout&) const = default;
};

enum class ReduceOp { kSum, kAvg, kMin, kMax, kProd };
const char* Name(ReduceOp op);

// Values not yet reduced: the real value is op over the devices along `axes`.
struct Pending {
  ReduceOp op = ReduceOp::kSum;
  std::vector<AxisRef> axes;
  bool operator==(const Pending&) const = default;
};

class Layout {
 public:
  // A replicated 0-d tensor on one device.
  Layout();

  // Checks every rule of the algebra. InvalidArgument with the rule broken: rank above kMaxRank, negative sizes, an
  // element count that does not fit int64, an unknown axis, an axis (or overlapping sub-axes of it) used twice, a
  // sub-axis that does not divide, explicit sizes that do not add up, a digit below 1, more than kMaxIntervals
  // intervals.
  static absl::StatusOr<Layout> Create(std::shared_ptr<const Mesh> mesh, std::vector<DimLayout> dims,
                                       std::optional<Pending> pending = std::nullopt);

  const Mesh& mesh() const { return *mesh_; }
  const std::shared_ptr<const Mesh>& mesh_ptr() const { return mesh_; }
  int rank() const { return static_cast<int>(dims_.size()); }
  const std::vector<DimLayout>& dims() const { return dims_; }
  const DimLayout& dim(int d) const { return dims_[static_cast<size_t>(d)]; }
  const std::optional<Pending>& pending() const { return pending_; }
  std::vector<int64_t> shape() const;
  // Elements of the whole tensor.
  int64_t num_elements() const { return num_elements_; }

  // The sorted, disjoint, non-touching, non-empty intervals that the device at `position` holds along dimension d.
  std::vector<Interval> Intervals(int64_t position, int d) const;
  // Elements the device at `position` holds along each dimension.
  std::vector<int64_t> LocalShape(int64_t position) const;
  // Per dimension, the largest over devices (what text prints as the local size).
  std::vector<int64_t> MaxLocalShape() const;
  // Elements of the largest fragment.
  int64_t MaxLocalElements() const;

  // The coordinate of a device position along an axis reference.
  int64_t Coordinate(int64_t position, const AxisRef& ref) const;

  // Same mesh, same factors as written, same pending. See Equivalent() for equality of meaning.
  bool operator==(const Layout& other) const;

 private:
  std::shared_ptr<const Mesh> mesh_;
  std::vector<DimLayout> dims_;
  std::optional<Pending> pending_;
  int64_t num_elements_ = 1;
};

}  // namespace reshard

#endif  // RESHARD_LAYOUT_LAYOUT_H_
