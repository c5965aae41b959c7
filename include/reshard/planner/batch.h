// Plans many tensors as one schedule, for example to move a model's state from one set of layouts to another.
//
// Equal problems are planned once. Tensors go into buckets in the order given; within a bucket the first steps of all
// tensors form one exchange, then the second steps, and so on. Between meshes a shard may have many holders: the one
// that begins to send is chosen over the whole batch, so that the load on senders is as even as the layouts allow.
#ifndef RESHARD_PLANNER_BATCH_H_
#define RESHARD_PLANNER_BATCH_H_

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/types/span.h"
#include "reshard/planner/plan.h"
#include "reshard/planner/problem.h"

namespace reshard {

// How to plan a batch.
struct BatchOptions {
  // For the plan of every tensor. The memory limit also bounds BatchBucket::peak_bytes.
  PlanOptions plan;
  // Upper limit on BatchBucket::bytes. A tensor that exceeds it alone gets a bucket of its own.
  std::optional<int64_t> bucket_bytes;
};

// What was decided for one tensor.
struct BatchTensor {
  int64_t plan = 0;          // index into BatchPlan::plans
  int64_t first_holder = 0;  // for the plan's steps between meshes, see Step::first_holder
  int64_t bucket = 0;        // index into BatchPlan::buckets
};

// The steps of many tensors that form one exchange, or one reduction over the same groups. Sizes in bytes; maxima are
// over devices, of the sum over tensors.
struct BatchStep {
  Op op = Op::kExchange;             // that of its tensors if they all agree, else Exchange
  int64_t stage = 0;                 // index of the step in its tensors' plans
  int64_t tensors = 0;               // number of tensors that take part
  int64_t recv_bytes_max = 0;        // received by one device
  int64_t recv_bytes_total = 0;      // received by all devices together
  int64_t send_bytes_max = 0;        // sent by one device
  int64_t peers_max = 0;             // the largest Step::peers_max of its tensors
  int64_t time_ns = 0;               // estimate, as in topology.h
  std::vector<LevelFigures> levels;  // one per level of the topology, innermost first
};

// The tensors that are moved together: first .. first + count - 1.
struct BatchBucket {
  int64_t first = 0;             // index into BatchPlan::tensors
  int64_t count = 0;             // number of tensors
  int64_t bytes = 0;             // sum over tensors of what their largest step reads and writes on a device
  int64_t peak_bytes = 0;        // sum over tensors of Totals::peak_bytes
  int64_t time_ns = 0;           // sum over steps; for a single tensor, that of its plan
  std::vector<BatchStep> steps;  // in the order in which they run
};

// What one device does in the whole batch, in bytes.
struct BatchDevice {
  int64_t device = 0;               // its id
  int64_t recv = 0;                 // received from others
  int64_t send = 0;                 // sent to others
  int64_t send_between_meshes = 0;  // the part of `send` for which there may be a choice of holders
  int64_t recv_bound = 0;           // least it can receive: the sum over tensors of what it lacks
};

// The figures of the whole batch. Sizes in bytes; maxima and means are over devices, of the sum over tensors and steps.
struct BatchTotals {
  int64_t recv_bytes_max = 0;           // received by one device
  int64_t recv_bytes_total = 0;         // received by all devices together
  int64_t send_bytes_max = 0;           // sent by one device
  double send_bytes_mean = 0;           // over the devices of all meshes
  int64_t send_between_meshes_max = 0;  // sent by one device in steps between meshes
  double send_between_meshes_mean = 0;  // over the devices of the source meshes of such steps
  // The largest over the mean of what devices send between meshes, or of everything they send if nothing is sent
  // between meshes. 1 if nothing is sent at all.
  double send_imbalance = 1;
  int64_t peak_bytes = 0;            // of the largest bucket
  int64_t time_ns = 0;               // sum over buckets
  std::vector<LevelFigures> levels;  // one per level of the topology, innermost first
};

// Lower bounds that hold for every algorithm, in bytes.
struct BatchBounds {
  // For the worst device: the largest over devices of BatchDevice::recv_bound. That is at least every tensor's own
  // bound and at most their sum. With partial values, the even share of all transmissions where that is more.
  int64_t recv_bytes_max = 0;
  // For all devices together.
  int64_t recv_bytes_total = 0;
};

// The schedule of a batch.
struct BatchPlan {
  BatchOptions options;              // used to make the batch
  std::vector<std::string> names;    // one per tensor, or empty
  std::vector<Plan> plans;           // one per distinct problem, in order of first appearance
  std::vector<BatchTensor> tensors;  // in the order given
  std::vector<BatchBucket> buckets;  // in the order in which they run
  std::vector<BatchDevice> devices;  // of all meshes, by ascending id
  BatchTotals totals;                // over all tensors
  BatchBounds bounds;                // for all tensors together

  // The plan of one tensor with its first holder filled in: programs are compiled from this. Its figures are those of
  // plans[]; on a topology with levels, the actual figures per level may differ.
  Plan PlanOf(int64_t tensor) const;
};

// Plans a batch. Post-conditions:
//  - every tensor's plan is the one that MakePlan returns, see there; equal problems are planned once. A batch of
//    several tensors does not use chunks.
//    A bucket pays latencies only once. So with objective kTime, a batch so large that latencies hardly matter uses the
//    plan for kBytes wherever that plan receives fewer bytes and its transfers take no longer;
//  - buckets are runs of consecutive tensors and keep to the limits in `options`;
//  - without partial values, totals.recv_bytes_max == bounds.recv_bytes_max if every plan meets its bound on every
//    device;
//  - deterministic: equal input gives an equal batch on every machine.
// Errors: those of MakePlan, after the name of the tensor (ResourceExhausted: the tensor alone does not fit the memory
// limit; the message gives the bytes needed). InvalidArgument: a negative bucket limit, sums over tensors that do not
// fit in 64 bits, or a number of names that is not the number of tensors.
// If `names` is not empty, errors and reports call the tensors by them; a tensor with an empty name goes by its index.
absl::StatusOr<BatchPlan> PlanBatch(absl::Span<const Problem> problems, const BatchOptions& options = {},
                                    std::vector<std::string> names = {});

// One line of JSON, schema reshard.batch/1 (docs/batch.schema.json), without a newline. `ids`, if not empty, are JSON
// values as text, one per tensor, that replace the names. InvalidArgument for a different number of them.
absl::StatusOr<std::string> BatchToJson(const BatchPlan& batch, absl::Span<const std::string> ids = {});
// A few lines: tensors, plans, buckets, bytes against the bound, how evenly senders are loaded. Ends with a newline.
std::string BatchToText(const BatchPlan& batch);
// The tensors that take the most time, one line per plan, at most `most` lines: how many tensors share the plan, what
// each moves, and their share of the total time. Ends with a newline; empty if nothing moves.
std::string CostliestTensors(const BatchPlan& batch, size_t most = 10);
// BatchToText, then for every distinct plan its tensors, its steps, and why it was chosen. Ends with a newline.
std::string ExplainBatch(const BatchPlan& batch);

}  // namespace reshard

#endif  // RESHARD_PLANNER_BATCH_H_
