// Messages and collectives over NCCL: one communicator for the world, and one for every set of mesh axes that a step
// needed. All calls are made under one lock, from one thread at a time, as NCCL requires.
#ifndef RESHARD_RUNTIME_NCCL_NCCL_TRANSPORT_H_
#define RESHARD_RUNTIME_NCCL_NCCL_TRANSPORT_H_

#include <cstdint>
#include <deque>
#include <functional>
#include <map>
#include <string>
#include <vector>

#include "absl/functional/function_ref.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "reshard/nccl/nccl_api.h"
#include "runtime/cuda/captured_graphs.h"
#include "runtime/cuda/device.h"
#include "runtime/cuda/device_transport.h"
#include "status/mutex.h"

namespace reshard::nccl {

struct NcclTransportOptions {
  absl::Duration timeout;
  int max_ctas = 0;
  bool native_reductions = true;
  int64_t max_peers = 0;
};

class NcclTransport final : public cuda::DeviceTransport {
 public:
  NcclTransport(const NcclApi& api, const cuda::CudaDevice& device, int64_t rank, int64_t size,
                NcclTransportOptions options)
      : api_(api), device_(device), rank_(rank), size_(size), options_(options) {}
  // Finalizes what is left, which is nothing after Abort. If graphs that were captured over this are still alive, NCCL
  // would wait for them, so communicators then stay until the process ends.
  ~NcclTransport() override;

  // Collective: makes the communicator of the world. `interrupted` is polled while this waits for ranks; its error ends
  // the wait.
  absl::Status Join(const NcclUniqueId& id, absl::FunctionRef<absl::Status()> interrupted);

  absl::Status Exchange(absl::Span<const cuda::DeviceSend> sends, absl::Span<const cuda::DeviceReceive> receives,
                        cuda::CudaStream stream) override;
  absl::StatusOr<void*> GroupFor(const StepProgram& step) override;
  bool Reduces(ReduceOp op, DType dtype) const override;
  absl::Status Collect(Op op, void* group, absl::Span<const cuda::DeviceCollective> calls,
                       cuda::CudaStream stream) override;

  // The communicator of all ranks, as a group of Collect.
  void* world() const { return world_; }
  // The next calls are captured on that stream: the communicators live at least as long as its graph.
  absl::Status CapturedOn(cuda::CudaStream stream);
  // OK, or the error that NCCL reports for one of its communicators.
  absl::Status AsyncError();
  // Ends all communicators and what they have on the device, without waiting for graphs. Thread-safe; later calls fail.
  void Abort();
  // Number of communicators made by splitting, including those without this rank.
  int64_t splits() const;
  // Waits for NCCL in Exchange, Collect and GroupFor end when `interrupted` returns an error.
  void InterruptBy(std::function<absl::Status()> interrupted) { interrupted_ = std::move(interrupted); }
  // `drain` waits until nothing that was enqueued before is left on the device, or says why not. It is called before
  // the world is split, which NCCL must not be asked to do while it works.
  void DrainBy(std::function<absl::Status()> drain) { drain_ = std::move(drain); }

 private:
  class Group;
  absl::Status ExchangeOnce(absl::Span<const cuda::DeviceSend> sends, absl::Span<const cuda::DeviceReceive> receives,
                            cuda::CudaStream stream);
  absl::Status Check(NcclResult result, NcclComm comm, absl::string_view what) const;
  absl::Status Settle(NcclComm comm, absl::string_view what, absl::FunctionRef<absl::Status()> interrupted);
  // All of them, each before the one that it was split off from. With the lock held.
  std::vector<NcclComm> Communicators() const ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  absl::Status Call(Op op, NcclComm comm, const cuda::DeviceCollective& call, cuda::CudaStream stream) const;
  NcclConfig Config() const;

  const NcclApi& api_;
  const cuda::CudaDevice& device_;
  const int64_t rank_;
  const int64_t size_;
  const NcclTransportOptions options_;
  std::function<absl::Status()> interrupted_;
  std::function<absl::Status()> drain_;

  struct ScopedComm {
    GroupScope scope;
    std::string name;         // of the scope, for errors
    NcclComm comm = nullptr;  // null where this rank is in none of its groups
  };

  mutable status::Mutex mutex_;
  NcclComm world_ = nullptr;  // written by Join, under the mutex, before anything else is called
  // In the order in which they were split off, which is the same on all ranks; they end in this order, too.
  std::vector<ScopedComm> groups_ ABSL_GUARDED_BY(mutex_);
  bool aborted_ ABSL_GUARDED_BY(mutex_) = false;

  cuda::CapturedGraphs graphs_;

  // Where NCCL writes the communicators that are split off, some time after the call: never moved.
  std::deque<NcclComm> split_off_;
};

}  // namespace reshard::nccl

#endif  // RESHARD_RUNTIME_NCCL_NCCL_TRANSPORT_H_
