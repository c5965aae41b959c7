// What every element of a tensor is, as a function of its logical index alone: the oracle of a verified run. It shares
// no code with the planner; layouts are read through Layout::Intervals only.
#ifndef RESHARD_RUNTIME_SELF_TEST_LOGICAL_CONTENT_H_
#define RESHARD_RUNTIME_SELF_TEST_LOGICAL_CONTENT_H_

#include <cstdint>
#include <optional>
#include <vector>

#include "absl/status/statusor.h"
#include "reshard/layout/dtype.h"
#include "reshard/layout/layout.h"
#include "reshard/planner/plan.h"

namespace reshard::self_test {

// The content of a plan's tensor for one salt.
//
// Without partial values an element is the hash of its global linear index, cut to the size of the type.
//
// With one, every device holds a contribution: a small integer that depends on the element and on the device's
// coordinates along the partial axes. A layout in which some of these axes are reduced holds the reduction over them.
// The integers are such that every such result is exact in every type, and that leaving out a contribution, or counting
// one twice, shows in some elements.
class LogicalContent {
 public:
  // Unimplemented: partial sub-axes of source and target that have no common digits.
  static absl::StatusOr<LogicalContent> Create(const Plan& plan, uint64_t salt);

  // Writes the dense fragment that the device at `position` holds under `layout`, the plan's source or target.
  void Fill(const Layout& layout, int64_t position, void* fragment) const;
  // Number of elements of a fragment that differ from what Fill would write. `first` gets the global linear index of
  // the first of them.
  int64_t CountMismatches(const Layout& layout, int64_t position, const void* fragment, int64_t* first) const;

 private:
  struct Number {  // a complex integer
    int64_t re = 0;
    int64_t im = 0;
  };
  // One device's share in a reduction: its coordinates along the digits and their number.
  struct Contributor {
    std::vector<int64_t> coordinates;
    int64_t number = 0;
  };

  LogicalContent() = default;
  // Calls visit(bytes of the element as it should be, local index, global linear index) for a fragment's elements.
  template <typename Visit>
  void ForEachElement(const Layout& layout, int64_t position, Visit visit) const;
  std::vector<Contributor> ContributorsTo(const Layout& layout, int64_t position) const;
  Number Contribution(uint64_t hash, const Contributor& contributor) const;
  Number Reduced(int64_t global, const std::vector<Contributor>& contributors) const;
  void Encode(Number value, char* element) const;

  DType dtype_ = DType::kF32;
  uint64_t salt_ = 0;
  std::optional<ReduceOp> op_;
  std::vector<AxisRef> digits_;  // of the source's partial axes, as fine as the target needs
  int64_t contributions_ = 1;    // product of the digits
};

}  // namespace reshard::self_test

#endif  // RESHARD_RUNTIME_SELF_TEST_LOGICAL_CONTENT_H_
