// Judges plans from what is printed of them: ours, edited by hand, or written by another tool. Legality, bytes, peaks
// and bounds are derived again from the layouts alone, by code that the planner does not use.
//
// What is judged, what is only held against a range and what cannot be judged: docs/design/check.md.
#ifndef RESHARD_CHECK_CHECK_H_
#define RESHARD_CHECK_CHECK_H_

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"

namespace reshard {

// Something wrong.
struct Finding {
  std::string where;  // "steps[1].recv_bytes_max", "pieces[17]", ...
  std::string said;   // what the plan says there, as text; empty where it says nothing
  std::string is;     // what is right, as text; empty where `why` says it all
  std::string why;    // a sentence
};

// Something that could not be judged, and why. It does not make a plan wrong.
struct Unjudged {
  std::string where;
  std::string why;
};

// A figure that was derived: exact where low == high; otherwise it depends on who sends, or on the packing, and only
// the pieces of a plan tell.
struct Derived {
  int64_t low = 0;
  int64_t high = 0;
  bool exact() const { return low == high; }
};

// All sizes in bytes.
struct DerivedStep {
  std::string op;
  std::string from;
  std::string to;
  Derived group_size;
  int64_t recv_bytes_max = 0;
  int64_t recv_bytes_total = 0;
  Derived send_bytes_max;
  int64_t local_bytes_before_max = 0;
  int64_t local_bytes_after_max = 0;
  Derived peers_max;
};

struct DerivedPlan {
  std::vector<DerivedStep> steps;
  int64_t recv_bytes_max = 0;
  int64_t recv_bytes_total = 0;
  int64_t intermediate_bytes_max = 0;
  Derived peak_bytes;
  int64_t bound_recv_bytes_max = 0;
  int64_t bound_recv_bytes_total = 0;
  int64_t bound_intermediate_bytes_max = 0;
};

struct PlanVerdict {
  std::string name;     // the id of a plan in a batch, else empty
  absl::Status status;  // InvalidArgument or ResourceExhausted: there is no plan to judge; all below is empty
  std::vector<Finding> findings;
  std::vector<Unjudged> unjudged;
  // Absent where a step is not legal, so that its figures mean nothing.
  std::optional<DerivedPlan> derived;

  bool agrees() const { return status.ok() && findings.empty(); }
};

struct CheckReport {
  bool batch = false;  // from a batch, or from a file with one plan a line
  std::vector<PlanVerdict> plans;

  bool agrees() const;
  // The first status that is not OK, with the number of its plan; OK when every plan could be judged.
  absl::Status status() const;
};

// More bytes of JSON than this are refused.
inline constexpr size_t kMaxPlanText = size_t{256} << 20;

// Reads one plan object (schema reshard.plan/1, or without "schema" another tool's), a batch object (reshard.batch/1,
// its "plans"), or lines that each hold a plan, and judges every plan.
//
// Of a plan with the schema every key that the schema requires is expected; of another tool's only mesh, dtype, shape,
// source, target and the steps with op, from and to. Figures that are absent there are derived, and are no findings.
//
// InvalidArgument: the text is not JSON, nests too deep, holds no plan, names an unknown schema, or the one plan in it
// lacks what is required or has text of a mesh or layout that cannot be read. ResourceExhausted: over a limit. A plan
// among several that cannot be read has its own status.
absl::StatusOr<CheckReport> CheckPlans(std::string_view text);

// One line a finding, then what was derived and how far from the bound the plan is.
std::string CheckToText(const CheckReport& report);
// One object, schema reshard.check/1 (docs/check.schema.json), on one line.
std::string CheckToJson(const CheckReport& report);

}  // namespace reshard

#endif  // RESHARD_CHECK_CHECK_H_
