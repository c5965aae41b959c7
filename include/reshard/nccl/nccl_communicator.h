// A communicator between GPUs over NCCL, one process (in tests: one thread) a rank.
//
//   auto comm = reshard::NcclCommunicator::Create(rank, size, store).value();
//   comm->UseStream(stream);                       // a cudaStream_t; null is the legacy default stream
//   reshard::Redistributor redistributor(comm.get());
//   ... redistributor.Run(...) enqueues ...
//   comm->Wait();                                  // or wait for the stream, as always with CUDA
//
// Everything is enqueued on the current stream and no call waits for the device: source and target may be used by what
// is enqueued after it. Tensors lie in memory of one GPU. Moves travel as bytes; reductions are typed and NCCL's where
// it has them, so that floating-point sums may be associated differently than on other backends.
//
// Groups of mesh axes become communicators of their own by ncclCommSplit, at the first step that needs them.
//
// Failure (see Communicator): NCCL does not notice most lost peers, so every operation has a deadline. A thread watches
// the operations under way; when one fails or is late it finds out through the store which rank is to blame, tells the
// others there, and aborts all communicators, which ends what hangs on the device. From then on every call, and Wait,
// returns the error. A step that was under way has written anything to its outputs.
//
// Agreement (see Communicator::Agree) travels on the stream, too, in front of the data, and is compared when it
// arrives: Agree itself returns OK at once. Ranks that disagree, and a rank that brings an error, end the communicator
// on all ranks, with the same errors as elsewhere. While a stream is captured into a graph nothing is compared.
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

namespace reshard {

class CudaDevice;

// Where ranks leave each other a few words: a c10d store, a file, a map between threads. Keys are written once. Slow is
// fine: it is used to meet and when something has failed. Thread-safe.
class RendezvousStore {
 public:
  virtual ~RendezvousStore() = default;
  virtual absl::Status Set(const std::string& key, const std::string& value) = 0;
  // Waits for the key. DeadlineExceeded when it does not come.
  virtual absl::StatusOr<std::string> Get(const std::string& key, absl::Duration timeout) = 0;
  // Nothing when it is not there yet.
  virtual absl::StatusOr<std::optional<std::string>> TryGet(const std::string& key) = 0;
};

struct NcclOptions {
  // How long one operation may take on the device, waiting for the others included, and how long ranks wait for each
  // other when they meet.
  absl::Duration timeout = DefaultTimeout();
  // The GPU.
  int device = 0;
  // At most so many blocks of the GPU for NCCL; 0: as many as it likes.
  int max_ctas = 0;
  // False: ranks combine contributions themselves, in the order of the ranks, so that a reduction has the same bits as
  // on every other backend and every number of ranks; as many bytes travel.
  bool native_reductions = true;
};

class NcclCommunicator final : public Communicator {
 public:
  // Collective over ranks 0 .. size-1, which meet through `store`; it must outlive the communicator.
  // Unavailable: no NCCL or no CUDA here, with what is missing. Otherwise what LoadNcclApi, the driver and NCCL report.
  static absl::StatusOr<std::unique_ptr<NcclCommunicator>> Create(int64_t rank, int64_t size, RendezvousStore* store,
                                                                  const NcclOptions& options = {});
  // The same on a given table and device.
  static absl::StatusOr<std::unique_ptr<NcclCommunicator>> CreateOn(const NcclApi& api,
                                                                    std::unique_ptr<CudaDevice> device, int64_t rank,
                                                                    int64_t size, RendezvousStore* store,
                                                                    const NcclOptions& options = {});
  // Waits for what is under way, at most until its deadline.
  ~NcclCommunicator() override;

  // What follows is enqueued there.
  void UseStream(void* stream);
  // Runs every kind of operation once over all ranks: connections are made at first use, which takes up to a second.
  // Collective.
  absl::Status WarmUp();
  // Returns when everything that was enqueued is done, with its error.
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

  CudaDevice& device() const;
  const RecentOperations& recent_operations() const;
  // Communicators made by splitting so far.
  int64_t groups() const;

 private:
  struct Impl;
  explicit NcclCommunicator(std::unique_ptr<Impl> impl);
  std::unique_ptr<Impl> impl_;
};

}  // namespace reshard

#endif  // RESHARD_NCCL_NCCL_COMMUNICATOR_H_
