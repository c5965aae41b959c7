#include "planner/page/step_data.h"

#include <algorithm>
#include <array>
#include <map>
#include <nlohmann/json.hpp>

#include "absl/container/flat_hash_map.h"
#include "reshard/layout/dtype.h"
#include "reshard/planner/traffic.h"
#include "status/macros.h"

namespace reshard::page {
namespace {

using Json = nlohmann::ordered_json;

// Values, each once, and which of them every device has.
template <typename Value>
class Dictionary {
 public:
  void Add(Json& runs, Value value) {
    const auto index = static_cast<int64_t>(index_.emplace(std::move(value), index_.size()).first->second);
    if (!runs.empty() && runs[runs.size() - 2] == index) {
      runs.back() = runs.back().template get<int64_t>() + 1;
    } else {
      runs.push_back(index);
      runs.push_back(1);
    }
  }
  Json Values() const {
    std::vector<const Value*> ordered(index_.size());
    for (const auto& [value, index] : index_) ordered[index] = &value;
    Json out = Json::array();
    for (const Value* value : ordered) out.push_back(*value);
    return out;
  }

 private:
  std::map<Value, size_t> index_;
};

// first, stride, count, bytes: `count` peers, each `stride` after the one before, that get or give as many bytes.
using PeerRun = std::array<int64_t, 4>;

std::vector<PeerRun> PeersOf(int64_t device, const std::vector<Message>& messages, bool receives, int64_t element) {
  std::vector<PeerRun> out;
  for (const Message& message : messages) {
    if (message.sender == message.receiver) continue;
    const int64_t peer = (receives ? message.sender : message.receiver) - device;
    const int64_t bytes = message.elements() * element;
    if (!out.empty() && out.back()[3] == bytes) {
      PeerRun& last = out.back();
      const int64_t stride = last[2] == 1 ? peer - last[0] : last[1];
      if (peer == last[0] + stride * last[2]) {
        last[1] = stride;
        ++last[2];
        continue;
      }
    }
    out.push_back({peer, 0, 1, bytes});
  }
  return out;
}

Json BoxJson(const Message& message) {
  int64_t boxes = 1;
  for (const std::vector<Run>& runs : message.runs) boxes *= static_cast<int64_t>(runs.size());
  Json out{message.sender, message.receiver, boxes};
  for (const std::vector<Run>& runs : message.runs) {
    out.push_back(runs[0].global);
    out.push_back(runs[0].length);
  }
  return out;
}

Json LoadsJson(const Traffic& traffic, const std::vector<int64_t>& devices, int64_t element) {
  const std::vector<int64_t> taking_part = traffic.Devices();
  absl::flat_hash_map<int64_t, int64_t> index;
  index.reserve(devices.size());
  const absl::flat_hash_map<int64_t, int64_t>::size_type none = 0;
  for (int64_t device : devices) index.emplace(device, -1);
  if (index.size() == none) return nullptr;
  for (size_t i = 0; i < taking_part.size(); ++i) {
    if (const auto found = index.find(taking_part[i]); found != index.end()) found->second = static_cast<int64_t>(i);
  }
  Dictionary<std::vector<int64_t>> loads;
  Json runs = Json::array();
  for (int64_t device : devices) {
    std::vector<int64_t> value(4, 0);
    if (const int64_t at = index[device]; at >= 0) {
      const DeviceLoad load = traffic.Load(at);
      value = {load.before * element, load.after * element, load.recv * element, load.send * element};
      for (const LevelLoad& level : load.levels) {
        value.push_back(level.recv * element);
        value.push_back(level.send * element);
      }
    }
    loads.Add(runs, std::move(value));
  }
  return {{"values", loads.Values()}, {"of", std::move(runs)}};
}

}  // namespace

absl::StatusOr<std::string> StepData(const Step& step, const Plan& plan, const std::vector<int64_t>& devices,
                                     const Detail& detail) {
  ASSIGN_OR_RETURN(auto traffic, Traffic::Create(step, plan.options.topology));
  const int64_t element = SizeOf(plan.dtype);
  const int64_t messages = step.op == Op::kSlice ? 0 : traffic->Figures().messages_total;
  Json out{{"messages", messages}};
  if (!devices.empty()) out["loads"] = LoadsJson(*traffic, devices, element);
  if (messages <= detail.messages && !devices.empty()) {
    Dictionary<std::vector<PeerRun>> peers;
    Json receives = Json::array(), sends = Json::array(), boxes = Json::array();
    for (int64_t device : devices) {
      std::vector<Message> in, from;
      if (messages > 0) {
        in = traffic->Receives(device);
        from = traffic->Sends(device);
      }
      peers.Add(receives, PeersOf(device, in, true, element));
      peers.Add(sends, PeersOf(device, from, false, element));
      if (messages > detail.boxes) continue;
      for (const Message& message : in) {
        if (message.sender != message.receiver) boxes.push_back(BoxJson(message));
      }
    }
    out["peers"] = {{"values", peers.Values()}, {"receives", std::move(receives)}, {"sends", std::move(sends)}};
    if (messages <= detail.boxes) out["boxes"] = std::move(boxes);
  }
  const std::string text = out.dump();
  return text.substr(1, text.size() - 2);
}

}  // namespace reshard::page
