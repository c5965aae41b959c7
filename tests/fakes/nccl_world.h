// Ranks with a communicator each, over the fakes.
#ifndef RESHARD_TESTS_FAKES_NCCL_WORLD_H_
#define RESHARD_TESTS_FAKES_NCCL_WORLD_H_

#include <functional>
#include <memory>
#include <vector>

#include "absl/status/status.h"
#include "reshard/nccl/nccl_communicator.h"
#include "runtime/cuda/device.h"
#include "tests/fakes/fake_world.h"

namespace reshard::testing {

// The kernels that the fake driver finds: the real ones' code, on the host.
void RegisterKernels();

// What a fake driver takes for compiled kernels.
inline constexpr char kFakeImage[] = "kernels";

// body(communicator) in a thread for each rank of the FakeWorld that the caller has made; the errors by rank. A
// communicator that could not be made is an error, too. Barriers follow the bodies that end well, so that a failure
// anywhere reaches everybody.
std::vector<absl::Status> RunNcclRanks(int ranks, const NcclOptions& options,
                                       const std::function<absl::Status(NcclCommunicator&)>& body);

}  // namespace reshard::testing

#endif  // RESHARD_TESTS_FAKES_NCCL_WORLD_H_
