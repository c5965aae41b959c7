// What one rank does for a plan: its buffers and, step by step, what it sends to whom, what it gets from whom and where
// that goes. A program is compiled once and executed many times; it holds no data.
//
// Regions are given in elements of both fragments, so that a backend may pull (read the sender's memory, as LocalWorld
// does), or pack. On the wire the elements of a transfer stand in the row-major order of its region, which is the same
// on both sides because runs ascend on both.
#ifndef RESHARD_RUNTIME_PROGRAM_H_
#define RESHARD_RUNTIME_PROGRAM_H_

#include <array>
#include <cstdint>
#include <memory>
#include <vector>

#include "absl/status/statusor.h"
#include "reshard/layout/dtype.h"
#include "reshard/planner/plan.h"
#include "reshard/planner/traffic.h"
#include "reshard/runtime/strided_copy.h"
#include "reshard/runtime/tensor_view.h"

namespace reshard {

// 128 bits that tell problems apart: equal on all ranks that compiled the same plan, on every machine.
struct Fingerprint {
  uint64_t high = 0;
  uint64_t low = 0;
  bool operator==(const Fingerprint&) const = default;
};

// One fragment of this rank. Dense row-major unless it is the caller's.
struct Buffer {
  bool held = false;  // false: this rank is outside the layout's mesh and holds nothing
  Dims shape;
  int64_t bytes = 0;
  int scratch = -1;  // which of the two scratch allocations it lives in; -1: the caller's source or target
};

// One tensor of a step.
struct StepTensor {
  int input = 0;   // index into Program::buffers
  int output = 0;  // index into Program::buffers
  DType dtype = DType::kF32;
  ReduceOp reduce = ReduceOp::kSum;  // ReduceScatter and AllReduce
};

// One message between this rank and a peer, never empty. In a step's `sends` this rank's input fragment is the `from`
// side of the region, in its `receives` this rank's output fragment is the `to` side.
struct Transfer {
  int64_t peer = 0;  // device id; a transfer to oneself is a local copy and stands in `receives` only
  int tensor = 0;    // index into StepProgram::tensors
  Region region;
  int64_t bytes = 0;
  // Receives of a moving step: the pull from a dense input fragment of the peer to a dense output fragment. Empty in
  // sends and reductions.
  StridedCopy pull;
};

// One collective step. Every rank of the world executes it, also those for which all lists are empty.
//
// What the output holds afterwards:
//   moving ops      every element of the output is written by exactly one receive
//   ReduceScatter   every receive covers the whole output and is one member's contribution, its own included
//   AllReduce       the same, from all members of `group` to all; member i combines the elements
//                   AllReduceChunk(elements, group size, i) of the fragment and gives them to the others
struct StepProgram {
  Op op = Op::kExchange;
  std::vector<StepTensor> tensors;
  std::vector<Transfer> sends;     // ascending by peer, then tensor
  std::vector<Transfer> receives;  // ascending by peer, then tensor
  // The device ids along the step's axes that this rank is grouped with, in mesh order, and its place among them. Empty
  // when the op is an Exchange or this rank is not in the mesh.
  std::vector<int64_t> group;
  int64_t group_index = 0;
  int64_t rounds = 1;      // a backend that packs cuts its staging into so many rounds; others may ignore it
  int64_t recv_bytes = 0;  // from other ranks, as the plan counts them
};

struct Program {
  int64_t rank = 0;   // device id
  int64_t world = 0;  // highest device id of the plan + 1
  DType dtype = DType::kF32;
  Fingerprint fingerprint;
  std::vector<Buffer> buffers;  // 0 is the source, 1 the target
  std::array<int64_t, 2> scratch_bytes = {0, 0};
  std::vector<StepProgram> steps;
  // A plan without steps moves nothing between ranks: this copies the source to the target.
  StridedCopy local_copy;

  // Memory that the program itself takes, roughly.
  int64_t MemoryBytes() const;
};

// Compiles a plan for many ranks: what does not depend on the rank is worked out once.
class ProgramCompiler {
 public:
  // InvalidArgument or Unimplemented: a reduction that the dtype does not have (see below), a step that Traffic
  // refuses.
  static absl::StatusOr<ProgramCompiler> Create(const Plan& plan);
  ProgramCompiler(ProgramCompiler&&) noexcept;
  ProgramCompiler& operator=(ProgramCompiler&&) noexcept;
  ~ProgramCompiler();

  // Post-conditions of the program:
  //  - the first step reads buffer 0 and the last writes buffer 1; the source is never written to;
  //  - consecutive steps agree, and no step writes the buffer that it reads;
  //  - the bytes it receives are those that the plan counts for this rank.
  // A rank outside both meshes gets a program whose lists are empty. With `with_sends` false the sends are left out,
  // for backends where receivers pull.
  // InvalidArgument: a negative rank. Internal: a plan that breaks its own promises.
  absl::StatusOr<Program> Compile(int64_t rank, bool with_sends = true) const;

 private:
  struct State;
  explicit ProgramCompiler(std::unique_ptr<State> state);
  std::unique_ptr<State> state_;
};

// The program of one rank. Reductions: sum, avg, prod, min, max of integers and floating-point numbers; no min and max
// of complex numbers and no average of bools (InvalidArgument); none of f8 types (Unimplemented).
absl::StatusOr<Program> CompileProgram(const Plan& plan, int64_t rank);

}  // namespace reshard

#endif  // RESHARD_RUNTIME_PROGRAM_H_
