// What a plan says of itself, in the oracle's words: texts, figures, and the boxes of its messages.
#ifndef RESHARD_TESTS_PROPERTY_FACTS_H_
#define RESHARD_TESTS_PROPERTY_FACTS_H_

#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "planner/transfers/shard_maps.h"
#include "reshard/layout/text.h"
#include "reshard/planner/plan.h"
#include "reshard/planner/traffic.h"
#include "tests/oracle/plan_check.h"

namespace reshard::testing {

// Adds the boxes of one message: the product over dimensions of its runs.
inline void AddPieces(int64_t step, const Message& message, std::vector<oracle::MovedBox>& pieces) {
  std::vector<oracle::MovedBox> boxes = {{step, message.sender, message.receiver, {}, {}}};
  for (const std::vector<Run>& runs : message.runs) {
    std::vector<oracle::MovedBox> longer;
    for (const oracle::MovedBox& box : boxes) {
      for (const Run& run : runs) {
        longer.push_back(box);
        longer.back().offset.push_back(run.global);
        longer.back().size.push_back(run.length);
      }
    }
    boxes = std::move(longer);
  }
  pieces.insert(pieces.end(), boxes.begin(), boxes.end());
}

inline absl::StatusOr<oracle::PlanFacts> FactsOf(const Plan& plan) {
  oracle::PlanFacts facts;
  facts.mesh = ToString(plan.source.mesh());
  facts.source = ToString(plan.source);
  facts.target_mesh = ToString(plan.target.mesh());
  facts.target = ToString(plan.target);
  facts.world = plan.world();
  facts.element_bytes = SizeOf(plan.dtype);
  facts.objective = std::string(Name(plan.options.objective));
  if (!(plan.options.ops == OpSet::All())) {
    for (int i = 0; i < kNumOps; ++i) {
      const auto op = static_cast<Op>(i);
      if (plan.options.ops.contains(op)) facts.ops.emplace_back(Name(op));
    }
  }
  facts.boxes_only = plan.options.boxes_only;
  facts.flat_topology = plan.options.topology == Topology::Flat();
  facts.memory_limit_bytes = plan.options.memory_limit_bytes;
  if (plan.chunks.count > 1) {
    facts.chunks = plan.chunks.count;
    facts.chunk_dim = plan.chunks.dim;
    facts.chunk_block = plan.chunks.block;
  }
  transfers::ShardMaps maps({});
  for (size_t s = 0; s < plan.steps.size(); ++s) {
    const Step& step = plan.steps[s];
    oracle::StepFacts& out = facts.steps.emplace_back();
    out.op = std::string(Name(step.op));
    for (const AxisRef& ref : step.axes) out.axes.push_back(ToString(step.from.mesh(), ref));
    out.from_mesh = ToString(step.from.mesh());
    out.from = ToString(step.from);
    out.to_mesh = ToString(step.to.mesh());
    out.to = ToString(step.to);
    out.group_size = step.group_size;
    out.recv_bytes_max = step.recv_bytes_max;
    out.recv_bytes_total = step.recv_bytes_total;
    out.send_bytes_max = step.send_bytes_max;
    out.local_bytes_before_max = step.local_bytes_before_max;
    out.local_bytes_after_max = step.local_bytes_after_max;
    out.peers_max = step.peers_max;
    out.time_ns = step.time_ns;
    if (step.op == Op::kSlice) continue;
    // As they are compiled; the JSON test looks at those that the planner counts.
    auto messages = transfers::CreateMessages(step, plan.options.topology, maps);
    if (!messages.ok()) return messages.status();
    for (int64_t q = 0; q < step.to.mesh().size(); ++q) {
      for (const Message& message : (*messages)->Receives(step.to.mesh().Device(q))) {
        if (message.sender != message.receiver) AddPieces(static_cast<int64_t>(s), message, facts.pieces);
      }
    }
  }
  facts.recv_bytes_max = plan.totals.recv_bytes_max;
  facts.recv_bytes_total = plan.totals.recv_bytes_total;
  facts.intermediate_bytes_max = plan.totals.intermediate_bytes_max;
  facts.peak_bytes = plan.totals.peak_bytes;
  facts.time_ns = plan.totals.time_ns;
  facts.bound_recv_bytes_max = plan.bounds.recv_bytes_max;
  facts.bound_recv_bytes_total = plan.bounds.recv_bytes_total;
  facts.bound_intermediate_bytes_max = plan.bounds.intermediate_bytes_max;
  facts.certificate = std::string(Name(plan.certificate.kind));
  return facts;
}

}  // namespace reshard::testing

#endif  // RESHARD_TESTS_PROPERTY_FACTS_H_
