// Finding out, from the boards of the other ranks, why an operation did not come back.
#ifndef RESHARD_RUNTIME_TORCH_PEER_BLAME_H_
#define RESHARD_RUNTIME_TORCH_PEER_BLAME_H_

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/time/time.h"
#include "runtime/torch/peer_board.h"

namespace reshard {

// Asking who is to blame takes at most so long in all, and one silent peer so long of it.
inline constexpr absl::Duration kAskAllPeers = absl::Milliseconds(600);
inline constexpr absl::Duration kAskOnePeer = absl::Milliseconds(250);

// The rank that waits, and what for.
struct WaitingRank {
  int64_t rank = 0;
  int64_t operations = 0;  // the number of the one that does not come back, as the boards count them
  std::string place;       // its name
  absl::Duration timeout;  // how long it was waited for
};

// The error of a wait for everybody that failed. Asks all ranks at once (peers[r] is rank r). A rank that found out
// before this one may have left its process since, but it told first: so what `told` returns, when it is not empty,
// counts more than who is gone. `reason` is what the backend said, if anything.
absl::Status BlameAnybody(const std::vector<PeerAddress>& peers, const WaitingRank& waiting, const std::string& reason,
                          const std::function<std::string()>& told);

absl::Status PeerIsGone(int64_t peer, const std::string& place);
absl::Status PeerIsSilent(int64_t peer, const std::string& place);

// Tells all ranks but `rank` that the communicator is lost; best effort.
void TellOthers(const std::vector<PeerAddress>& peers, int64_t rank, const std::string& message);

}  // namespace reshard

#endif  // RESHARD_RUNTIME_TORCH_PEER_BLAME_H_
