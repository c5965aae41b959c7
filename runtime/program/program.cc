#include "reshard/runtime/program.h"

#include <algorithm>
#include <cstddef>
#include <optional>
#include <string>
#include <utility>

#include "absl/container/flat_hash_set.h"
#include "absl/strings/str_cat.h"
#include "planner/transfers/shard_maps.h"
#include "reshard/layout/shard_map.h"
#include "reshard/layout/text.h"
#include "runtime/host/host_pool.h"
#include "runtime/host/reduce.h"
#include "runtime/program/append_step.h"
#include "runtime/program/plan_signature.h"
#include "status/macros.h"
#include "status/no_throw.h"
#include "status/view.h"

namespace reshard {
namespace {

std::shared_ptr<const Region> RegionOf(const Message& message) {
  Region region(message.runs.size());
  for (size_t d = 0; d < region.size(); ++d) {
    region[d].reserve(message.runs[d].size());
    for (const Run& run : message.runs[d]) region[d].push_back({run.from, run.to, run.length});
  }
  return std::make_shared<const Region>(std::move(region));
}

int64_t RegionBytes(const Region& region) {
  int64_t bytes = static_cast<int64_t>(region.capacity() * sizeof(Region::value_type));
  for (const auto& runs : region) bytes += static_cast<int64_t>(runs.capacity() * sizeof(IndexRun));
  return bytes;
}

// Position offsets of the members of a group along the axes, ascending; the first is 0.
std::vector<int64_t> MemberOffsets(const Mesh& mesh, const std::vector<AxisRef>& axes) {
  std::vector<int64_t> offsets = {0};
  for (const AxisRef& ref : axes) {
    const int64_t rest = mesh.axis(ref.axis).size / (ref.pre * ref.size);
    std::vector<int64_t> next;
    for (int64_t offset : offsets) {
      for (int64_t c = 0; c < ref.size; ++c) next.push_back(offset + c * rest * mesh.stride(ref.axis));
    }
    offsets = std::move(next);
  }
  std::sort(offsets.begin(), offsets.end());
  return offsets;
}

// Part `part` of `parts` of a region: a range of the indices of its longest dimension. Both sides of a transfer have
// the same run lengths, so they cut alike.
Region PartOf(const Region& region, int64_t part, int64_t parts) {
  size_t cut = 0;
  int64_t longest = -1;
  for (size_t d = 0; d < region.size(); ++d) {
    const int64_t indices = IndicesOf(region[d]);
    if (indices > longest) {
      longest = indices;
      cut = d;
    }
  }
  if (region.empty()) return part == 0 ? region : Region{};
  const int64_t begin = longest / parts * part + longest % parts * part / parts;
  const int64_t end = longest / parts * (part + 1) + longest % parts * (part + 1) / parts;
  Region out = region;
  out[cut].clear();
  int64_t first = 0;
  for (const IndexRun& run : region[cut]) {
    const int64_t low = std::max(begin - first, int64_t{0});
    const int64_t high = std::min(end - first, run.length);
    if (low < high) out[cut].push_back({run.from + low, run.to + low, high - low});
    first += run.length;
  }
  return out;
}

int64_t ElementsOf(const Region& region) {
  int64_t elements = 1;
  for (const auto& runs : region) elements *= IndicesOf(runs);
  return elements;
}

// What a step does for one chunk.
absl::StatusOr<Step> StepOfChunk(const Step& step, const Chunks& chunks) {
  Step one = step;
  ASSIGN_OR_RETURN(one.from, OfChunk(step.from, chunks));
  ASSIGN_OR_RETURN(one.to, OfChunk(step.to, chunks));
  one.recv_bytes_max /= chunks.count;
  return one;
}

StridedCopy PackCopy(const Region& region, int64_t element, absl::Span<const int64_t> fragment_strides) {
  return StridedCopy(ToMessage(region), element, fragment_strides, MessageStrides(region));
}

StridedCopy UnpackCopy(const Region& region, int64_t element, absl::Span<const int64_t> fragment_strides) {
  return StridedCopy(FromMessage(region), element, MessageStrides(region), fragment_strides);
}

}  // namespace

// What all ranks' programs share.
struct ProgramCompiler::State {
  struct StepState {
    Step step;
    std::unique_ptr<MessageSchedule> messages;
    std::shared_ptr<const ShardMap> from;  // for the shapes of the peers' fragments
    std::vector<int64_t> member_offsets;   // empty: no group
  };

  Layout source;
  Layout target;
  DType dtype = DType::kF32;
  Signature signature;
  int64_t world = 0;
  std::vector<StepState> steps;  // if in chunks: those of one chunk
  Chunks chunks;

  Buffer BufferOf(const Layout& layout, int64_t rank, int scratch) const;
  Dims ShapeAt(const ShardMap& map, int64_t device) const;
  absl::Status CompileStep(const StepState& state, Program* program, int input, int output,
                           const CompileOptions& options) const;
  absl::Status CompileWithoutSteps(Program* program) const;
  absl::Status CompileSteps(const CompileOptions& options, Program* program) const;
  absl::Status CompileTurns(const CompileOptions& options, Program* program) const;
  Buffer PartOfEnd(const Program& program, int end, int64_t chunk) const;
  void AppendRounds(StepProgram step, int64_t rounds, const Program& program, std::vector<StepProgram>* out) const;
  absl::Status CheckReceives(const StepProgram& step, const Buffer& output) const;
};

Buffer ProgramCompiler::State::BufferOf(const Layout& layout, int64_t rank, int scratch) const {
  Buffer buffer;
  buffer.scratch = scratch;
  buffer.dtype = dtype;
  const std::optional<int64_t> position = layout.mesh().Position(rank);
  buffer.held = position.has_value();
  if (!position) {
    // No elements, even if the tensor is 0-d.
    buffer.shape.assign(static_cast<size_t>(std::max(layout.rank(), 1)), 0);
    return buffer;
  }
  const std::vector<int64_t> shape = layout.LocalShape(*position);
  buffer.shape.assign(shape.begin(), shape.end());
  buffer.bytes = NumElements(buffer.shape) * SizeOf(dtype);
  return buffer;
}

Dims ProgramCompiler::State::ShapeAt(const ShardMap& map, int64_t device) const {
  Dims shape;
  const int64_t position = map.mesh().Position(device).value_or(0);
  for (int d = 0; d < map.rank(); ++d) {
    shape.push_back(map.dim(d).length[map.Row(position, d)]);
  }
  return shape;
}

// The receives must fill the output, each element once (or once by every contribution). A plan that breaks this is a
// mistake of the planner; better found here than as wrong data.
absl::Status ProgramCompiler::State::CheckReceives(const StepProgram& step, const Buffer& output) const {
  if (step.op == Op::kSlice && step.recv_bytes > 0)
    return absl::InternalError("a Slice that receives from other ranks");
  int64_t bytes = 0;
  for (const Transfer& transfer : step.receives) bytes += transfer.bytes;
  const auto contributions = static_cast<int64_t>(step.receives.size());
  const int64_t expected = Reduces(step.op) ? output.bytes * contributions : output.bytes;
  bool same_region = true;
  if (Reduces(step.op)) {
    for (const Transfer& t : step.receives) same_region &= *t.region == *step.receives[0].region;
    if (output.bytes > 0 && contributions == 0) same_region = false;
    if (step.op == Op::kAllReduce && output.bytes > 0) {
      same_region &= step.receives.size() == step.group.size();
    }
  }
  if (bytes == expected && same_region) return absl::OkStatus();
  return absl::InternalError(absl::StrCat("the messages of a ", status::View(Name(step.op)), " fill ", bytes, " of ",
                                          expected, " bytes of the output",
                                          same_region ? "" : " or differ between members"));
}

absl::Status ProgramCompiler::State::CompileStep(const StepState& state, Program* program, int input, int output,
                                                 const CompileOptions& options) const {
  const Step& plan_step = state.step;
  const int64_t rank = program->rank;
  const int64_t element = SizeOf(dtype);
  StepProgram step;
  step.op = plan_step.op;
  step.recv_bytes_max = plan_step.recv_bytes_max;
  step.peers_max = plan_step.peers_max;
  step.tensors.push_back({input, output, dtype, step.op, ReduceOp::kSum});
  if (Reduces(step.op)) step.tensors[0].reduce = plan_step.from.partial()->op;

  const std::optional<int64_t> position = plan_step.from.mesh().Position(rank);
  if (!state.member_offsets.empty()) {
    step.group_size = static_cast<int64_t>(state.member_offsets.size());
    step.scope = GroupScope{plan_step.from.mesh(), plan_step.axes};
  }
  if (position && !state.member_offsets.empty()) {
    int64_t base = *position;
    for (const AxisRef& ref : plan_step.axes) {
      const Mesh& mesh = plan_step.from.mesh();
      const int64_t rest = mesh.axis(ref.axis).size / (ref.pre * ref.size);
      base -= plan_step.from.Coordinate(*position, ref) * rest * mesh.stride(ref.axis);
    }
    for (size_t i = 0; i < state.member_offsets.size(); ++i) {
      if (base + state.member_offsets[i] == *position) step.group_index = static_cast<int64_t>(i);
      step.group.push_back(plan_step.from.mesh().Device(base + state.member_offsets[i]));
    }
  }

  const Buffer& out = program->buffers[output];
  const Dims out_strides = DenseStrides(out.shape);
  for (const Message& message : state.messages->Receives(rank)) {
    Transfer transfer{message.sender, 0, RegionOf(message), message.elements() * element, {}};
    if (!Reduces(step.op)) {
      if (options.copies == CopyFor::kPull || message.sender == rank) {
        const Dims from_strides = DenseStrides(ShapeAt(*state.from, message.sender));
        transfer.copy = StridedCopy(*transfer.region, element, from_strides, out_strides);
      } else {
        transfer.copy = UnpackCopy(*transfer.region, element, out_strides);
      }
      if (message.sender != rank) step.recv_bytes += transfer.bytes;
    }
    step.receives.push_back(std::move(transfer));
  }
  if (Reduces(step.op) && !step.receives.empty()) {
    const auto members = static_cast<int64_t>(step.receives.size());
    if (step.op == Op::kAllReduce) {
      const int64_t elements = out.bytes / element;
      const int64_t chunk = AllReduceChunk(elements, members, step.group_index).length();
      step.recv_bytes = (elements + (members - 2) * chunk) * element;
    } else {
      step.recv_bytes = (members - 1) * out.bytes;
    }
  }
  if (options.sends) {
    const Dims in_strides = DenseStrides(program->buffers[input].shape);
    for (const Message& message : state.messages->Sends(rank)) {
      if (message.receiver == rank) continue;
      step.sends.push_back({message.receiver, 0, RegionOf(message), message.elements() * element, {}});
      if (options.copies == CopyFor::kMessages && !Reduces(step.op)) {
        step.sends.back().copy = PackCopy(*step.sends.back().region, element, in_strides);
      }
    }
  }
  // Contributions come in the order of the mesh, which may list its devices in any order.
  const auto by_peer = [](const Transfer& a, const Transfer& b) { return a.peer < b.peer; };
  std::stable_sort(step.sends.begin(), step.sends.end(), by_peer);
  std::stable_sort(step.receives.begin(), step.receives.end(), by_peer);
  RETURN_IF_ERROR(CheckReceives(step, out));
  if (options.copies == CopyFor::kMessages && plan_step.rounds > 1 && !Reduces(step.op)) {
    AppendRounds(std::move(step), plan_step.rounds, *program, &program->steps);
  } else {
    program->steps.push_back(std::move(step));
  }
  return absl::OkStatus();
}

// The step cut into rounds: each moves a part of every transfer, so that the staging of one round stays small.
void ProgramCompiler::State::AppendRounds(StepProgram step, int64_t rounds, const Program& program,
                                          std::vector<StepProgram>* out) const {
  const StepTensor& tensor = step.tensors[0];
  const int64_t element = SizeOf(tensor.dtype);
  const Dims in_strides = DenseStrides(program.buffers[tensor.input].shape);
  const Dims out_strides = DenseStrides(program.buffers[tensor.output].shape);
  for (int64_t round = 0; round < rounds; ++round) {
    StepProgram part = step;
    part.sends.clear();
    part.receives.clear();
    part.recv_bytes = 0;
    for (const Transfer& transfer : step.sends) {
      Region region = PartOf(*transfer.region, round, rounds);
      const int64_t bytes = ElementsOf(region) * element;
      if (bytes == 0) continue;
      StridedCopy copy = PackCopy(region, element, in_strides);
      part.sends.push_back(
          {transfer.peer, 0, std::make_shared<const Region>(std::move(region)), bytes, std::move(copy)});
    }
    for (const Transfer& transfer : step.receives) {
      Region region = PartOf(*transfer.region, round, rounds);
      const int64_t bytes = ElementsOf(region) * element;
      if (bytes == 0) continue;
      StridedCopy copy = transfer.peer == program.rank ? StridedCopy(region, element, in_strides, out_strides)
                                                       : UnpackCopy(region, element, out_strides);
      if (transfer.peer != program.rank) part.recv_bytes += bytes;
      part.receives.push_back(
          {transfer.peer, 0, std::make_shared<const Region>(std::move(region)), bytes, std::move(copy)});
    }
    out->push_back(std::move(part));
  }
}

absl::Status ProgramCompiler::State::CompileWithoutSteps(Program* program) const {
  const Buffer& from = program->source();
  const Buffer& to = program->target();
  if (from.bytes != to.bytes || (from.bytes > 0 && from.shape != to.shape)) {
    return absl::InternalError("a plan without steps between layouts that are not equivalent");
  }
  StepProgram step;
  step.op = Op::kSlice;
  step.tensors.push_back({0, 1, dtype, step.op, ReduceOp::kSum});
  if (from.bytes > 0) {
    const Dims strides = DenseStrides(from.shape);
    Region region = WholeRegion(from.shape);
    StridedCopy copy(region, SizeOf(dtype), strides, strides);
    step.receives.push_back(
        {program->rank, 0, std::make_shared<const Region>(std::move(region)), from.bytes, std::move(copy)});
  }
  program->steps.push_back(std::move(step));
  return absl::OkStatus();
}

absl::Status ProgramCompiler::State::CompileSteps(const CompileOptions& options, Program* program) const {
  int input = 0;
  for (size_t i = 0; i < steps.size(); ++i) {
    int output = 1;
    if (i + 1 < steps.size()) {
      // A step reads one scratch allocation and writes the other.
      const int scratch = static_cast<int>(i % 2);
      output = static_cast<int>(program->buffers.size());
      program->buffers.push_back(BufferOf(steps[i].step.to, program->rank, scratch));
      int64_t& bytes = program->scratch_bytes[scratch];
      bytes = std::max(bytes, program->buffers.back().bytes);
    }
    RETURN_IF_ERROR(CompileStep(steps[i], program, input, output, options));
    input = output;
  }
  return absl::OkStatus();
}

// What chunk `chunk` has of the source (end 0) or the target (end 1).
Buffer ProgramCompiler::State::PartOfEnd(const Program& program, int end, int64_t chunk) const {
  Buffer part = program.buffers[end];
  const int64_t length = chunks.block / chunks.count;
  part.part = {end, chunks.dim, chunks.block, chunk * length};
  part.bytes /= chunks.count;
  if (!part.held) return part;
  const auto at = part.shape.begin() + chunks.dim;
  *at /= chunks.block;
  part.shape.insert(at + 1, length);
  return part;
}

// All chunks move alike: the steps of one are compiled, then combined for each turn.
absl::Status ProgramCompiler::State::CompileTurns(const CompileOptions& options, Program* program) const {
  const auto last_step = static_cast<int64_t>(steps.size()) - 1;
  Program one;
  one.rank = program->rank;
  one.buffers = {PartOfEnd(*program, 0, 0), PartOfEnd(*program, 1, 0)};
  RETURN_IF_ERROR(CompileSteps(options, &one));

  const auto count = [&] { return static_cast<int>(program->buffers.size()); };
  const int first_part = count();  // source and target of each chunk
  for (int64_t chunk = 0; chunk < chunks.count; ++chunk) {
    for (const int end : {0, 1}) program->buffers.push_back(PartOfEnd(*program, end, chunk));
  }
  // A turn reads what the one before it wrote: each intermediate appears twice, in the two scratch allocations.
  const int first_between = count();
  for (int scratch = 0; scratch < 2; ++scratch) {
    int64_t& bytes = program->scratch_bytes[scratch];
    for (size_t b = 2; b < one.buffers.size(); ++b) {
      program->buffers.push_back(one.buffers[b]);
      program->buffers.back().scratch = scratch;
      program->buffers.back().scratch_offset = bytes;
      bytes += host::AlignedHostBytes(one.buffers[b].bytes);
    }
  }
  for (int64_t turn = 0; turn < chunks.Turns(last_step + 1); ++turn) {
    StepProgram& together = program->steps.emplace_back();
    const Interval at_work = chunks.StepsIn(turn, last_step + 1);
    for (int64_t s = at_work.begin; s < at_work.end; ++s) {
      const auto between = [&](int buffer, int64_t written) {
        return first_between + static_cast<int>(written % 2 * last_step) + buffer - 2;
      };
      const auto part = [&](int end) { return first_part + static_cast<int>(2 * (turn - s)) + end; };
      const StepTensor& tensor = one.steps[s].tensors[0];
      const int input = tensor.input < 2 ? part(tensor.input) : between(tensor.input, turn + 1);
      const int output = tensor.output < 2 ? part(tensor.output) : between(tensor.output, turn);
      program::AppendStep(
          one.steps[s], [&](int buffer) { return buffer == tensor.input ? input : output; }, &together);
    }
    program::FinishStep(&together);
  }
  return absl::OkStatus();
}

ProgramCompiler::ProgramCompiler(std::unique_ptr<State> state) : state_(std::move(state)) {}
ProgramCompiler::ProgramCompiler(ProgramCompiler&&) noexcept = default;
ProgramCompiler& ProgramCompiler::operator=(ProgramCompiler&&) noexcept = default;
ProgramCompiler::~ProgramCompiler() = default;

absl::StatusOr<ProgramCompiler> ProgramCompiler::Create(const Plan& plan) { return Create(plan, std::nullopt); }

absl::StatusOr<ProgramCompiler> ProgramCompiler::Create(const Plan& plan, std::optional<int64_t> only) {
  return status::NoThrow("compiling a plan", [&]() -> absl::StatusOr<ProgramCompiler> {
    auto state = std::make_unique<State>();
    state->source = plan.source;
    state->target = plan.target;
    state->dtype = plan.dtype;
    state->signature = program::SignatureOf(plan);
    state->world = plan.world();
    state->chunks = plan.chunks;
    transfers::ShardMaps maps({});  // a step ends in the layout in which the next one begins
    for (const Step& step : plan.steps) {
      if (Reduces(step.op)) {
        if (!step.from.partial()) return absl::InternalError("a reduction of a layout that has nothing partial");
        RETURN_IF_ERROR(host::CheckReduction(step.from.partial()->op, plan.dtype));
      }
      Step one = step;
      if (plan.chunks.count > 1) {
        ASSIGN_OR_RETURN(one, StepOfChunk(step, plan.chunks));
      }
      ASSIGN_OR_RETURN(auto messages, transfers::CreateMessages(one, plan.options.topology, maps, only));
      ASSIGN_OR_RETURN(auto from, maps.Of(one.from));
      std::vector<int64_t> offsets;
      if (one.op != Op::kExchange && !one.crosses_meshes()) offsets = MemberOffsets(one.from.mesh(), one.axes);
      state->steps.push_back({std::move(one), std::move(messages), std::move(from), std::move(offsets)});
    }
    return ProgramCompiler(std::move(state));
  });
}

absl::StatusOr<Program> ProgramCompiler::Compile(int64_t rank, const CompileOptions& options) const {
  if (rank < 0) return absl::InvalidArgumentError(absl::StrCat("rank ", rank, " is negative"));
  return status::NoThrow("compiling a program", [&]() -> absl::StatusOr<Program> {
    Program program;
    program.rank = rank;
    program.world = state_->world;
    program.signature = state_->signature;
    program.buffers.push_back(state_->BufferOf(state_->source, rank, -1));
    program.buffers.push_back(state_->BufferOf(state_->target, rank, -1));
    if (state_->steps.empty()) {
      RETURN_IF_ERROR(state_->CompileWithoutSteps(&program));
    } else if (state_->chunks.count > 1) {
      RETURN_IF_ERROR(state_->CompileTurns(options, &program));
    } else {
      RETURN_IF_ERROR(state_->CompileSteps(options, &program));
    }
    for (StepProgram& step : program.steps) step.salt = program.signature.fingerprint.low;
    return program;
  });
}

int64_t Program::MemoryBytes() const {
  int64_t bytes = static_cast<int64_t>(sizeof(*this));
  absl::flat_hash_set<const Region*> regions;
  for (const StepProgram& step : steps) {
    bytes += static_cast<int64_t>(sizeof(step) + step.group.capacity() * sizeof(int64_t));
    for (const auto* list : {&step.sends, &step.receives}) {
      for (const Transfer& transfer : *list) {
        bytes += static_cast<int64_t>(sizeof(transfer));
        if (regions.insert(transfer.region.get()).second) bytes += RegionBytes(*transfer.region);
      }
    }
  }
  return bytes;
}

absl::StatusOr<Program> CompileProgram(const Plan& plan, int64_t rank, const CompileOptions& options) {
  ASSIGN_OR_RETURN(ProgramCompiler compiler, ProgramCompiler::Create(plan, rank));
  return compiler.Compile(rank, options);
}

}  // namespace reshard
