// A plan compiled for one rank: its buffers and, step by step, what it sends to which rank, what it receives from which
// rank, and where that goes. A program is compiled once and executed many times; it holds no data.
//
// Regions are given in elements of both fragments, so that a backend may either pull (read the sender's memory, as
// LocalWorld does) or pack. On the wire the elements of a transfer are in the row-major order of its region, which is
// the same on both sides because runs ascend on both.
//
// A program may move many tensors, whose steps then share exchanges (MergePrograms).
#ifndef RESHARD_RUNTIME_PROGRAM_H_
#define RESHARD_RUNTIME_PROGRAM_H_

#include <array>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/types/span.h"
#include "reshard/layout/dtype.h"
#include "reshard/layout/layout.h"
#include "reshard/layout/mesh.h"
#include "reshard/planner/plan.h"
#include "reshard/planner/traffic.h"
#include "reshard/runtime/signature.h"
#include "reshard/runtime/strided_copy.h"
#include "reshard/runtime/tensor_view.h"

namespace reshard {

// The groups of a collective: ranks of the mesh are in one group if they differ along these axes only.
struct GroupScope {
  Mesh mesh;
  std::vector<AxisRef> axes;
  bool operator==(const GroupScope&) const = default;
};

// One chunk's part of a fragment (reshard/planner/chunks.h), as a tensor with one more dimension: dimension `dim` of
// the fragment becomes two, its blocks and the chunk's part of each block.
struct ChunkPart {
  int of = -1;        // index into Program::buffers of the caller's source or target; -1: the buffer is no such part
  int dim = 0;        // index of a dimension of that fragment
  int64_t block = 0;  // size of a block along it, in elements
  int64_t first = 0;  // index of the chunk's first element in each block
};

// One fragment of this rank. Dense row-major unless it is the caller's.
struct Buffer {
  bool held = false;           // false: this rank is outside the layout's mesh and holds nothing
  Dims shape;                  // local sizes in elements
  int64_t bytes = 0;           // 0 if not held or without elements
  int scratch = -1;            // which of the two scratch allocations it is in; -1: the caller's source or target
  DType dtype = DType::kF32;   // of the elements
  int64_t scratch_offset = 0;  // bytes from the start of that allocation
  ChunkPart part = {};         // set if it is a part of the caller's source or target
};

// One tensor of a step.
struct StepTensor {
  int input = 0;                     // index into Program::buffers
  int output = 0;                    // index into Program::buffers
  DType dtype = DType::kF32;         // of input and output
  Op op = Op::kExchange;             // what happens to it; the same on every rank
  ReduceOp reduce = ReduceOp::kSum;  // for ReduceScatter and AllReduce
};

// One message between this rank and a peer, never empty. In a step's `sends` this rank's input fragment is the `from`
// side of the region, in its `receives` this rank's output fragment is the `to` side.
struct Transfer {
  int64_t peer = 0;  // device id; a transfer to this rank itself is a local copy, listed in `receives` only
  int tensor = 0;    // index into StepProgram::tensors
  // From the sender's fragment to the receiver's, in elements; never null. Chunks, and tensors of one shape, share it.
  std::shared_ptr<const Region> region;
  int64_t bytes = 0;  // of all its elements
  // The copy that this rank makes if all fragments are dense, as CompileOptions::copies says; empty in reductions.
  StridedCopy copy;
};

// One collective step. Every rank of the world executes it, even if all its lists are empty.
//
// What the output of a tensor holds afterwards, by the tensor's op:
//   moving ops      every element of the output is written by exactly one receive
//   ReduceScatter   every receive covers the whole output and is one member's contribution, its own included
//   AllReduce       the same, from all members of `group` to all; member i combines the elements
//                   AllReduceChunk(elements, group size, i) of the fragment and gives them to the others
struct StepProgram {
  // The op of all tensors if they have the same one over the same groups. Otherwise Exchange; then none of them is an
  // AllReduce, which takes two exchanges. The same on every rank.
  Op op = Op::kExchange;
  std::vector<StepTensor> tensors;  // that move in this step
  std::vector<Transfer> sends;      // ascending by peer, then tensor
  std::vector<Transfer> receives;   // ascending by peer, then tensor
  // The device ids of this rank's group along the step's axes, in mesh order, itself included. Empty if the op is an
  // Exchange or this rank is not in the mesh.
  std::vector<int64_t> group;
  int64_t group_index = 0;  // index of this rank in `group`
  int64_t group_size = 0;   // members of each group, the same on every rank; 0 for an Exchange
  // Which groups these are; nullopt for an Exchange. Steps of the same op and scope have the same groups on every rank.
  std::optional<GroupScope> scope;
  // Derived from the program's signature. It keeps messages of different programs apart if ranks do not agree first.
  uint64_t salt = 0;
  int64_t recv_bytes = 0;  // from other ranks, as the plan counts them
  // The ranks choose how to move by the next two, which are the same on every rank. 0: not known.
  int64_t recv_bytes_max = 0;  // most bytes that any rank receives
  int64_t peers_max = 0;       // most peers that any rank has
};

// What one rank does, for one or more tensors.
struct Program {
  int64_t rank = 0;     // device id of the rank
  int64_t world = 0;    // highest device id of the plan plus one
  Signature signature;  // identifies the program to other ranks
  // 2t is the source of tensor t and 2t+1 its target; intermediates and parts of these two follow.
  std::vector<Buffer> buffers;
  int64_t tensors = 1;                            // number of tensors
  std::array<int64_t, 2> scratch_bytes = {0, 0};  // sizes of the two scratch allocations; 0: not needed
  // In order. A plan without steps becomes one Slice, in which every rank copies its own part.
  std::vector<StepProgram> steps;

  // What this rank must pass as the source of a tensor.
  const Buffer& source(int64_t tensor = 0) const { return buffers[2 * tensor]; }
  // What this rank must pass as the target of a tensor.
  const Buffer& target(int64_t tensor = 0) const { return buffers[2 * tensor + 1]; }
  // Memory that the program itself takes, in bytes; an estimate.
  int64_t MemoryBytes() const;
};

// Which copies a backend makes; Transfer::copy is prepared for these.
enum class CopyFor {
  kPull,      // receives: from the peer's fragment to this rank's
  kMessages,  // sends: from the fragment to the message; receives: from the message to the fragment
};

// How to compile for a backend.
struct CompileOptions {
  CopyFor copies = CopyFor::kPull;  // see Communicator::copies
  // False leaves `sends` empty, for backends whose receivers pull.
  bool sends = true;
};

// Compiles one plan for many ranks. What does not depend on the rank is computed once.
class ProgramCompiler {
 public:
  // InvalidArgument or Unimplemented: a reduction that the dtype does not support (see CompileProgram), or a step that
  // TransferSchedule::Create refuses.
  static absl::StatusOr<ProgramCompiler> Create(const Plan& plan);
  ProgramCompiler(ProgramCompiler&&) noexcept;
  ProgramCompiler& operator=(ProgramCompiler&&) noexcept;
  ~ProgramCompiler();

  // Post-conditions of the program:
  //  - the first step reads the source and the last one writes the target; the source is never written;
  //  - consecutive steps agree, and no step writes the buffer that it reads;
  //  - it receives exactly the bytes that the plan counts for this rank;
  //  - a plan in chunks becomes a step for each turn, in which every chunk goes through a step of the plan;
  //  - with CopyFor::kMessages, a step of several rounds becomes that many steps, which together fill the output.
  // A rank outside both meshes gets a program whose transfer lists are empty.
  // InvalidArgument: a negative rank. Internal: the plan is inconsistent.
  absl::StatusOr<Program> Compile(int64_t rank, const CompileOptions& options = {}) const;

 private:
  friend absl::StatusOr<Program> CompileProgram(const Plan& plan, int64_t rank, const CompileOptions& options);
  // `only`: to compile for this rank alone.
  static absl::StatusOr<ProgramCompiler> Create(const Plan& plan, std::optional<int64_t> only);
  struct State;
  explicit ProgramCompiler(std::unique_ptr<State> state);
  std::unique_ptr<State> state_;
};

// Compiles a plan for one rank. Reductions: sum, avg, prod, min and max of integers and floating-point numbers, but no
// min and max of complex numbers and no average of bools (InvalidArgument).
absl::StatusOr<Program> CompileProgram(const Plan& plan, int64_t rank, const CompileOptions& options = {});

// One program that does what all of these do for the same rank: the i-th steps of all tensors move in one exchange,
// reductions over the same groups in one step. Deterministic: ranks that merge programs of the same plans in the same
// order get programs that match. `programs` must not be empty.
absl::StatusOr<Program> MergePrograms(absl::Span<const Program* const> programs);

}  // namespace reshard

#endif  // RESHARD_RUNTIME_PROGRAM_H_
