// One rank's part in a run that is checked: it fills its source by logical index, executes the program, and compares
// every element of its target with the layout's definition.
#ifndef RESHARD_RUNTIME_SELF_TEST_RANK_RUN_H_
#define RESHARD_RUNTIME_SELF_TEST_RANK_RUN_H_

#include <cstdint>
#include <cstdlib>
#include <memory>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "reshard/planner/plan.h"
#include "reshard/runtime/executor.h"
#include "reshard/runtime/verify_run.h"
#include "runtime/self_test/logical_content.h"

namespace reshard::self_test {

// Bytes around a fragment that nothing may write to.
inline constexpr int64_t kMargin = 64;

// Memory from malloc.
struct FreeMemory {
  void operator()(char* memory) const { std::free(memory); }
};

// Memory with painted margins.
class Painted {
 public:
  // ResourceExhausted: there is too little.
  absl::Status Allocate(int64_t bytes);
  char* data() { return memory_.get() + kMargin; }
  void Paint();
  bool MarginsIntact();

 private:
  int64_t bytes_ = 0;
  std::unique_ptr<char[], FreeMemory> memory_;
};

// Bytes of the fragment that a device holds under a layout; 0 outside its mesh.
int64_t FragmentBytes(const Layout& layout, DType dtype, int64_t device);

// Bytes that a rank's fragments, their margins and the intermediates of a plan take. The largest int64 if they take
// more.
int64_t MemoryNeeded(const Plan& plan, int64_t device);

// ResourceExhausted where that is more than `limit` bytes.
absl::Status CheckMemory(int64_t needed, int64_t limit);

// 3/4 of what the machine has available.
int64_t MemoryLimit();

// One for each time that a plan is run to be checked: two for types of one or two bytes and for contributions, else
// one.
absl::StatusOr<std::vector<LogicalContent>> ContentsFor(const Plan& plan);

// See above. What is passed must outlive it.
class RankRun {
 public:
  RankRun(const Plan& plan, Executor& executor) : plan_(plan), executor_(executor) {}

  // ResourceExhausted: no memory for the fragments.
  absl::Status Allocate();
  // From this rank's source into its target, or into `target`.
  absl::StatusOr<ExecuteResult> Execute() { return Execute(target_.data()); }
  absl::StatusOr<ExecuteResult> Execute(char* target);
  // Collective: one execution for each of the contents. Adds what it finds to the report.
  absl::Status Verify(const std::vector<LogicalContent>& contents, RankReport& report);

 private:
  void CheckSide(const LogicalContent& content, const Layout& layout, Painted& memory, absl::string_view name,
                 RankReport& report);

  const Plan& plan_;
  Executor& executor_;
  Painted source_;
  Painted target_;
};

}  // namespace reshard::self_test

#endif  // RESHARD_RUNTIME_SELF_TEST_RANK_RUN_H_
