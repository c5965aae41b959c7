// The interface of a backend, which moves bytes between the ranks of one world. A backend executes whole steps, so that
// it can use one grouped exchange or a native collective for all messages of all tensors of a step.
//
// Failure. A call that fails on one rank fails within the timeout on every rank that waits for it, with an error that
// names the culprit:
//   Aborted           "rank 3 failed: <its message>": another rank reported an error
//   Unavailable       "rank 3 left ...": another rank is gone
//   DeadlineExceeded  "rank 3 did not arrive within 500 ms ..."
// After any of these the communicator is unusable: every later call returns the same error immediately. Errors of Agree
// leave it usable. Once a call has returned, successfully or not, no other rank touches the views that were passed to
// it. After an error the contents of outputs are unspecified; inputs are never written.
//
// Calls are collective: all ranks make the same calls in the same order, each rank from one thread at a time.
#ifndef RESHARD_RUNTIME_COMMUNICATOR_H_
#define RESHARD_RUNTIME_COMMUNICATOR_H_

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "absl/types/span.h"
#include "reshard/layout/mesh.h"
#include "reshard/runtime/program.h"
#include "reshard/runtime/recent_operations.h"
#include "reshard/runtime/tensor_view.h"

namespace reshard {

// The environment variable RESHARD_TIMEOUT_MS if it is a positive integer, else 10 minutes.
absl::Duration DefaultTimeout();

// Whether ranks of one host exchange through shared memory: false if the environment variable RESHARD_SHARED_MEMORY is
// 0, else true.
bool DefaultSharedMemory();

// Whether an error is about ranks that it names (one that failed, is gone or is late, or ranks that disagree) rather
// than about what this rank passed. Decided by the code or a payload of the status, never by its text.
bool NamesRanks(const absl::Status& status);

// What one rank moved, and where its time went. Seconds are wall-clock time on this rank; the three do not overlap.
struct MoveStats {
  int64_t received = 0;              // bytes from other ranks, each counted once, as the plan counts them
  int64_t received_extra = 0;        // additional bytes, read from shared memory instead of waiting for other ranks
  int64_t copied_local = 0;          // bytes copied from the rank's own input to its output
  int64_t written = 0;               // bytes written into outputs, local copies included
  double pack_seconds = 0.0;         // copying into messages; may include local copies
  double communicate_seconds = 0.0;  // posting messages and waiting for them
  double unpack_seconds = 0.0;       // copying or reducing out of messages; includes the other local copies

  // Adds every field.
  MoveStats& operator+=(const MoveStats& other) {
    received += other.received;
    received_extra += other.received_extra;
    copied_local += other.copied_local;
    written += other.written;
    pack_seconds += other.pack_seconds;
    communicate_seconds += other.communicate_seconds;
    unpack_seconds += other.unpack_seconds;
    return *this;
  }
};

// What a backend keeps for a step from one execution to the next, such as prepared copies or tables on a device.
class StepMemo {
 public:
  virtual ~StepMemo() = default;
};

// Owns a block of memory and returns it to its pool or allocator.
using Memory = std::unique_ptr<void, std::function<void(void*)>>;

// One rank's end of a backend. See the top of this file for failure and threading.
class Communicator {
 public:
  virtual ~Communicator() = default;

  // The device id of this rank.
  virtual int64_t rank() const = 0;
  // Number of ranks. Their device ids need not be consecutive.
  virtual int64_t world_size() const = 0;
  // Whether the world has a rank with this device id.
  virtual bool has_rank(int64_t device_id) const { return device_id >= 0 && device_id < world_size(); }

  // OK if all devices of the mesh are ranks of this world, else InvalidArgument with the first one that is not.
  absl::Status CheckRanksOf(const Mesh& mesh) const;

  // Which copies its steps need; programs for it are compiled with this.
  virtual CopyFor copies() const = 0;

  // The kind of memory that holds the fragments its steps move. With kCuda a call only enqueues its work on the
  // communicator's stream: a later call reports errors of peers and of the device, and times are those of the host.
  virtual MemoryKind memory() const { return MemoryKind::kHost; }
  // Memory of that kind for intermediates, aligned to 64 bytes. ResourceExhausted if there is too little.
  virtual absl::StatusOr<Memory> Allocate(int64_t bytes);

  // Compares what the ranks are about to do. Each rank contributes its own status and a fingerprint; details are
  // exchanged only if something is wrong. OK if all ranks are OK and have the same fingerprint. Otherwise one of the
  // following, and the communicator stays usable:
  //   own                if this rank contributed an error
  //   Aborted            "rank 3 failed: ...", the first rank that contributed one
  //   FailedPrecondition "ranks disagree on target: ranks 0, 2, 3 have [8, <X>8]; rank 1 has another target: [<X>8, 8]"
  virtual absl::Status Agree(const absl::Status& own, const Signature& problem) = 0;

  // As Agree, for a rank that has no error and will execute `next` on `inputs` once all agree, so that a backend may
  // already begin to pack for it. The inputs must not change until ExecuteStep returns, which is the next call on the
  // communicator if all agree. Other ranks may call Agree instead.
  virtual absl::Status AgreeBefore(const StepProgram& next, absl::Span<const ConstTensorView> inputs,
                                   const Signature& problem) {
    static_cast<void>(next);
    static_cast<void>(inputs);
    return Agree(absl::OkStatus(), problem);
  }

  // Returns those of the given other ranks whose processes have ended or that have closed the communicator, ascending:
  // for a caller that waits for them by means other than a call on this communicator. Asks them, which takes less than
  // a second in all; they need not make any call. Empty if a backend cannot tell, and before the ranks have met.
  virtual std::vector<int64_t> FindGone(absl::Span<const int64_t> ranks) {
    static_cast<void>(ranks);
    return {};
  }

  // Executes one step of a compiled program. inputs[i] and outputs[i] are the fragments of step.tensors[i], with the
  // shapes of its buffers and arbitrary strides. See StepProgram for what the outputs hold afterwards. The backend
  // decides whether to pack. `memo`, if not null, is the same at every execution of this step, and empty at the first.
  // Never throws.
  virtual absl::StatusOr<MoveStats> ExecuteStep(const StepProgram& step, absl::Span<const ConstTensorView> inputs,
                                                absl::Span<const TensorView> outputs,
                                                std::unique_ptr<StepMemo>* memo = nullptr) = 0;

  // Returns once all ranks have called it.
  virtual absl::Status Barrier() = 0;

  // Index of the GPU whose memory its steps move, in CUDA's numbering; nullopt if memory() is kHost.
  virtual std::optional<int> gpu() const { return std::nullopt; }
  // Later calls enqueue their work on this cudaStream_t of that GPU. Does nothing on the host, or for backends that
  // look up the caller's stream themselves.
  virtual void UseStream(void* stream) { static_cast<void>(stream); }
  // The last operations of this rank; null for backends that do not record them.
  virtual const RecentOperations* recent_operations() const { return nullptr; }
  // Ends the threads and closes the sockets that it keeps, for when what it runs over is destroyed before it is. If the
  // backend has any, every later call returns Unavailable. Call it from any thread, but not under a lock that a call in
  // progress may hold.
  virtual void Close() {}
};

}  // namespace reshard

#endif  // RESHARD_RUNTIME_COMMUNICATOR_H_
