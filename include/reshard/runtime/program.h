// What one rank does for a plan: its buffers and, step by step, what it sends to whom, what it gets from whom and where
// that goes. A program is compiled once and executed many times; it holds no data.
//
// Regions are given in elements of both fragments, so that a backend may pull (read the sender's memory, as LocalWorld
// does), or pack. On the wire the elements of a transfer stand in the row-major order of its region, which is the same
// on both sides because runs ascend on both.
//
// A program may hold many tensors: then their steps share exchanges (MergePrograms).
#ifndef RESHARD_RUNTIME_PROGRAM_H_
#define RESHARD_RUNTIME_PROGRAM_H_

#include <array>
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/types/span.h"
#include "reshard/layout/dtype.h"
#include "reshard/planner/plan.h"
#include "reshard/planner/traffic.h"
#include "reshard/runtime/signature.h"
#include "reshard/runtime/strided_copy.h"
#include "reshard/runtime/tensor_view.h"

namespace reshard {

// One fragment of this rank. Dense row-major unless it is the caller's.
struct Buffer {
  bool held = false;  // false: this rank is outside the layout's mesh and holds nothing
  Dims shape;
  int64_t bytes = 0;
  int scratch = -1;  // which of the two scratch allocations it lives in; -1: the caller's source or target
  DType dtype = DType::kF32;
  int64_t scratch_offset = 0;  // bytes from the start of that allocation
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
  // The copy that this rank makes when all fragments are dense, as CompileOptions::copies says; empty in reductions.
  StridedCopy copy;
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
  // Members of each such group, known to all ranks; 0 for an Exchange.
  int64_t group_size = 0;
  // The mesh and axes that make the group, as text: steps of the same op and scope have the same groups on every rank.
  std::string scope;
  // Derived from the signature of the program: keeps messages of different programs apart where ranks do not agree
  // first.
  uint64_t salt = 0;
  int64_t recv_bytes = 0;  // from other ranks, as the plan counts them
  // Of the whole step, the same on every rank, for choosing how to move: the most bytes that a rank receives and the
  // most peers that it has. 0: not known.
  int64_t recv_bytes_max = 0;
  int64_t peers_max = 0;
};

struct Program {
  int64_t rank = 0;   // device id
  int64_t world = 0;  // highest device id of the plan + 1
  Signature signature;
  // Of tensor t: 2t is the source, 2t+1 the target. Intermediates follow.
  std::vector<Buffer> buffers;
  int64_t tensors = 1;
  std::array<int64_t, 2> scratch_bytes = {0, 0};
  // A plan without steps becomes one Slice, in which every rank copies its own part.
  std::vector<StepProgram> steps;

  const Buffer& source(int64_t tensor = 0) const { return buffers[static_cast<size_t>(2 * tensor)]; }
  const Buffer& target(int64_t tensor = 0) const { return buffers[static_cast<size_t>(2 * tensor + 1)]; }
  // Memory that the program itself takes, roughly.
  int64_t MemoryBytes() const;
};

// Which copies a backend makes.
enum class CopyFor {
  kPull,      // receives: from the peer's fragment to this rank's
  kMessages,  // sends: from the fragment to the message; receives: from the message to the fragment
};

struct CompileOptions {
  CopyFor copies = CopyFor::kPull;
  // False leaves the sends out, for backends where receivers pull.
  bool sends = true;
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
  //  - the first step reads the source and the last writes the target; the source is never written to;
  //  - consecutive steps agree, and no step writes the buffer that it reads;
  //  - the bytes it receives are those that the plan counts for this rank;
  //  - with CopyFor::kMessages, a step that the plan cuts into rounds is as many steps, which fill the output together.
  // A rank outside both meshes gets a program whose lists are empty.
  // InvalidArgument: a negative rank. Internal: a plan that breaks its own promises.
  absl::StatusOr<Program> Compile(int64_t rank, const CompileOptions& options = {}) const;

 private:
  struct State;
  explicit ProgramCompiler(std::unique_ptr<State> state);
  std::unique_ptr<State> state_;
};

// The program of one rank. Reductions: sum, avg, prod, min, max of integers and floating-point numbers; no min and max
// of complex numbers and no average of bools (InvalidArgument).
absl::StatusOr<Program> CompileProgram(const Plan& plan, int64_t rank, const CompileOptions& options = {});

// One program that does what all of these do, for the same rank: the i-th steps of all tensors move in one exchange,
// reductions over the same groups in one step. Deterministic: all ranks that merge programs of the same plans in the
// same order get programs that fit together. `programs` must not be empty.
absl::StatusOr<Program> MergePrograms(absl::Span<const Program* const> programs);

}  // namespace reshard

#endif  // RESHARD_RUNTIME_PROGRAM_H_
