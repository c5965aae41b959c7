// NCCL between the devices of fake_cuda.h: an NcclApi for tests whose ranks are threads of one process, with real
// values and with NCCL's rules. Operations run on their streams when their turn comes and wait there for their peers,
// so that order across streams matters as on a device.
//
//   - The k-th send of a rank to a peer meets the k-th receive of the peer from it; counts and types must be equal. An
//     operation without elements is one. Nothing is buffered: a send ends when its receive took it.
//   - Groups: operations to different peers and collectives of one group run at the same time. A send to itself needs
//     a receive from itself in its group. Groups of one communicator run in the order of issue, whatever their streams.
//   - The k-th collective of all ranks must be the same one. Only the in-place forms that NCCL knows.
//   - A non-blocking communicator answers InProgress, also after the first operation with a peer, and is usable again
//     when CommGetAsyncError says so, a few polls later; only then does the operation enter its stream. CommSplit
//     writes its result then, too.
//   - One device a communicator's rank: the one whose context is current in CommInitRankConfig.
//
// What breaks a rule gets an error from the call or the communicator, and Complaints() tells it. Operations that wait
// for each other in a circle, or for a rank that has gone, are found at once; nothing hangs but what a communicator
// that could still be used does not enqueue.
#ifndef RESHARD_TESTS_FAKES_FAKE_NCCL_H_
#define RESHARD_TESTS_FAKES_FAKE_NCCL_H_

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include "reshard/nccl/nccl_api.h"

namespace reshard::testing {

struct FakeNcclOptions {
  bool all_to_all = true;  // the table has AlltoAll
  // The other ranks see RemoteError when a rank aborts, as over sockets; else they notice nothing, as over NVLink.
  bool peers_notice_abort = false;
  int polls = 3;  // until a non-blocking communicator is ready
};

// One operation, as it was issued.
struct FakeOperation {
  std::string name;  // "Send", "AllReduce", ...
  size_t count = 0;
  NcclDataType type = 0;
  int peer = -1;      // the world's rank: of the peer's device
  int ranks = 0;      // of the communicator
  int64_t group = 0;  // operations with the same number are one launch; counted up for each rank
};

class FakeNccl {
 public:
  // Valid until the next Reset.
  static const NcclApi& Api();
  // Call it after FakeCuda::Reset.
  static void Reset(const FakeNcclOptions& options = {});

  // A rank is here a device: a communicator's rank is that of its device. See FakeCuda for how calls are numbered;
  // CommGetAsyncError, GetLastError and GetErrorString have no numbers.
  static int64_t Calls(int rank);
  static int64_t Calls(int rank, const std::string& function);
  static void FailAt(int rank, int64_t call, NcclResult result);
  static void FailAt(int rank, const std::string& function, int64_t nth, NcclResult result);

  // The operations of a rank so far, over all communicators.
  static std::vector<FakeOperation> Operations(int rank);
  // Groups with operations that a rank has launched, one for each communicator in it.
  static int64_t Groups(int rank);
  // When the rank's operation with this number (from 0) has its turn, its communicator gets the error, and it does not
  // end before the communicator is aborted.
  static void FailAsync(int rank, int64_t operation, NcclResult result);
  // It does nothing and does not end before the communicator is aborted.
  static void Stall(int rank, int64_t operation);

  // Of FakeCuda, too.
  static std::vector<std::string> Complaints();
  // Communicators that were neither destroyed nor aborted, and FakeCuda's leaks.
  static std::vector<std::string> Leaks();
};

}  // namespace reshard::testing

#endif  // RESHARD_TESTS_FAKES_FAKE_NCCL_H_
