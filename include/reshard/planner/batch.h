// Many tensors as one schedule: a model's state from one set of layouts to another.
//
// Equal problems are planned once. Tensors go into buckets in the order given; in a bucket the first steps of all
// tensors are one exchange, then the second steps, and so on. Between meshes a shard may have many holders: who starts
// to send is chosen over the whole batch, so that what devices send is as even as the layouts allow.
#ifndef RESHARD_PLANNER_BATCH_H_
#define RESHARD_PLANNER_BATCH_H_

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/types/span.h"
#include "reshard/layout/dtype.h"
#include "reshard/layout/layout.h"
#include "reshard/planner/plan.h"

namespace reshard {

struct BatchProblem {
  std::string name;  // what errors and reports call it; empty: its number
  Layout source;
  Layout target;
  DType dtype = DType::kBF16;
};

struct BatchOptions {
  // Of the plan of every tensor. The memory limit bounds BatchBucket::peak_bytes, too.
  PlanOptions plan;
  // Bounds BatchBucket::bytes, but for a tensor that alone has more: it gets a bucket of its own.
  std::optional<int64_t> bucket_bytes;
};

struct BatchTensor {
  int64_t plan = 0;          // index into BatchPlan::plans
  int64_t first_holder = 0;  // of the plan's steps between meshes, see Step::first_holder
  int64_t bucket = 0;        // index into BatchPlan::buckets
};

// The steps of many tensors that are one exchange, or one reduction over the same groups. Sizes in bytes; maxima are
// over devices, of the sum over tensors.
struct BatchStep {
  Op op = Op::kExchange;  // that of all its tensors when they agree, else Exchange
  int64_t stage = 0;      // the number of the step in its tensors' plans
  int64_t tensors = 0;
  int64_t recv_bytes_max = 0;
  int64_t recv_bytes_total = 0;
  int64_t send_bytes_max = 0;
  int64_t peers_max = 0;  // of any one of its tensors
  int64_t time_ns = 0;
  std::vector<LevelFigures> levels;  // one a level of the topology, innermost first
};

// Tensors first .. first + count - 1.
struct BatchBucket {
  int64_t first = 0;
  int64_t count = 0;
  int64_t bytes = 0;       // sum over tensors of what their largest step reads and writes on a device
  int64_t peak_bytes = 0;  // sum over tensors of Totals::peak_bytes
  int64_t time_ns = 0;     // sum over steps
  std::vector<BatchStep> steps;
};

// What one device does in the whole batch, in bytes.
struct BatchDevice {
  int64_t device = 0;
  int64_t recv = 0;
  int64_t send = 0;
  int64_t send_between_meshes = 0;  // the part of `send` for which there may be a choice of holders
  int64_t recv_bound = 0;           // what it must receive whatever the algorithm: the sum of what it lacks
};

// Sizes in bytes; maxima and means are over devices, of the sum over tensors and steps.
struct BatchTotals {
  int64_t recv_bytes_max = 0;
  int64_t recv_bytes_total = 0;
  int64_t send_bytes_max = 0;
  double send_bytes_mean = 0;  // over the devices of all meshes
  int64_t send_between_meshes_max = 0;
  double send_between_meshes_mean = 0;  // over the devices of the meshes that such steps leave
  // Largest / mean of what devices send between meshes; in a batch that stays within its meshes of what they send in
  // all. 1 when nothing is sent.
  double send_imbalance = 1;
  int64_t peak_bytes = 0;  // of the largest bucket
  int64_t time_ns = 0;     // sum over buckets
  std::vector<LevelFigures> levels;
};

struct BatchBounds {
  // The worst device: of the sum over tensors of what it lacks, which is more than any tensor's and at most the sum of
  // the tensors' bounds. With pending reductions the even share of all transmissions, where that is more.
  int64_t recv_bytes_max = 0;
  int64_t recv_bytes_total = 0;
};

struct BatchPlan {
  BatchOptions options;
  std::vector<std::string> names;  // one a tensor
  std::vector<Plan> plans;         // distinct problems in order of appearance: as many as were planned
  std::vector<BatchTensor> tensors;
  std::vector<BatchBucket> buckets;
  std::vector<BatchDevice> devices;  // ascending; those of all meshes
  BatchTotals totals;
  BatchBounds bounds;

  // The plan of one tensor with its first holders: what a program is compiled from. Its figures are those of plans[],
  // which on a topology with levels may differ per level.
  Plan PlanOf(int64_t tensor) const;
};

// Post-conditions:
//  - every tensor's plan is MakePlan's, see there; an equal problem (meshes, layouts as text, dtype) is planned once;
//  - buckets are runs of neighbouring tensors and keep to the limits of `options`;
//  - without pending reductions totals.recv_bytes_max == bounds.recv_bytes_max where every plan meets its bound on
//  every
//    device;
//  - deterministic: equal input gives an equal batch on every machine.
// Errors: what MakePlan reports, with the tensor's name before it (ResourceExhausted: the tensor alone does not fit the
// memory limit; the message has the bytes needed); InvalidArgument: a negative limit of a bucket, sums over tensors
// that do not fit 64 bits.
absl::StatusOr<BatchPlan> PlanBatch(absl::Span<const BatchProblem> problems, const BatchOptions& options = {});
// The same for tensor t being problems[which[t]], for callers that know which are equal; `names` may be empty, else one
// a tensor. InvalidArgument also: an index out of range, another number of names.
absl::StatusOr<BatchPlan> PlanBatch(absl::Span<const BatchProblem> problems, absl::Span<const int64_t> which,
                                    std::vector<std::string> names, const BatchOptions& options);

// One line of JSON, schema reshard.batch/1 (docs/batch.schema.json), no trailing newline. `ids`, when not empty, are JSON
// texts, one a tensor, that stand for the names. InvalidArgument: another number of them.
absl::StatusOr<std::string> BatchToJson(const BatchPlan& batch, absl::Span<const std::string> ids = {});
// A few lines for people: tensors, plans, buckets, bytes against the bound, how even the senders are.
std::string BatchToText(const BatchPlan& batch);

}  // namespace reshard

#endif  // RESHARD_PLANNER_BATCH_H_
