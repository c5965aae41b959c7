// How bytes travel between the ranks of one world. A backend executes whole steps, so that it can use one grouped
// exchange or a native collective for all messages of all tensors of a step.
//
// Failure. A call that fails on one rank fails on every rank that waits for it, within the timeout, with an error that
// names the culprit:
//   Aborted           "rank 3 failed: <its message>": another rank reported an error
//   Unavailable       "rank 3 left ...": another rank is gone
//   DeadlineExceeded  "rank 3 did not arrive within 500 ms ..."
// After any of these the communicator is lost: every later call returns the same error at once. Errors of agreement
// (see Agree) leave it usable. When a call has returned, with success or not, no other rank touches the views that were
// passed to it. After an error outputs hold anything; inputs are never written to.
//
// Calls are collective: all ranks make the same calls in the same order, each rank from one thread at a time.
#ifndef RESHARD_RUNTIME_COMMUNICATOR_H_
#define RESHARD_RUNTIME_COMMUNICATOR_H_

#include <cstdint>
#include <functional>
#include <memory>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "absl/types/span.h"
#include "reshard/runtime/program.h"
#include "reshard/runtime/tensor_view.h"

namespace reshard {

// RESHARD_TIMEOUT_MS where it is a positive integer, else 10 minutes.
absl::Duration DefaultTimeout();

// What one rank moved, and where its time went. Seconds are of this rank's clock and do not overlap.
struct MoveStats {
  int64_t received = 0;              // bytes from other ranks, each once
  int64_t copied_local = 0;          // bytes kept: written to the output from the rank's own input
  int64_t written = 0;               // bytes written into outputs, own parts included
  double pack_seconds = 0.0;         // copying into messages, own parts where that suits
  double communicate_seconds = 0.0;  // handing messages over and waiting for them
  double unpack_seconds = 0.0;       // copying or reducing out of messages, own parts otherwise

  MoveStats& operator+=(const MoveStats& other) {
    received += other.received;
    copied_local += other.copied_local;
    written += other.written;
    pack_seconds += other.pack_seconds;
    communicate_seconds += other.communicate_seconds;
    unpack_seconds += other.unpack_seconds;
    return *this;
  }
};

// What a backend keeps of a step from one execution to the next: prepared copies, tables on a device.
class StepMemo {
 public:
  virtual ~StepMemo() = default;
};

// Memory that gives itself back.
using Memory = std::unique_ptr<void, std::function<void(void*)>>;

class Communicator {
 public:
  virtual ~Communicator() = default;

  // The device id of this rank.
  virtual int64_t rank() const = 0;
  // Number of ranks that take part. Their device ids need not be consecutive.
  virtual int64_t world_size() const = 0;
  // Whether a rank with this device id takes part.
  virtual bool has_rank(int64_t device_id) const { return device_id >= 0 && device_id < world_size(); }

  // Which copies its steps need: what to compile programs for.
  virtual CopyFor copies() const = 0;

  // Where the fragments lie that its steps move. With kCuda a call only enqueues what it does on the stream of the
  // communicator: errors of the peers and the device show at a later call, and times are those of the host.
  virtual MemoryKind memory() const { return MemoryKind::kHost; }
  // Memory of that kind for intermediates, aligned to 64 bytes. ResourceExhausted.
  virtual absl::StatusOr<Memory> Allocate(int64_t bytes);

  // Compares what every rank is about to do: one record {own status, fingerprint} a rank, and only if something is
  // wrong the details. OK when all ranks are OK and brought the same fingerprint. Otherwise, and the communicator stays
  // usable:
  //   own                when this rank brought an error
  //   Aborted            "rank 3 failed: ...", the first rank that brought one
  //   FailedPrecondition "ranks disagree on target: ranks 0, 2, 3 have [8, <X>8]; rank 1 has another target: [<X>8, 8]"
  virtual absl::Status Agree(const absl::Status& own, const Signature& problem) = 0;

  // Executes one step of a compiled program. inputs[i] and outputs[i] are the fragments of step.tensors[i], with the
  // shapes of their buffers; whether they are dense is free. See StepProgram for what the outputs hold afterwards.
  // The backend decides whether to pack. `memo`, when not null, is the same at every execution of this step, and empty
  // at the first. Never throws.
  virtual absl::StatusOr<MoveStats> ExecuteStep(const StepProgram& step, absl::Span<const ConstTensorView> inputs,
                                                absl::Span<const TensorView> outputs,
                                                std::unique_ptr<StepMemo>* memo = nullptr) = 0;

  // Returns when all ranks have called it.
  virtual absl::Status Barrier() = 0;
};

}  // namespace reshard

#endif  // RESHARD_RUNTIME_COMMUNICATOR_H_
