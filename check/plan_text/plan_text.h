// What a plan says about itself: its JSON as plain values, with findings where the JSON is not as it should be.
#ifndef RESHARD_CHECK_PLAN_TEXT_PLAN_TEXT_H_
#define RESHARD_CHECK_PLAN_TEXT_PLAN_TEXT_H_

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "absl/status/statusor.h"
#include "check/plan_text/topology.h"
#include "json/document.h"
#include "reshard/check/finding.h"

namespace reshard::plan_text {

using Figure = std::optional<int64_t>;

struct LevelText {
  Figure recv_bytes_max, send_bytes_max, recv_bytes_total, nic_bytes_max, peers_max;
};

struct StepText {
  std::string op, from, to;
  std::optional<std::string> from_mesh, to_mesh;
  std::optional<std::vector<std::string>> axes;
  Figure group_size, recv_bytes_max, recv_bytes_total, send_bytes_max, local_bytes_before_max, local_bytes_after_max,
      peers_max, rounds, time_ns;
  std::optional<std::vector<LevelText>> levels;
};

struct LevelBoundText {
  Figure island_recv_bytes_max, nic_recv_bytes_max, nic_bytes_max, recv_bytes_total;
};

// How the steps overlap.
struct ChunksText {
  int64_t count = 1;
  int64_t dimension = 0;
  int64_t block = 0;
};

// [step, sender, receiver, [offset...], [size...]]; `sizes` holds the offsets and then the sizes.
struct PieceText {
  int64_t step = 0, sender = 0, receiver = 0;
  std::vector<int64_t> sizes;
};

struct PlanText {
  bool strict = false;  // has the schema: every key that it requires is expected
  std::string name;     // the id, as text
  std::string mesh, source, target, dtype;
  std::optional<std::string> target_mesh;
  std::vector<int64_t> shape;
  Figure world;
  std::optional<std::vector<std::string>> ops;
  bool boxes = false;
  bool overlap = true;
  Figure memory_limit_bytes;
  Links links;  // flat where the plan does not say
  std::vector<StepText> steps;
  std::optional<ChunksText> chunks;
  Figure recv_bytes_max, recv_bytes_total, intermediate_bytes_max, peak_bytes, time_ns;  // totals
  std::optional<std::vector<LevelText>> levels;
  Figure bound_recv_bytes_max, bound_recv_bytes_total, bound_intermediate_bytes_max;
  std::optional<std::vector<LevelBoundText>> bound_levels;
  std::optional<std::string> certificate;
  std::optional<std::vector<PieceText>> pieces;
};

// One plan, or why there is none to judge.
struct ReadPlan {
  absl::Status status;
  PlanText plan;
  std::vector<Finding> findings;
};

ReadPlan ReadOne(json::Value json);

// All plans of a text; see CheckPlans for what it may contain. `batch`: there may be several.
struct ReadPlans {
  bool batch = false;
  std::vector<ReadPlan> plans;
};
absl::StatusOr<ReadPlans> ReadText(std::string_view text);

}  // namespace reshard::plan_text

#endif  // RESHARD_CHECK_PLAN_TEXT_PLAN_TEXT_H_
