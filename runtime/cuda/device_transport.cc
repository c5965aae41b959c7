#include "runtime/cuda/device_transport.h"

#include <map>
#include <vector>

#include "status/macros.h"

namespace reshard::cuda {

absl::Status InRounds(
    absl::Span<const DeviceSend> sends, absl::Span<const DeviceReceive> receives, int64_t rank, int64_t world,
    int64_t max_peers,
    absl::FunctionRef<absl::Status(absl::Span<const DeviceSend>, absl::Span<const DeviceReceive>)> exchange) {
  if (max_peers < 1) return exchange(sends, receives);
  struct Round {
    std::vector<DeviceSend> sends;
    std::vector<DeviceReceive> receives;
  };
  std::map<int64_t, Round> rounds;
  // The distance is at least 1.
  const auto round_of = [&](int64_t sender, int64_t receiver) {
    return ((receiver - sender + world) % world - 1) / max_peers;
  };
  for (const DeviceSend& send : sends) rounds[round_of(rank, send.peer)].sends.push_back(send);
  for (const DeviceReceive& receive : receives) rounds[round_of(receive.peer, rank)].receives.push_back(receive);
  for (const auto& [number, round] : rounds) RETURN_IF_ERROR(exchange(round.sends, round.receives));
  return absl::OkStatus();
}

}  // namespace reshard::cuda
