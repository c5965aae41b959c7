// Running a plan on in-process ranks with real data: how fast it is, and whether every element arrives.
//
// Verification knows nothing of plans. Every source fragment is filled by logical index (an element's bytes are a hash
// of its global linear index), and every element of every target fragment is computed again from the target layout's
// definition and compared. Types of one or two bytes are filled twice, differently, so that equal values cannot hide an
// error. Contributions to pending reductions are small integers chosen so that every partial and full result is exact
// in every type; targets that are still partial are checked too. Sources must come out unchanged and memory around the
// targets untouched.
#ifndef RESHARD_RUNTIME_VERIFY_RUN_H_
#define RESHARD_RUNTIME_VERIFY_RUN_H_

#include <cstdint>
#include <string>

#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "reshard/planner/plan.h"
#include "reshard/runtime/communicator.h"

namespace reshard {

// Threads beyond this are refused.
inline constexpr int64_t kMaxLocalRanks = 4096;

struct RunOptions {
  // Timed executions, after one that warms up. 0: no timing.
  int64_t repeat = 10;
  bool verify = true;
  // Times executions into new destinations too.
  bool fresh = false;
  // How long a rank waits for the others at any one place.
  absl::Duration timeout = DefaultTimeout();
};

struct RunReport {
  int64_t ranks = 0;  // devices of both meshes
  // One execution of the compiled plan into destinations that were written before: the slowest rank, median of repeat.
  double seconds_median = 0.0;
  double seconds_min = 0.0;
  // Bytes written into destinations in one execution: all ranks, all steps, own parts included.
  int64_t bytes_moved = 0;
  double gb_per_s = 0.0;  // bytes_moved / seconds_median / 1e9
  // A plain memcpy of bytes_moved between warm buffers by as many threads as ranks, at most the cores, timed between
  // the executions, from the first thread's start to the last one's end; and that time divided by seconds_median. 0
  // without timing or without bytes.
  double memcpy_seconds_median = 0.0;
  double memcpy_ratio = 0.0;
  // The same with a destination that is obtained anew every time, while the clock runs: the plan's from the pool that
  // results come from, memcpy's from malloc. 0 without RunOptions::fresh.
  double fresh_seconds_median = 0.0;
  double fresh_memcpy_seconds_median = 0.0;
  // From other ranks, counted while executing: the most of any rank, and of all.
  int64_t received_bytes_max = 0;
  int64_t received_bytes_total = 0;
  // True when every element was checked and none was wrong.
  bool verified = false;
  int64_t elements_checked = 0;  // over devices and fills
  int64_t mismatches = 0;
  std::string first_mismatch;  // "device 3: element [4, 17] of the target is wrong", empty when there is none
  int64_t memory_bytes = 0;    // fragments, intermediates and buffers of the comparison with memcpy
};

// Executes the plan on a LocalWorld of the devices of both meshes. Mismatches are no error: see the report.
// InvalidArgument: a negative repeat, or a reduction that the dtype does not have.
// ResourceExhausted: more than kMaxLocalRanks devices, or more memory than 3/4 of what the machine has available (the
// message has both figures), or threads that could not be started. Else what the ranks report.
absl::StatusOr<RunReport> RunPlanLocally(const Plan& plan, const RunOptions& options = {});

}  // namespace reshard

#endif  // RESHARD_RUNTIME_VERIFY_RUN_H_
