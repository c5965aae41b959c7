// A communicator between GPUs over NCCL, with one process per rank (in tests, one thread).
//
//   auto comm = reshard::NcclCommunicator::Create(rank, size, store).value();
//   comm->UseStream(stream);                       // a cudaStream_t; null is the legacy default stream
//   reshard::Redistributor redistributor(comm.get());
//   ... redistributor.Run(...) enqueues ...
//   comm->Wait();                                  // or wait for the stream, as always with CUDA
//
// Everything is enqueued on the current stream, and no call waits for the device except the first step that needs a
// group. Work enqueued after a call may use its source and target. All tensors of a rank are in the memory of one GPU.
// Data moves as bytes; reductions are typed, and done by NCCL where it supports them, so that floating-point sums may
// be associated differently than on other backends.
//
// The first step that needs the groups along some mesh axes waits until everything enqueued before is done, then makes
// them communicators of their own with ncclCommSplit.
//
// What runs over it can be captured into graphs. NCCL waits for these before it ends a communicator; an
// NcclCommunicator does not: if it is destroyed while a graph is alive, its NCCL communicators stay until the process
// ends.
//
// Failure (see Communicator): NCCL does not notice most lost peers, so every operation has a deadline. A thread watches
// the operations in progress; when one fails or is late, it finds out through the store which rank is the culprit,
// tells the others there, and aborts all communicators, which ends whatever hangs on the device. From then on every
// call, and Wait, returns the error. The outputs of a step that was in progress are unspecified.
//
// Agreement (see Communicator::Agree) travels on the stream too, ahead of the data, and is compared when it arrives:
// Agree itself returns OK immediately. If ranks disagree, or one of them passes an error, the communicator becomes
// unusable on all ranks, with the same errors as on other backends. While a stream is captured into a graph nothing is
// compared.
#ifndef RESHARD_NCCL_NCCL_COMMUNICATOR_H_
#define RESHARD_NCCL_NCCL_COMMUNICATOR_H_

#include <cstdint>
#include <memory>
#include <optional>
#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "absl/types/span.h"
#include "reshard/nccl/nccl_api.h"
#include "reshard/runtime/communicator.h"
#include "reshard/runtime/recent_operations.h"
#include "reshard/runtime/rendezvous_store.h"

namespace reshard {

namespace cuda {
class CudaDevice;
}

// Options of an NcclCommunicator.
struct NcclOptions {
  // How long one operation may take on the device, including the wait for other ranks, and how long ranks wait for each
  // other when they first meet.
  absl::Duration timeout = DefaultTimeout();
  // Index of this rank's GPU, in CUDA's numbering.
  int device = 0;
  // Most thread blocks that NCCL may use per collective; 0: NCCL decides.
  int max_ctas = 0;
  // False: ranks combine contributions themselves, in rank order, so that a reduction gives the same bits as on every
  // other backend. The number of bytes that travel is the same.
  bool native_reductions = true;
  // Most ranks that one NCCL group call sends to, and most that it receives from; an exchange with more takes several
  // rounds. 0: all in one group call. The same on all ranks.
  int64_t max_peers = 0;
};

// See above. The overrides behave as documented in Communicator.
class NcclCommunicator final : public Communicator {
 public:
  // Collective over ranks 0 .. size-1, which meet through `store`; it must outlive the communicator.
  // Unavailable: there is no NCCL or no CUDA; the message says what is missing. Otherwise the errors of LoadNcclApi,
  // the driver and NCCL.
  static absl::StatusOr<std::unique_ptr<NcclCommunicator>> Create(int64_t rank, int64_t size, RendezvousStore* store,
                                                                  const NcclOptions& options = {});
  // The same with a given NCCL and device.
  static absl::StatusOr<std::unique_ptr<NcclCommunicator>> CreateOn(const NcclApi& api,
                                                                    std::unique_ptr<cuda::CudaDevice> device,
                                                                    int64_t rank, int64_t size, RendezvousStore* store,
                                                                    const NcclOptions& options = {});
  // Waits for operations in progress, at most until their deadlines.
  ~NcclCommunicator() override;

  // Runs every kind of operation once over all ranks, because NCCL connects at first use, which takes up to a second.
  // Collective.
  absl::Status WarmUp();
  // Waits until everything that was enqueued is done, and returns its error.
  absl::Status Wait();

  int64_t rank() const override;
  int64_t world_size() const override;
  CopyFor copies() const override { return CopyFor::kMessages; }
  MemoryKind memory() const override { return MemoryKind::kCuda; }
  absl::StatusOr<Memory> Allocate(int64_t bytes) override;
  absl::Status Agree(const absl::Status& own, const Signature& problem) override;
  absl::StatusOr<MoveStats> ExecuteStep(const StepProgram& step, absl::Span<const ConstTensorView> inputs,
                                        absl::Span<const TensorView> outputs, std::unique_ptr<StepMemo>* memo) override;
  // Waits, on the host, for everything that was enqueued.
  absl::Status Barrier() override;
  std::optional<int> gpu() const override;
  // Work enqueued there begins once everything enqueued before, on any stream, has ended: NCCL must not have unordered
  // kernels of several communicators on one device.
  void UseStream(void* stream) override;
  const RecentOperations* recent_operations() const override;

  // The GPU that it runs on.
  cuda::CudaDevice& device() const;
  // Number of communicators for groups that were split off so far.
  int64_t groups() const;

 private:
  struct Impl;
  explicit NcclCommunicator(std::unique_ptr<Impl> impl);
  std::unique_ptr<Impl> impl_;
};

}  // namespace reshard

#endif  // RESHARD_NCCL_NCCL_COMMUNICATOR_H_
