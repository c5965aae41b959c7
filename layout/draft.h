// A layout as some text says it, every item with its column, so that the error for a broken rule of the algebra points
// at the item that breaks it.
#ifndef RESHARD_LAYOUT_DRAFT_H_
#define RESHARD_LAYOUT_DRAFT_H_

#include <cstdint>
#include <string_view>
#include <vector>

#include "absl/status/statusor.h"
#include "layout/scanner.h"
#include "reshard/layout/layout.h"

namespace reshard::layout {

struct LayoutDraft {
  struct Dim {
    int64_t size = 0;
    size_t size_column = 0;
    std::vector<Factor> factors;
    std::vector<size_t> factor_columns;
    std::vector<Dim> flattened;  // into this one; `size` then means nothing

    void Add(Factor factor, size_t column);
    void Add(const AxisRef& axis, size_t column);
  };
  struct Axis {
    AxisRef ref;
    size_t column = 0;
  };

  std::vector<Dim> dims;
  ReduceOp op = ReduceOp::kSum;
  std::vector<Axis> partial;
  std::vector<Axis> replicated;  // said to be used nowhere

  LayoutDraft() = default;
  // Dimensions of these sizes, without factors.
  explicit LayoutDraft(const std::vector<int64_t>& shape);

  // The layout, or what is wrong with it at its column in the scanner's text. Leaves the draft empty.
  absl::StatusOr<Layout> Build(const Scanner& in, const Mesh& mesh);
};

// The whole axis of this name, which is at `column`; the error for an unknown name lists the axes of the mesh.
absl::StatusOr<AxisRef> FindAxis(const Scanner& in, size_t column, std::string_view name, const Mesh& mesh);
// Reads `:(pre)size` if it is there and narrows the axis to that part. True when it was there.
absl::StatusOr<bool> ReadPart(Scanner& in, AxisRef* axis);

}  // namespace reshard::layout

#endif  // RESHARD_LAYOUT_DRAFT_H_
