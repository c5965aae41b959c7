#include "runtime/cuda/device_transport.h"

#include <map>
#include <utility>

namespace reshard::cuda {

std::vector<ExchangeRound> RoundsOf(absl::Span<const DeviceSend> sends, absl::Span<const DeviceReceive> receives,
                                    int64_t rank, int64_t world, int64_t max_peers) {
  std::map<int64_t, ExchangeRound> rounds;
  const auto round_of = [&](int64_t sender, int64_t receiver) {
    const int64_t distance = (receiver - sender + world) % world;  // at least 1
    return max_peers < 1 ? 0 : (distance - 1) / max_peers;
  };
  for (const DeviceSend& send : sends) rounds[round_of(rank, send.peer)].sends.push_back(send);
  for (const DeviceReceive& receive : receives) rounds[round_of(receive.peer, rank)].receives.push_back(receive);
  std::vector<ExchangeRound> out;
  for (auto& [number, round] : rounds) out.push_back(std::move(round));
  return out;
}

}  // namespace reshard::cuda
