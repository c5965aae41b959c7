// A batch that is planned is the batch that runs: every element by its logical index, and every rank sends and receives
// the bytes that PlanBatch says.
#include "reshard/planner/batch.h"

#include <map>
#include <mutex>
#include <numeric>
#include <string>
#include <vector>

#include "reshard/runtime/local_world.h"
#include "reshard/runtime/redistributor.h"
#include "runtime/self_test/logical_content.h"
#include "tests/catch.h"
#include "tests/runtime/cases.h"
#include "tests/runtime/packed/packed_world.h"
#include "tests/runtime/shared/shared_memory_world.h"

namespace reshard {
namespace {

using testing::Case;
using testing::MeshOf;

// Counts what its rank gives to others.
class CountingCommunicator final : public Communicator {
 public:
  explicit CountingCommunicator(Communicator* under) : under_(*under) {}
  int64_t sent() const { return sent_; }
  int64_t steps() const { return steps_; }

  bool has_rank(int64_t rank) const override { return under_.has_rank(rank); }
  int64_t rank() const override { return under_.rank(); }
  int64_t world_size() const override { return under_.world_size(); }
  CopyFor copies() const override { return under_.copies(); }
  absl::Status Agree(const absl::Status& own, const Signature& signature) override {
    return under_.Agree(own, signature);
  }
  absl::StatusOr<MoveStats> ExecuteStep(const StepProgram& step, absl::Span<const ConstTensorView> inputs,
                                        absl::Span<const TensorView> outputs,
                                        std::unique_ptr<StepMemo>* memo) override {
    ++steps_;
    for (const Transfer& transfer : step.sends) sent_ += transfer.bytes;
    return under_.ExecuteStep(step, inputs, outputs, memo);
  }
  absl::Status Barrier() override { return under_.Barrier(); }

 private:
  Communicator& under_;
  int64_t sent_ = 0;
  int64_t steps_ = 0;
};

// Replicas in the source, replicas in the target, both, neither; meshes apart, inside one another, and the same.
const std::vector<Case> kModel = {
    {"{dp:4,tp:2}", "[<dp>16, <tp>6]", "[<t>16, 6]", "{r:2,t:2}@8"},
    {"{dp:4,tp:2}", "[<dp,tp>16, 6]", "[16, <t>6]", "{r:2,t:2}@2"},
    {"{dp:4,tp:2}", "[<dp>12]", "[12]", "{r:2,t:2}@8"},
    {"{dp:4,tp:2}", "[12]", "[12]", "{r:2,t:2}@8"},
    {"{dp:4,tp:2}", "[5, 3]", "[5, <t>3]", "{t:2}@10"},
    {"{dp:4,tp:2}", "[7]", "[7]", "{}@11"},
    {"{dp:4,tp:2}", "[<tp>16, <dp>6]", "[<dp>16, <tp>6]"},
    {"{dp:4,tp:2}", "[]", "[]", "{}@9"},
    // Fragments that plans have in fewer dimensions than these layouts.
    {"{dp:4,tp:2}", "[<dp>16, <tp>6]", "[<dp=[5,0,19,24]>(16, <tp>6)]"},
    {"{dp:4,tp:2}", "[<dp>(6, 4), 5]", "[<t>6, (4, <r>5)]", "{r:2,t:2}@2"},
    {"{dp:4,tp:2}", "[<dp>(6, 4), 5]", "[<dp>6, 4, 5]"},
};

// Small tensors of which every rank keeps a part; many of them fill several slots of shared memory.
const std::vector<Case> kSmall = {
    {"{X:3}", "[<X>61, 64]", "[61, <X>64]"},
    {"{X:3}", "[64, <X>61]", "[<X>64, 61]"},
};

enum class Over { kThreads, kMessages, kSharedMemory };

void RunModel(const std::vector<Case>& model, int64_t ranks, Over over, int64_t batch_bytes, int repeat) {
  const bool pulled = over == Over::kThreads;
  CAPTURE(over, batch_bytes, repeat);
  std::vector<Problem> problems;
  std::vector<self_test::LogicalContent> contents;
  for (int i = 0; i < repeat; ++i) {
    for (const Case& c : model) {
      const DType dtype = i % 2 == 0 ? DType::kF32 : DType::kI16;
      problems.push_back(testing::ProblemOf(c.mesh, c.from, c.to, c.target_mesh, dtype));
    }
  }
  RedistributorOptions options;
  options.agreement = Agreement::kOff;
  options.batch_bytes = batch_bytes;
  const BatchPlan batch = PlanBatch(problems, {options.plan, batch_bytes}).value();
  for (size_t t = 0; t < problems.size(); ++t) {
    contents.push_back(self_test::LogicalContent::Create(batch.PlanOf(static_cast<int64_t>(t)), t + 1).value());
  }
  std::map<int64_t, const BatchDevice*> devices;
  for (const BatchDevice& device : batch.devices) devices[device.device] = &device;
  size_t merged_steps = 0;
  for (const BatchBucket& bucket : batch.buckets) merged_steps += bucket.steps.size();

  const auto body = [&](Communicator& under) -> absl::Status {
    CountingCommunicator comm(&under);
    const int64_t rank = comm.rank();
    Redistributor redistributor(&comm, options);
    const auto prepared = redistributor.PrepareBatch(problems);
    if (!prepared.ok()) return prepared.status();
    std::vector<std::vector<char>> sources(problems.size()), targets(problems.size());
    std::vector<ConstTensorView> from;
    std::vector<TensorView> to;
    for (size_t t = 0; t < problems.size(); ++t) {
      const Buffer& in = (*prepared)->source(static_cast<int64_t>(t));
      const Buffer& out = (*prepared)->target(static_cast<int64_t>(t));
      sources[t].resize(in.bytes);
      targets[t].resize(out.bytes);
      if (const auto p = problems[t].source.mesh().Position(rank)) {
        contents[t].Fill(problems[t].source, *p, sources[t].data());
      }
      from.push_back(DenseView(static_cast<const void*>(sources[t].data()), in.dtype, in.shape));
      to.push_back(DenseView(static_cast<void*>(targets[t].data()), out.dtype, out.shape));
    }
    const auto ran = redistributor.Run(prepared, from, to);
    if (!ran.ok()) return ran.status();
    for (size_t t = 0; t < problems.size(); ++t) {
      const auto p = problems[t].target.mesh().Position(rank);
      int64_t first = 0;
      if (p && contents[t].CountMismatches(problems[t].target, *p, targets[t].data(), &first) != 0) {
        return absl::DataLossError(absl::StrCat("tensor ", t, " is wrong from element ", first, " on"));
      }
    }
    const BatchDevice& planned = *devices.at(rank);
    if (ran->moved.received != planned.recv || (!pulled && comm.sent() != planned.send)) {
      return absl::InternalError(absl::StrCat("rank ", rank, " received ", ran->moved.received, " and sent ",
                                              comm.sent(), " bytes; planned were ", planned.recv, " and ",
                                              planned.send));
    }
    if (comm.steps() != static_cast<int64_t>(merged_steps)) {
      return absl::InternalError(absl::StrCat(comm.steps(), " exchanges instead of ", merged_steps));
    }
    return absl::OkStatus();
  };
  std::vector<int64_t> all(static_cast<size_t>(ranks));
  std::iota(all.begin(), all.end(), int64_t{0});
  const auto statuses = over == Over::kThreads    ? LocalWorld(all).RunEach(body)
                        : over == Over::kMessages ? testing::RunPacked(all, body)
                                                  : testing::RunSharedMemoryThreads(all, body);
  for (const absl::Status& status : statuses) {
    INFO(status);
    CHECK(status.ok());
  }
}

TEST_CASE("a batch runs as it was planned") {
  for (const Over over : {Over::kThreads, Over::kMessages, Over::kSharedMemory}) {
    RunModel(kModel, 12, over, int64_t{1} << 30, 1);
    RunModel(kModel, 12, over, int64_t{1} << 30, 5);
    RunModel(kModel, 12, over, 500, 3);
    RunModel(kSmall, 3, over, int64_t{1} << 30, 300);
  }
}

TEST_CASE("a batch over the memory limit is refused with the tensor's number") {
  LocalWorld world(2);
  const absl::Status status = world.Run([&](Communicator& comm) -> absl::Status {
    RedistributorOptions options;
    options.agreement = Agreement::kOff;
    options.plan.memory_limit_bytes = 300;
    Redistributor redistributor(&comm, options);
    const Problem fits = testing::ProblemOf("{X:2}", "[<X>32]", "[32]");
    const Problem large = testing::ProblemOf("{X:2}", "[<X>64]", "[64]");
    const auto refused = redistributor.PrepareBatch({fits, large});
    if (refused.status().code() != absl::StatusCode::kResourceExhausted) return absl::InternalError("not refused");
    if (refused.status().message().find("tensor 1: ") != 0) return refused.status();
    // A limit of the call takes the place of the redistributor's, and is another batch.
    if (!redistributor.PrepareBatch({fits, large}, 1000).ok()) return absl::InternalError("refused");
    if (redistributor.PrepareBatch({fits, large}).ok()) return absl::InternalError("one batch for two limits");
    const auto tight = redistributor.PrepareBatch({fits, fits});
    const auto loose = redistributor.PrepareBatch({fits, fits}, 1000);
    if (!tight.ok() || !loose.ok()) return tight.status();
    if ((*tight)->signature().fingerprint == (*loose)->signature().fingerprint) {
      return absl::InternalError("ranks with different limits would agree");
    }
    if (*redistributor.PrepareBatch({fits, fits}, 1000) != *loose) return absl::InternalError("planned twice");
    return redistributor.PrepareBatch({fits, fits}, -1).ok() ? absl::InternalError("negative") : absl::OkStatus();
  });
  INFO(status);
  CHECK(status.ok());
}

}  // namespace
}  // namespace reshard
