// Who holds what under one layout, device by device: intervals come from Layout::Intervals, device by device, and equal
// interval lists have one number, whichever layouts they come from.
#ifndef RESHARD_CHECK_HOLDINGS_H_
#define RESHARD_CHECK_HOLDINGS_H_

#include <cstdint>
#include <memory>
#include <optional>
#include <vector>

#include "absl/container/flat_hash_map.h"
#include "absl/container/flat_hash_set.h"
#include "absl/status/statusor.h"
#include "reshard/layout/layout.h"

namespace reshard::check {

// The distinct interval lists of one dimension. Number 0 is the empty one.
class Contents {
 public:
  Contents() { Intern({}); }
  int32_t Intern(const std::vector<Interval>& intervals);
  const std::vector<Interval>& intervals(int32_t content) const { return lists_[content]; }
  int64_t length(int32_t content) const { return starts_[content].back(); }
  struct RunPosition {
    int64_t interval = 0;  // its number in the list
    int64_t local = 0;     // elements of the list before the first one of the run
  };
  // The first position of the `size` >= 1 neighboring elements from `begin` on; nothing unless one interval holds them
  // all.
  std::optional<RunPosition> Find(int32_t content, int64_t begin, int64_t size) const;

 private:
  std::vector<std::vector<Interval>> lists_;
  std::vector<std::vector<int64_t>> starts_;  // elements before each interval, and in all
  std::vector<bool> ascending_;               // whether a list's intervals are, without overlaps
  absl::flat_hash_map<std::vector<int64_t>, int32_t> index_;
};

// The devices of all meshes of a plan, numbered from 0 by ascending id.
class Devices {
 public:
  explicit Devices(const absl::flat_hash_set<Mesh>& meshes);
  int64_t size() const { return static_cast<int64_t>(ids_.size()); }
  int64_t id(int64_t device) const { return ids_[device]; }
  // The number of a device id, or -1.
  int64_t Find(int64_t id) const;

 private:
  std::vector<int64_t> ids_;
};

// The partial axes in normal form: sorted, neighboring parts joined, parts of size 1 left out.
std::vector<AxisRef> PartialRefs(const Layout& layout);

// One layout. Dimensions 0..rank-1 are the tensor's; dimension `rank` holds the number of the contribution, which is 0
// where nothing is partial. A "row" is one shard of a dimension, a "cell" one box: the product of rows.
class Holdings {
 public:
  // `contents`: rank + 1 of them, shared by all layouts of a plan. ResourceExhausted: too many intervals.
  static absl::StatusOr<Holdings> Create(const Layout& layout, const Devices& devices, std::vector<Contents>& contents);

  struct Dim {
    std::vector<AxisRef> digits;           // that choose the row, major first
    std::vector<int32_t> row_of_position;  // empty where there is one row
    std::vector<int32_t> content_of_row;
    absl::flat_hash_map<int32_t, int32_t> row_of_content;  // non-empty rows
    bool slots = false;  // cut by a slot table: rows may overlap, and hold an element several times
    int64_t num_rows() const { return static_cast<int64_t>(content_of_row.size()); }
  };

  const Layout& layout() const { return layout_; }
  const Mesh& mesh() const { return layout_.mesh(); }
  int num_dims() const { return static_cast<int>(dims_.size()); }
  const Dim& dim(int d) const { return dims_[d]; }
  int64_t Row(int64_t position, int d) const {
    const Dim& of = dim(d);
    return of.row_of_position.empty() ? 0 : of.row_of_position[position];
  }
  int32_t Content(int64_t position, int d) const { return dim(d).content_of_row[Row(position, d)]; }
  int64_t Length(int64_t row, int d) const { return lengths_[d][row]; }
  // Elements of the fragment at a position.
  int64_t Elements(int64_t position) const { return elements_[position]; }
  int64_t MaxElements() const { return max_elements_; }
  // Over all shards of all dimensions.
  int64_t num_intervals() const { return num_intervals_; }
  int64_t Cell(int64_t position) const;
  int64_t num_cells() const { return num_cells_; }
  // Devices that hold one cell, the same number for every cell.
  int64_t copies() const { return mesh().size() / num_cells_; }

  // Positions of the mesh and numbers of the plan's devices; -1 for a device outside the mesh.
  int64_t DeviceAt(int64_t position) const { return device_at_[position]; }
  int64_t PositionOf(int64_t device) const { return position_of_[device]; }
  int64_t ElementsOf(int64_t device) const {
    const int64_t position = PositionOf(device);
    return position < 0 ? 0 : Elements(position);
  }

 private:
  explicit Holdings(const Layout& layout) : layout_(layout) {}
  absl::Status AddDim(int d, Contents& contents, int64_t& budget);
  void AddContributions(Contents& contents);

  Layout layout_;
  std::vector<Dim> dims_;
  std::vector<std::vector<int64_t>> lengths_;
  std::vector<int64_t> elements_;
  int64_t max_elements_ = 0;
  int64_t num_cells_ = 1;
  int64_t num_intervals_ = 0;
  std::vector<int32_t> device_at_;
  std::vector<int32_t> position_of_;
};

}  // namespace reshard::check

#endif  // RESHARD_CHECK_HOLDINGS_H_
