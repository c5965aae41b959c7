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

// On meshes of up to this many devices, each is asked for what it receives.
constexpr int64_t kMostReceivers = 1 << 16;

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

// first, stride, count, bytes: `count` peers, each `stride` after the one before, that get or give this many bytes.
using PeerRun = std::array<int64_t, 4>;

// Adds a peer that comes after those that are there.
void AddPeer(std::vector<PeerRun>& peers, int64_t peer, int64_t bytes) {
  if (!peers.empty() && peers.back()[3] == bytes) {
    PeerRun& last = peers.back();
    const int64_t stride = last[2] == 1 ? peer - last[0] : last[1];
    if (peer == last[0] + stride * last[2]) {
      last[1] = stride;
      ++last[2];
      return;
    }
  }
  peers.push_back({peer, 0, 1, bytes});
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

// The index of each of `devices`.
using Index = absl::flat_hash_map<int64_t, size_t>;

Index IndexOf(const std::vector<int64_t>& devices) {
  Index out;
  out.reserve(devices.size());
  for (size_t i = 0; i < devices.size(); ++i) out.emplace(devices[i], i);
  return out;
}

Json LoadsJson(const TransferSchedule& transfers, const std::vector<int64_t>& devices, int64_t element) {
  const Index taking_part = IndexOf(transfers.Devices());
  Dictionary<std::vector<int64_t>> loads;
  Json runs = Json::array();
  for (int64_t device : devices) {
    std::vector<int64_t> value(4, 0);
    if (const auto at = taking_part.find(device); at != taking_part.end()) {
      const DeviceLoad load = transfers.Load(static_cast<int64_t>(at->second));
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

// Adds "peers", and "boxes" if there are few. Goes through the receivers, because finding a sender's receivers may mean
// looking at all devices.
void AddMessages(const TransferSchedule& transfers, const std::vector<int64_t>& devices, int64_t element,
                 bool with_boxes, Json& out) {
  const Index index = IndexOf(devices);
  std::vector<std::vector<PeerRun>> received(devices.size()), sent(devices.size());
  Json boxes = Json::array();
  std::vector<int64_t> receivers = transfers.Devices();
  std::sort(receivers.begin(), receivers.end());
  for (int64_t receiver : receivers) {
    const auto to = index.find(receiver);
    for (const Message& message : transfers.Receives(receiver)) {
      if (message.sender == receiver) continue;
      const int64_t bytes = message.elements() * element;
      const auto from = index.find(message.sender);
      if (to != index.end()) AddPeer(received[to->second], message.sender - receiver, bytes);
      if (from != index.end()) AddPeer(sent[from->second], receiver - message.sender, bytes);
      if (with_boxes) boxes.push_back(BoxJson(message));
    }
  }
  Dictionary<std::vector<PeerRun>> peers;
  Json receives = Json::array(), sends = Json::array();
  for (std::vector<PeerRun>& one : received) peers.Add(receives, std::move(one));
  for (std::vector<PeerRun>& one : sent) peers.Add(sends, std::move(one));
  out["peers"] = {{"values", peers.Values()}, {"receives", std::move(receives)}, {"sends", std::move(sends)}};
  if (with_boxes) out["boxes"] = std::move(boxes);
}

}  // namespace

absl::StatusOr<std::string> StepData(const Step& step, const Plan& plan, const std::vector<int64_t>& devices,
                                     const Detail& detail) {
  ASSIGN_OR_RETURN(auto transfers, TransferSchedule::Create(step, plan.options.topology));
  const int64_t element = SizeOf(plan.dtype);
  const int64_t messages = step.op == Op::kSlice ? 0 : transfers->Figures().messages_total;
  Json out{{"messages", messages}};
  if (!devices.empty()) out["loads"] = LoadsJson(*transfers, devices, element);
  if (messages == 0) {
    out["peers"] = {{"values", {Json::array()}}, {"receives", {0, devices.size()}}, {"sends", {0, devices.size()}}};
  } else if (messages <= detail.messages && !devices.empty() && step.to.mesh().size() <= kMostReceivers) {
    AddMessages(*transfers, devices, element, messages <= detail.boxes, out);
  }
  const std::string text = out.dump();
  return text.substr(1, text.size() - 2);
}

}  // namespace reshard::page
