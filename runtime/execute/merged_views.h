// Views of a caller's fragments in the shapes that a program has, where the plan flattens dimensions that the caller's
// layouts keep apart.
#ifndef RESHARD_RUNTIME_EXECUTE_MERGED_VIEWS_H_
#define RESHARD_RUNTIME_EXECUTE_MERGED_VIEWS_H_

#include <vector>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "reshard/layout/layout.h"
#include "reshard/runtime/program.h"
#include "reshard/runtime/tensor_view.h"

namespace reshard::execute {

// One end of a tensor as the caller has it.
struct CallersEnd {
  // `planned`: the plan's end, which is the caller's over fewer dimensions, or the same.
  CallersEnd(const Layout& callers, const Layout& planned, const Buffer& programs, int64_t rank);

  Buffer buffer;            // the program's, in the caller's shape
  std::vector<int> merged;  // per dimension of the program: how many of the caller's it merges
};

// The view in the program's shape. InvalidArgument: the shape differs from the buffer's, or the elements of merged
// dimensions are not evenly spaced. `name` says which view it is. A view without elements stays as it is.
absl::StatusOr<ConstTensorView> MergedView(const CallersEnd& end, const ConstTensorView& view, absl::string_view name);

}  // namespace reshard::execute

#endif  // RESHARD_RUNTIME_EXECUTE_MERGED_VIEWS_H_
