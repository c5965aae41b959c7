// Runs a plan with real data, to see how fast it is and whether every element arrives: on threads of this process, or
// on the ranks of a communicator.
//
// Verification does not look at the plan. Every source fragment is filled by logical index (an element's bytes are a
// hash of its global linear index), and every element of every target fragment is computed from the definition of the
// target layout and compared. Types of one or two bytes are run twice with different contents, so that equal values
// cannot hide an error. Contributions to reductions are small integers, chosen so that every partial and every final
// result is exact in every type; targets that stay partial are checked too. Sources must be unchanged and the memory
// around targets untouched.
#ifndef RESHARD_RUNTIME_VERIFY_RUN_H_
#define RESHARD_RUNTIME_VERIFY_RUN_H_

#include <cstdint>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "reshard/planner/plan.h"
#include "reshard/runtime/communicator.h"

namespace reshard {

// Most ranks, and so threads, of one run; more are refused.
inline constexpr int64_t kMaxLocalRanks = 4096;

// How to run a plan.
struct RunOptions {
  // Number of timed executions, after a warm-up. 0: no timing.
  int64_t repeat = 10;
  // Whether to check every element.
  bool verify = true;
  // Whether to time executions into newly allocated destinations too. RunPlanLocally only.
  bool fresh = false;
  // How long a rank waits for the others at any one point. RunPlanLocally only: communicators have their own.
  absl::Duration timeout = DefaultTimeout();
};

// What a run found.
struct RunReport {
  int64_t ranks = 0;  // number of devices of both meshes
  // Time of one execution of the compiled plan, on the slowest rank, into memory that was written before.
  double seconds_median = 0.0;  // median of the timed executions
  double seconds_min = 0.0;     // the fastest of them
  // Bytes written into destinations in one execution, by all ranks in all steps, local copies included.
  int64_t bytes_moved = 0;
  double gb_per_s = 0.0;  // bytes_moved / seconds_median / 1e9
  // Time of a plain memcpy of bytes_moved between warm buffers, with one thread per rank but no more threads than
  // cores. Timed between the executions, from the first thread's start to the last one's end. 0 without timing or
  // without bytes.
  double memcpy_seconds_median = 0.0;
  double memcpy_ratio = 0.0;  // memcpy_seconds_median / seconds_median
  // The same with a destination that is allocated every time while the clock runs: for the plan, from the pool that
  // results come from; for memcpy, by malloc. 0 without RunOptions::fresh.
  double fresh_seconds_median = 0.0;
  double fresh_memcpy_seconds_median = 0.0;  // see above
  // Bytes received from other ranks in one execution, counted while executing.
  int64_t received_bytes_max = 0;    // by one rank
  int64_t received_bytes_total = 0;  // by all ranks together
  // True if every element was checked and none was wrong.
  bool verified = false;
  int64_t elements_checked = 0;  // over devices and fills
  int64_t mismatches = 0;        // how many of these were wrong
  std::string first_mismatch;    // "device 3: element [4, 17] of the target is wrong"; empty if there is none
  int64_t memory_bytes = 0;      // of fragments, intermediates and the buffers of the comparison with memcpy
};

// Executes the plan on a LocalWorld of the devices of both meshes. A mismatch is not an error, but part of the report.
// InvalidArgument: a negative `repeat`, or a reduction that the dtype does not support. ResourceExhausted: more than
// kMaxLocalRanks devices; more memory than 3/4 of what the machine has available (the message has both figures);
// threads that could not be started. Otherwise what the ranks report.
absl::StatusOr<RunReport> RunPlanLocally(const Plan& plan, const RunOptions& options = {});

// What one rank found.
struct RankReport {
  MoveStats moved;  // in one execution
  // Time of each timed execution on this rank, waiting and agreement included; as many on every rank.
  std::vector<double> seconds;
  int64_t elements_checked = 0;  // of this rank's fragments, over the fills
  int64_t mismatches = 0;        // how many of these were wrong
  std::string first_mismatch;    // as in RunReport
};

// Executes the plan on the ranks of a communicator that moves host memory. Collective: every rank calls it, even one
// that holds nothing. A mismatch is not an error, but part of the report. If plans or options differ between ranks, or
// a rank cannot begin, all get an error that says so. InvalidArgument: a device that is not a rank; otherwise as
// RunPlanLocally.
absl::StatusOr<RankReport> RunPlanOnRank(const Plan& plan, Communicator& communicator, const RunOptions& options = {});

}  // namespace reshard

#endif  // RESHARD_RUNTIME_VERIFY_RUN_H_
