// Checks plans in their printed form, whether written by this library, edited by hand, or written by another tool.
// Legality, bytes, peaks and bounds are derived from the layouts alone, by code that the planner does not use.
//
// What is checked exactly, what only against a range, and what is left unchecked: docs/design/check.md.
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
#include "reshard/check/finding.h"

namespace reshard {

// Something left unchecked. It does not make a plan wrong.
struct Unjudged {
  std::string where;  // as in Finding
  std::string why;    // why it cannot be checked; one sentence
};

// A derived figure. It is exact if low == high. Otherwise it lies between the two and depends on which holder sends, or
// on what is packed, which only the pieces of a plan tell.
struct Derived {
  int64_t low = 0;                            // smallest possible value
  int64_t high = 0;                           // largest possible value
  bool exact() const { return low == high; }  // whether the figure is known
};

// The figures of one step; see Step in reshard/planner/plan.h for their exact meaning. All sizes in bytes; maxima are
// over devices, totals are sums over devices.
struct DerivedStep {
  std::string op;                      // "AllGather", ..., as written in the plan
  std::string from;                    // layout before the step, as text
  std::string to;                      // layout after the step, as text
  Derived group_size;                  // devices that take part together
  int64_t recv_bytes_max = 0;          // received by one device
  int64_t recv_bytes_total = 0;        // received by all devices together
  Derived send_bytes_max;              // sent by one device
  int64_t local_bytes_before_max = 0;  // of one device's fragment under `from`
  int64_t local_bytes_after_max = 0;   // of one device's fragment under `to`
  Derived peers_max;                   // devices that one device sends to or receives from
};

// The figures of a plan. All sizes in bytes.
struct DerivedPlan {
  std::vector<DerivedStep> steps;            // in the order of the plan
  int64_t recv_bytes_max = 0;                // largest over devices of the sum over steps
  int64_t recv_bytes_total = 0;              // over devices and steps
  int64_t intermediate_bytes_max = 0;        // of the largest fragment of any layout of the plan, both ends included
  Derived peak_bytes;                        // most memory that a device needs at once
  int64_t bound_recv_bytes_max = 0;          // what the worst device must receive, whatever the algorithm
  int64_t bound_recv_bytes_total = 0;        // what all devices together must receive
  int64_t bound_intermediate_bytes_max = 0;  // of the largest fragment of source and target
};

// The result for one plan.
struct PlanVerdict {
  std::string name;     // the id of a plan in a batch, else empty
  absl::Status status;  // InvalidArgument or ResourceExhausted: the plan cannot be checked; all below is empty
  std::vector<Finding> findings;   // everything that is wrong
  std::vector<Unjudged> unjudged;  // everything left unchecked
  // Absent if some step is not legal: its figures would mean nothing.
  std::optional<DerivedPlan> derived;

  // True if the plan could be checked and nothing is wrong.
  bool agrees() const { return status.ok() && findings.empty(); }
};

// The result for one text.
struct CheckReport {
  bool batch = false;              // the text was a batch, or had one plan per line
  std::vector<PlanVerdict> plans;  // in the order of the text

  // True if every plan agrees.
  bool agrees() const;
  // The first status that is not OK, with the number of its plan; OK if every plan could be checked.
  absl::Status status() const;
};

// Maximum size of the JSON in bytes; longer texts are refused.
inline constexpr size_t kMaxPlanText = size_t{256} << 20;

// Reads one plan object (schema reshard.plan/1, or that of another tool if there is no "schema"), a batch object
// (reshard.batch/1, whose "plans" are checked), or lines with one plan each, and checks every plan.
//
// A plan with the schema must have every key that the schema requires. A plan of another tool needs only mesh, dtype,
// shape, source, target and the steps with op, from and to; figures that it leaves out are derived and are not
// findings.
//
// InvalidArgument: the text is not JSON, nests too deep, holds no plan or names an unknown schema; or its only plan
// lacks something required or has a mesh or layout that does not parse. ResourceExhausted: over a limit. If there are
// several plans, one that cannot be read gets its own status.
absl::StatusOr<CheckReport> CheckPlans(std::string_view text);

// One line per finding, then the derived figures and how far the plan is from its bound. Ends with a newline.
std::string CheckToText(const CheckReport& report);
// One JSON object, schema reshard.check/1 (docs/check.schema.json), on one line, without a newline.
std::string CheckToJson(const CheckReport& report);
// A page to view in a browser, in one file that needs no network: every plan with its findings and figures.
std::string CheckToHtml(const CheckReport& report);

}  // namespace reshard

#endif  // RESHARD_CHECK_CHECK_H_
