#include "reshard/runtime/fingerprint.h"

#include <algorithm>
#include <cstddef>
#include <cstdlib>
#include <cstring>
#include <map>
#include <optional>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_join.h"
#include "reshard/layout/checked.h"
#include "reshard/layout/text.h"
#include "runtime/fingerprint/tensor_sum.h"
#include "runtime/host/transpose.h"
#include "status/macros.h"
#include "status/no_throw.h"
#include "status/view.h"

namespace reshard {
namespace {

using fingerprint::TensorSum;

// Whether the device is the first of those that hold what it holds: its coordinates are zero along everything that no
// dimension is split by.
bool HoldsFirst(const Layout& layout, int64_t position) {
  const std::vector<Mesh::Axis>& axes = layout.mesh().axes();
  std::vector<int64_t> used(axes.size(), 0);  // the coordinate that is made of the digits in use
  for (const DimLayout& dim : layout.dims()) {
    for (const AxisRef& ref : dim.Axes()) {
      const auto axis = static_cast<size_t>(ref.axis);
      used[axis] += layout.Coordinate(position, ref) * (axes[axis].size / (ref.pre * ref.size));
    }
  }
  for (size_t axis = 0; axis < axes.size(); ++axis) {
    if (layout.Coordinate(position, {static_cast<int>(axis), 1, axes[axis].size}) != used[axis]) return false;
  }
  return true;
}

// Goes through a fragment in runs of elements that are consecutive in the whole tensor.
class Walk {
 public:
  Walk(const ConstTensorView& local, const Layout& layout, int64_t position, TensorSum* sum)
      : local_(local), element_(SizeOf(local.dtype)), sum_(sum) {
    int64_t stride = element_;
    for (int d = layout.rank() - 1; d >= 0; --d) {
      intervals_.insert(intervals_.begin(), layout.Intervals(position, d));
      strides_.insert(strides_.begin(), stride);
      stride *= std::max<int64_t>(1, layout.dim(d).size);
    }
    if (layout.slot_dim()) LeaveOutCopies(layout, position);
    FindRuns(layout);
  }

  void Run() { Visit(0, 0, static_cast<const char*>(local_.data)); }

 private:
  // Every index of a slot table is added by the first coordinate that holds it, in its first slot there.
  void LeaveOutCopies(const Layout& layout, int64_t position) {
    slot_dim_ = static_cast<size_t>(*layout.slot_dim());
    const Factor& table = layout.dim(*layout.slot_dim()).factors.front();
    const int64_t own = layout.Coordinate(position, table.axis);
    std::map<int64_t, int64_t> added;  // disjoint intervals, by their ends: where each begins
    const auto add = [&](Interval run) {
      auto it = added.lower_bound(run.begin);
      while (it != added.end() && it->second <= run.end) {
        run = {std::min(run.begin, it->second), std::max(run.end, it->first)};
        it = added.erase(it);
      }
      added.emplace(run.end, run.begin);
    };
    for (int64_t j = 0; j < own; ++j) {
      for (const Interval& run : table.slots[j]) add(run);
    }
    std::vector<Interval>& mine = intervals_[*slot_dim_];
    mine.clear();
    for (const Interval& run : table.slots[own]) {
      for (int64_t begin = run.begin; begin < run.end;) {
        const auto it = added.upper_bound(begin);  // the first that ends behind it
        const bool copy = it != added.end() && it->second <= begin;
        int64_t end = run.end;
        if (it != added.end()) end = std::min(end, copy ? it->first : it->second);
        mine.push_back({begin, end});
        is_copy_.push_back(copy);
        begin = end;
      }
      add(run);
    }
  }

  bool IsCopy(size_t d, size_t interval) const { return d == slot_dim_ && is_copy_[interval]; }

  // Runs go along one dimension and all after it, as long as these are whole and lie in memory without gaps.
  void FindRuns(const Layout& layout) {
    along_ = static_cast<size_t>(layout.rank());
    int64_t dense = 1;
    while (along_ > 0) {
      const size_t d = along_ - 1;
      if (local_.shape[d] != 1 && local_.strides[d] != dense) break;
      dense *= local_.shape[d];
      along_ = d;
      if (d == slot_dim_ || local_.shape[d] != layout.dim(static_cast<int>(d)).size) break;
    }
    // Where not even the last dimension is dense, its elements are collected first, in tiles with the dimension whose
    // elements are nearest in memory.
    collects_ = layout.rank() > 0 && along_ == static_cast<size_t>(layout.rank());
    if (!collects_) return;
    along_ = static_cast<size_t>(layout.rank()) - 1;
    const auto distance = [this](size_t d) { return std::abs(local_.strides[d]); };
    for (size_t d = 0; d < along_; ++d) {
      if (local_.shape[d] > 1 && distance(d) < distance(across_.value_or(along_))) across_ = d;
    }
    by_columns_ = across_ && ColumnsAreWhole(*across_);
  }

  // Whether what lies along `across` can be added column by column, as TensorSum::Columns asks for.
  bool ColumnsAreWhole(size_t across) const {
    const auto whole = [this](int64_t elements) { return elements * element_ % fingerprint::kChunkBytes == 0; };
    if (element_ > 4 || local_.strides[across] != 1 || strides_[across] % fingerprint::kBlockBytes != 0) return false;
    for (size_t d = 0; d < along_; ++d) {
      if (strides_[d] % fingerprint::kChunkBytes != 0) return false;
    }
    return std::all_of(intervals_[along_].begin(), intervals_[along_].end(),
                       [&](const Interval& one) { return whole(one.begin) && whole(one.end); });
  }

  void Visit(size_t d, int64_t offset, const char* data) {
    if (d == intervals_.size()) {
      sum_->Add(data, offset, element_);
      return;
    }
    const int64_t step = local_.strides[d] * element_;
    for (size_t k = 0; k < intervals_[d].size(); ++k) {
      const Interval& interval = intervals_[d][k];
      if (IsCopy(d, k)) {
        data += interval.length() * step;
        continue;
      }
      const int64_t begin = offset + interval.begin * strides_[d];
      if (d == along_ && !collects_) {
        sum_->Add(data, begin, interval.length() * strides_[d]);
      } else if (d + 1 == along_ && !collects_) {
        AddRows(interval, data, offset);
      } else if (d == along_ && by_columns_) {
        sum_->Add(fingerprint::Columns{data, element_, begin, rows_, interval.length(), step, strides_[*across_]});
      } else if (d == along_) {
        const int64_t columns = kTileBytes / element_ / tile_rows();
        for (int64_t i = 0; i < interval.length(); i += columns) {
          CollectTile(data + i * step, begin + i * element_, std::min(columns, interval.length() - i));
        }
      } else if (d == across_) {
        const int64_t rows = by_columns_ ? interval.length() : tile_rows();
        for (int64_t i = 0; i < interval.length(); i += rows) {
          rows_ = std::min(rows, interval.length() - i);
          Visit(d + 1, begin + i * strides_[d], data + i * step);
        }
      } else {
        for (int64_t i = 0; i < interval.length(); ++i) Visit(d + 1, begin + i * strides_[d], data + i * step);
      }
      data += interval.length() * step;
    }
  }

  // Adds the runs of those rows, which are indices of the dimension before the one that runs go along.
  void AddRows(const Interval& rows, const char* data, int64_t offset) {
    const size_t d = along_ - 1;
    const std::vector<Interval>& runs = intervals_[along_];
    const int64_t step = local_.strides[d] * element_, run_step = local_.strides[along_] * element_;
    // Rows with several runs go in groups that stay in the nearest cache.
    const int64_t group = runs.size() == 1 ? rows.length() : kRowsOfSeveralRuns;
    for (int64_t row = 0; row < rows.length(); row += group) {
      const char* at = data + row * step;
      const int64_t begin = offset + (rows.begin + row) * strides_[d];
      for (size_t k = 0; k < runs.size(); ++k) {
        const Interval& run = runs[k];
        if (!IsCopy(along_, k)) {
          sum_->Add(fingerprint::Runs{at, begin + run.begin * strides_[along_], run.length() * strides_[along_],
                                      std::min(group, rows.length() - row), step, strides_[d]});
        }
        at += run.length() * run_step;
      }
    }
  }

  // Adds the next `count` elements along the last dimension, in each of rows_ rows.
  void CollectTile(const char* data, int64_t offset, int64_t count) {
    alignas(64) char tile[kTileBytes + kColumnBytes * kTileRowGap];
    const int64_t row_bytes = count * element_, tile_step = row_bytes + kTileRowGap;
    host::CopyToRows({data, element_, rows_, count, across_ ? local_.strides[*across_] * element_ : 0,
                      local_.strides[along_] * element_},
                     tile, tile_step);
    sum_->Add(fingerprint::Runs{tile, offset, row_bytes, rows_, tile_step, across_ ? strides_[*across_] : 0});
  }

  // Tiles fit in the nearest cache and hold enough of a column to be worth going there. Their rows have gaps, so that
  // not all begin in the same cache set.
  static constexpr int64_t kTileBytes = 32 * 1024;
  static constexpr int64_t kColumnBytes = 256;
  static constexpr int64_t kTileRowGap = 64;
  int64_t tile_rows() const { return across_ ? kColumnBytes / element_ : 1; }
  // Rows of several runs each that stay in the nearest cache.
  static constexpr int64_t kRowsOfSeveralRuns = 16;

  const ConstTensorView& local_;
  const int64_t element_;                         // bytes
  std::vector<std::vector<Interval>> intervals_;  // of each dimension
  std::vector<int64_t> strides_;                  // of the whole tensor, in bytes
  size_t along_ = 0;                              // the dimension that runs go along
  bool collects_ = false;                         // which is not dense
  std::optional<size_t> across_;                  // then, the dimension of the rows of a tile
  std::optional<size_t> slot_dim_;                // that a slot table cuts
  std::vector<bool> is_copy_;                     // of its intervals: what other slots have added
  bool by_columns_ = false;                       // in which elements need not be brought into rows
  int64_t rows_ = 1;
  TensorSum* sum_;
};

absl::Status Check(const ConstTensorView& local, const Layout& layout, int64_t position) {
  if (layout.partial()) {
    return absl::InvalidArgumentError(absl::StrCat("values that are partial over ", ToString(layout),
                                                   " have no fingerprint before they are reduced"));
  }
  if (position < 0 || position >= layout.mesh().size()) {
    return absl::InvalidArgumentError(
        absl::StrCat("position ", position, " in a mesh of ", layout.mesh().size(), " devices"));
  }
  if (local.memory != MemoryKind::kHost) return absl::UnimplementedError("fingerprints are of tensors in host memory");
  if (!CheckedMul(layout.num_elements(), SizeOf(local.dtype))) {
    return absl::InvalidArgumentError(absl::StrCat("a tensor of ", layout.num_elements(), " elements of ",
                                                   SizeOf(local.dtype), " bytes is too large"));
  }
  const std::vector<int64_t> wanted = layout.LocalShape(position);
  const bool none = std::find(wanted.begin(), wanted.end(), 0) != wanted.end() &&
                    std::find(local.shape.begin(), local.shape.end(), 0) != local.shape.end();
  const bool same = std::equal(wanted.begin(), wanted.end(), local.shape.begin(), local.shape.end());
  if (!same && !none) {
    return absl::InvalidArgumentError(absl::StrCat("shape [", absl::StrJoin(local.shape, ", "), "] where ",
                                                   ToString(layout), " has [", absl::StrJoin(wanted, ", "), "]"));
  }
  return absl::OkStatus();
}

}  // namespace

std::string ToString(const ContentFingerprint& fingerprint) {
  return absl::StrFormat("%016x%016x", fingerprint.high, fingerprint.low);
}

absl::StatusOr<ContentFingerprint> FingerprintOf(std::string_view name, const ConstTensorView& local,
                                                 const Layout& layout, int64_t position) {
  return status::NoThrow("taking a fingerprint", [&]() -> absl::StatusOr<ContentFingerprint> {
    RETURN_IF_ERROR(Check(local, layout, position));
    TensorSum sum(fingerprint::IdentityOf(name, local.dtype, layout.shape()));
    if (position == 0) sum.AddIdentity();
    const bool none = std::find(local.shape.begin(), local.shape.end(), 0) != local.shape.end();
    if (!none && HoldsFirst(layout, position)) Walk(local, layout, position, &sum).Run();
    return sum.sum();
  });
}

}  // namespace reshard
