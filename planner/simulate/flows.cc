#include "planner/simulate/flows.h"

#include <algorithm>
#include <memory>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "reshard/layout/checked.h"
#include "reshard/planner/traffic.h"
#include "status/macros.h"

namespace reshard::simulate {
namespace {

constexpr int64_t kMostFlows = int64_t{4} << 20;

class Lister {
 public:
  Lister(const Plan& plan, const Topology& topology) : plan_(plan), topology_(topology) {}

  absl::StatusOr<FlowList> List() {
    ListDevices();
    int64_t messages = 0;
    std::vector<std::vector<Flow>> of_steps(plan_.steps.size());  // where they go in chunks
    for (size_t i = 0; i < plan_.steps.size(); ++i) {
      const Step& step = plan_.steps[i];
      if (step.op == Op::kSlice) continue;
      ASSIGN_OR_RETURN(auto transfers, TransferSchedule::Create(step, plan_.options.topology));
      const int64_t parts = step.op == Op::kAllReduce ? 2 : 1;
      const int64_t times = plan_.chunks.count > 1 ? plan_.chunks.count : step.rounds;
      const auto expected = CheckedMul(transfers->Figures().messages_total, times * parts);
      if (!expected || *expected > kMostFlows - messages) {
        return absl::ResourceExhaustedError(
            absl::StrCat("step ", i + 1, " has ", transfers->Figures().messages_total, " messages in ", times,
                         plan_.chunks.count > 1 ? " chunks" : " rounds", "; a simulation follows up to ", kMostFlows));
      }
      messages += *expected;
      if (plan_.chunks.count > 1) {
        of_steps[i] = FlowsOf(*transfers, Part::kAll);
      } else if (step.op == Op::kAllReduce) {
        AddRounds(i, FlowsOf(*transfers, Part::kReduced));
        AddRounds(i, FlowsOf(*transfers, Part::kGathered));
      } else {
        AddRounds(i, FlowsOf(*transfers, Part::kAll));
      }
    }
    if (plan_.chunks.count > 1) AddTurns(of_steps);
    return std::move(out_);
  }

 private:
  // What a message of the transfers stands for: itself, or one of the chunks that an AllReduce sends.
  enum class Part { kAll, kReduced, kGathered };

  void ListDevices() {
    for (const Layout* layout : {&plan_.source, &plan_.target}) {
      for (int64_t p = 0; p < layout->mesh().size(); ++p) out_.devices.push_back(layout->mesh().Device(p));
    }
    for (const Step& step : plan_.steps) {
      for (int64_t p = 0; p < step.to.mesh().size(); ++p) out_.devices.push_back(step.to.mesh().Device(p));
    }
    std::sort(out_.devices.begin(), out_.devices.end());
    out_.devices.erase(std::unique(out_.devices.begin(), out_.devices.end()), out_.devices.end());
  }

  int32_t IndexOf(int64_t device) const {
    return static_cast<int32_t>(std::lower_bound(out_.devices.begin(), out_.devices.end(), device) -
                                out_.devices.begin());
  }

  std::vector<Flow> FlowsOf(const TransferSchedule& transfers, Part part) const {
    std::vector<Flow> flows;
    for (const int64_t device : transfers.Devices()) {
      const std::vector<Message> received = transfers.Receives(device);
      const auto members = static_cast<int64_t>(received.size());
      int64_t own = 0;
      while (own < members && received[own].sender != device) ++own;
      for (int64_t m = 0; m < members; ++m) {
        const Message& message = received[m];
        if (message.sender == device) continue;
        int64_t elements = message.elements();
        if (part == Part::kReduced) elements = AllReduceChunk(elements, members, own).length();
        if (part == Part::kGathered) elements = AllReduceChunk(elements, members, m).length();
        if (elements == 0) continue;
        flows.push_back({0, IndexOf(message.sender), IndexOf(device), topology_.LevelOf(message.sender, device), 0,
                         elements * SizeOf(plan_.dtype)});
      }
    }
    return flows;
  }

  // What happens in one turn, a chunk of each step that is at work, is one phase. What a device sends another is one
  // message.
  void AddTurns(const std::vector<std::vector<Flow>>& of_steps) {
    const auto steps = static_cast<int64_t>(of_steps.size());
    for (int64_t turn = 0; turn < plan_.chunks.Turns(steps); ++turn) {
      const Interval at_work = plan_.chunks.StepsIn(turn, steps);
      std::vector<Flow> parts;
      for (int64_t s = at_work.begin; s < at_work.end; ++s) {
        const std::vector<Flow>& of_step = of_steps[s];
        parts.insert(parts.end(), of_step.begin(), of_step.end());
      }
      if (parts.empty()) continue;
      const auto ends = [](const Flow& flow) { return std::pair(flow.sender, flow.receiver); };
      std::sort(parts.begin(), parts.end(), [&](const Flow& a, const Flow& b) { return ends(a) < ends(b); });
      std::vector<Flow> flows;
      for (Flow& flow : parts) {
        flow.bytes /= plan_.chunks.count;
        if (!flows.empty() && ends(flows.back()) == ends(flow)) {
          flows.back().bytes += flow.bytes;
        } else {
          flows.push_back(flow);
        }
      }
      TakeTurns(flows);
      for (Flow& flow : flows) flow.phase = static_cast<int32_t>(out_.phases.size());
      out_.phases.push_back({static_cast<int32_t>(at_work.begin), static_cast<int32_t>(at_work.end - 1)});
      out_.flows.insert(out_.flows.end(), flows.begin(), flows.end());
    }
  }

  // The step's flows as phases of their own, one per round; bytes are dealt out to the rounds from the first on.
  void AddRounds(size_t step_index, std::vector<Flow> flows) {
    if (flows.empty()) return;
    const Step& step = plan_.steps[step_index];
    TakeTurns(flows);
    for (int64_t round = 0; round < step.rounds; ++round) {
      const auto phase = static_cast<int32_t>(out_.phases.size());
      out_.phases.push_back({static_cast<int32_t>(step_index), static_cast<int32_t>(step_index)});
      for (Flow flow : flows) {
        const int64_t share = CeilDiv(flow.bytes, step.rounds);
        const int64_t before = std::min(flow.bytes, share * round);
        flow.bytes = std::min(flow.bytes - before, share);
        flow.phase = phase;
        if (flow.bytes > 0) out_.flows.push_back(flow);
      }
    }
  }

  // How far ahead of the sender the receiver is: domains first, then its place in the domain. Everyone begins with its
  // neighbor; were all to begin with the lowest device, it would receive from everyone at once.
  int64_t Ahead(const Flow& flow) const {
    int64_t from = out_.devices[flow.sender], to = out_.devices[flow.receiver];
    int64_t out = 0;
    int64_t domains = out_.devices.back() / InsideOf(topology_.num_levels() - 1) + 1;
    for (int level = topology_.num_levels() - 1; level >= 0; --level) {
      const int64_t inside = InsideOf(level);
      const int64_t ahead = to / inside - from / inside;
      out = out * domains + (ahead < 0 ? ahead + domains : ahead);
      from %= inside;
      to %= inside;
      if (level > 0) domains = inside / InsideOf(level - 1);
    }
    return out;
  }
  int64_t InsideOf(int level) const {
    return level == 0 ? 1 : topology_.levels[static_cast<size_t>(level) - 1].devices;
  }

  void TakeTurns(std::vector<Flow>& flows) const {
    std::sort(flows.begin(), flows.end(), [&](const Flow& a, const Flow& b) {
      if (a.sender != b.sender) return a.sender < b.sender;
      if (a.level != b.level) return a.level < b.level;
      return Ahead(a) < Ahead(b);
    });
    for (size_t i = 1; i < flows.size(); ++i) {
      if (flows[i].sender == flows[i - 1].sender && flows[i].level == flows[i - 1].level) {
        flows[i].turn = flows[i - 1].turn + 1;
      }
    }
  }

  const Plan& plan_;
  const Topology& topology_;
  FlowList out_;
};

}  // namespace

absl::StatusOr<FlowList> ListFlows(const Plan& plan, const Topology& topology) { return Lister(plan, topology).List(); }

}  // namespace reshard::simulate
