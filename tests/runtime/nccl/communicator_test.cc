// The NCCL path with real values over the fakes: every golden case, sampled pairs, batches, groups, launches, graphs.
#include <map>
#include <memory>
#include <set>
#include <vector>

#include "reshard/nccl/nccl_communicator.h"
#include "reshard/runtime/redistributor.h"
#include "tests/catch.h"
#include "tests/fakes/nccl_world.h"
#include "tests/property.h"
#include "tests/property/problems.h"
#include "tests/runtime/chunk_cases.h"
#include "tests/runtime/nccl/golden_cases.h"
#include "tests/runtime/nccl/rank_run.h"
#include "tests/sanitized.h"

namespace reshard {
namespace {

using testing::Case;
using testing::FakeCuda;
using testing::FakeNccl;
using testing::FakeWorld;
using testing::GoldenCase;
using testing::PlanOf;
using testing::RankRun;
using testing::RunNcclRanks;
using testing::RunOnRank;

void CheckNoComplaints() {
  for (const std::string& complaint : FakeNccl::Complaints()) {
    INFO(complaint);
    CHECK(false);
  }
}

void CheckAllOk(const std::vector<absl::Status>& statuses) {
  for (size_t rank = 0; rank < statuses.size(); ++rank) {
    INFO("rank " << rank << ": " << statuses[rank]);
    CHECK(statuses[rank].ok());
  }
}

void CheckPlan(const Plan& plan, int64_t world, const RankRun& how, const NcclOptions& options = {}) {
  const absl::StatusOr<self_test::LogicalContent> content = self_test::LogicalContent::Create(plan, 1);
  REQUIRE(content.ok());
  {
    const FakeWorld fakes(static_cast<int>(world));
    CheckAllOk(RunNcclRanks(static_cast<int>(world), options,
                            [&](NcclCommunicator& comm) { return RunOnRank(plan, *content, comm, how); }));
    CheckNoComplaints();
  }
}

// Up to 256 ranks, with three threads each, are minutes for a sanitizer.
constexpr int64_t kMostRanks = testing::kSanitized ? 16 : 0;  // 0: as many as the case has

TEST_CASE("every golden case over NCCL") {
  for (const GoldenCase& golden : testing::GoldenCases(RESHARD_SOURCE_DIR "/tests/golden/cases.json", kMostRanks)) {
    CAPTURE(golden.name, golden.problem.from, golden.problem.to);
    const absl::StatusOr<Plan> plan = PlanOf(golden.problem, DType::kBF16);
    INFO(plan.status());
    REQUIRE(plan.ok());
    CheckPlan(*plan, golden.world, {false, Agreement::kEveryCall});
  }
}

TEST_CASE("every golden case on few ranks, strided, twice") {
  for (const int64_t ranks : {2, 4, 8}) {
    for (const GoldenCase& golden : testing::GoldenCases(RESHARD_SOURCE_DIR "/tests/golden/cases.json", ranks)) {
      CAPTURE(golden.name, golden.problem.mesh, golden.problem.from, golden.problem.to);
      const absl::StatusOr<Plan> plan = PlanOf(golden.problem, DType::kF32);
      INFO(plan.status());
      REQUIRE(plan.ok());
      CheckPlan(*plan, golden.world, {true, Agreement::kEveryCall, 2});
    }
  }
}

TEST_CASE("chunks over NCCL, with its own reductions and without") {
  for (const Case& c : testing::kInChunks) {
    CAPTURE(c.mesh, c.from, c.to, c.target_mesh);
    const Plan plan = testing::PlanInChunks(c, DType::kBF16);
    for (const bool native : {true, false}) {
      NcclOptions options;
      options.native_reductions = native;
      for (const bool strided : {false, true}) {
        CheckPlan(plan, plan.world(), {strided, Agreement::kEveryCall, 2}, options);
      }
    }
  }
}

// Many plans over one communicator for each number of ranks.
TEST_CASE("sampled pairs over NCCL, worlds of 1 to 8") {
  const uint64_t seed = testing::Seed();
  CAPTURE(seed);
  constexpr int kPairs = testing::kSanitized ? 600 : 2400;
  constexpr int64_t kLargestWorld = 8;
  std::map<int64_t, std::vector<std::pair<Plan, self_test::LogicalContent>>> by_world;
  int made = 0;
  for (uint64_t i = 0; made < kPairs; ++i) {
    REQUIRE(i < 50 * kPairs);
    testing::Choices choices(seed + i);
    testing::Flavour flavour = testing::Flavour::Everything();
    flavour.options = i % 4 == 0;
    flavour.slots = i % 3 == 0;  // which partial values do not go together with
    flavour.partial = !flavour.slots;
    flavour.flattened = i % 2 == 0;
    const testing::RandomProblem problem = testing::MakeProblem(choices, flavour);
    const absl::StatusOr<Plan> plan =
        PlanOf({problem.mesh, problem.from, problem.to, problem.target_mesh}, problem.dtype, problem.options);
    if (!plan.ok() || plan->world() > kLargestWorld) continue;
    absl::StatusOr<self_test::LogicalContent> content = self_test::LogicalContent::Create(*plan, i);
    if (!content.ok() || !CompileProgram(*plan, 0).ok()) continue;
    by_world[plan->world()].emplace_back(*plan, *std::move(content));
    ++made;
  }
  CHECK(by_world.size() >= 6);
  for (const auto& [world, plans] : by_world) {
    for (const bool native : {true, false}) {
      const FakeWorld fakes(static_cast<int>(world));
      NcclOptions options;
      options.native_reductions = native;
      options.max_peers = native ? 0 : 2;
      CheckAllOk(RunNcclRanks(static_cast<int>(world), options, [&, &list = plans](NcclCommunicator& comm) {
        for (size_t k = 0; k < list.size(); ++k) {
          const auto& [plan, content] = list[k];
          // Without NCCL's own reductions only what reduces differs.
          const bool reduces = plan.source.partial().has_value();
          if (!native && !reduces) continue;
          const RankRun how{k % 3 == 1, k % 2 == 0 ? Agreement::kEveryCall : Agreement::kOff};
          const absl::Status status = RunOnRank(plan, content, comm, how);
          if (!status.ok()) {
            return absl::Status(status.code(), absl::StrCat(ToString(plan.source.mesh()), " ", ToString(plan.source),
                                                            " -> ", ToString(plan.target.mesh()), " ",
                                                            ToString(plan.target), ": ", status.message()));
          }
        }
        return absl::OkStatus();
      }));
      CheckNoComplaints();
    }
  }
}

TEST_CASE("every type is reduced, by NCCL and by ranks") {
  for (const bool native : {true, false}) {
    NcclOptions options;
    options.native_reductions = native;
    for (const DType dtype : testing::kAllTypes) {
      for (const char* op : {"sum", "avg", "min", "max", "prod"}) {
        for (const char* target : {"[7, <X>6]", "[7, 6]", "[<X>7, 6]"}) {
          const Case c{"{X:3}", absl::StrCat("[7, 6] ", op, "<X>"), target};
          CAPTURE(native, Name(dtype), c.from, c.to);
          const absl::StatusOr<Plan> plan = PlanOf(c, dtype);
          if (!plan.ok() || !CompileProgram(*plan, 0).ok()) continue;
          CheckPlan(*plan, 3, {}, options);
        }
      }
    }
  }
}

// Launches of kernels and groups of NCCL that one execution takes on rank 0.
struct Count {
  int64_t launches = 0;
  int64_t groups = 0;
  std::set<std::string> operations;
};

Count CountOf(const Case& c, int ranks, const testing::FakeNcclOptions& fake = {}, const NcclOptions& options = {}) {
  const absl::StatusOr<Plan> plan = PlanOf(c, DType::kF32);
  REQUIRE(plan.ok());
  const absl::StatusOr<self_test::LogicalContent> content = self_test::LogicalContent::Create(*plan, 1);
  REQUIRE(content.ok());
  const FakeWorld fakes(ranks, fake);
  Count count;
  CheckAllOk(RunNcclRanks(ranks, options, [&](NcclCommunicator& comm) -> absl::Status {
    const int64_t launches = comm.device().launches();
    const int64_t groups = FakeNccl::Groups(static_cast<int>(comm.rank()));
    const absl::Status status = RunOnRank(*plan, *content, comm);
    if (comm.rank() == 0) {
      count.launches = comm.device().launches() - launches;
      count.groups = FakeNccl::Groups(0) - groups;
      for (const testing::FakeOperation& operation : FakeNccl::Operations(0)) count.operations.insert(operation.name);
    }
    return status;
  }));
  CheckNoComplaints();
  return count;
}

TEST_CASE("a step is one exchange and at most one launch on each side") {
  SECTION("rows to columns: what arrives are whole rows") {
    const Count count = CountOf({"{X:2}", "[<X>64, 64]", "[64, <X>64]"}, 2);
    CHECK(count.launches == 1);
    CHECK(count.groups == 1);
  }
  SECTION("strided on both sides") {
    const Count count = CountOf({"{X:2}", "[8, <X>16, 8]", "[8, 16, <X>8]"}, 2);
    CHECK(count.launches == 2);
    CHECK(count.groups == 1);
  }
  SECTION("unless a group may have no more than some peers") {
    testing::FakeNcclOptions fake;
    fake.all_to_all = false;
    NcclOptions options;
    options.max_peers = 2;
    const Count count = CountOf({"{X:6}", "[<X>6, 6]", "[6, <X>6]"}, 6, fake, options);
    CHECK(count.groups == 3);  // to the ranks 1 and 2 behind, 3 and 4, and 5
  }
  SECTION("an all-gather of rows needs no launch") {
    const Count count = CountOf({"{X:4}", "[<X>64, 64]", "[64, 64]"}, 4);
    CHECK(count.launches == 0);
    CHECK(count.groups == 1);
    CHECK(count.operations == std::set<std::string>{"AllGather"});
  }
  SECTION("an all-gather of columns unpacks") {
    const Count count = CountOf({"{X:4}", "[64, <X>64]", "[64, 64]"}, 4);
    CHECK(count.launches == 1);
    CHECK(count.groups == 1);
  }
  SECTION("an all-to-all of four is NCCL's") {
    const Count count = CountOf({"{X:4}", "[8, <X>16, 8]", "[8, 16, <X>8]"}, 4);
    CHECK(count.launches == 2);
    CHECK(count.groups == 1);
    CHECK(count.operations == std::set<std::string>{"AlltoAll"});
  }
  SECTION("unless this NCCL has none") {
    testing::FakeNcclOptions fake;
    fake.all_to_all = false;
    const Count count = CountOf({"{X:4}", "[8, <X>16, 8]", "[8, 16, <X>8]"}, 4, fake);
    CHECK(count.launches == 2);
    CHECK(count.groups == 1);
    CHECK(count.operations.count("Send") == 1);
  }
  SECTION("a reduce-scatter of rows needs no launch") {
    const Count count = CountOf({"{X:4}", "[64, 64] sum<X>", "[<X>64, 64]"}, 4);
    CHECK(count.launches == 0);
    CHECK(count.groups == 1);
    CHECK(count.operations.count("ReduceScatter") == 1);
  }
}

TEST_CASE("a batch takes as many launches as one tensor") {
  constexpr size_t kTensors = 400;
  const FakeWorld fakes(2);
  std::vector<int64_t> launches(2);
  std::vector<int64_t> groups(2);
  CheckAllOk(RunNcclRanks(2, {}, [&](NcclCommunicator& comm) -> absl::Status {
    RedistributorOptions options;
    options.agreement = Agreement::kOff;
    Redistributor redistributor(&comm, options);
    const std::vector<Problem> problems(kTensors, testing::ProblemOf("{X:2}", "[<X>8, 6]", "[8, <X>6]"));
    const auto prepared = redistributor.PrepareBatch(problems);
    if (!prepared.ok()) return prepared.status();
    constexpr size_t kElements = 24;
    std::vector<float> in(kTensors * kElements);
    std::vector<float> out(kTensors * kElements, -1.0F);
    const auto value = [](size_t tensor, size_t row, size_t column) {
      return static_cast<float>(tensor * 100 + row * 6 + column);
    };
    const auto rank = static_cast<size_t>(comm.rank());
    std::vector<ConstTensorView> sources;
    std::vector<TensorView> targets;
    // The fake driver's memory is memory of the host, but only what it has given out.
    auto* const device_in = static_cast<float*>(FakeCuda::Allocate(static_cast<int>(rank), 4 * kTensors * kElements));
    auto* const device_out = static_cast<float*>(FakeCuda::Allocate(static_cast<int>(rank), 4 * kTensors * kElements));
    for (size_t t = 0; t < kTensors; ++t) {
      for (size_t i = 0; i < 4; ++i) {
        for (size_t j = 0; j < 6; ++j) device_in[t * kElements + i * 6 + j] = value(t, rank * 4 + i, j);
      }
      TensorView source = DenseView(static_cast<void*>(device_in + t * kElements), DType::kF32, {4, 6});
      TensorView target = DenseView(static_cast<void*>(device_out + t * kElements), DType::kF32, {8, 3});
      source.memory = target.memory = MemoryKind::kCuda;
      sources.push_back(source);
      targets.push_back(target);
    }
    const int64_t launches_before = comm.device().launches();
    const int64_t groups_before = FakeNccl::Groups(static_cast<int>(rank));
    const auto result = redistributor.Run(prepared, sources, targets);
    if (!result.ok()) return result.status();
    const absl::Status waited = comm.Wait();
    if (!waited.ok()) return waited;
    launches[rank] = comm.device().launches() - launches_before;
    groups[rank] = FakeNccl::Groups(static_cast<int>(rank)) - groups_before;
    for (size_t t = 0; t < kTensors; ++t) {
      for (size_t i = 0; i < 8; ++i) {
        for (size_t j = 0; j < 3; ++j) {
          if (device_out[t * kElements + i * 3 + j] != value(t, i, rank * 3 + j)) {
            return absl::DataLossError("wrong element");
          }
        }
      }
    }
    FakeCuda::Free(device_in);
    FakeCuda::Free(device_out);
    return absl::OkStatus();
  }));
  for (size_t rank = 0; rank < 2; ++rank) {
    CHECK(launches[rank] == 2);
    CHECK(groups[rank] == 1);
  }
  CheckNoComplaints();
}

TEST_CASE("groups of axes are split off once") {
  const absl::StatusOr<Plan> plan = PlanOf({"{X:2,Y:2}", "[<X>8, <Y>8]", "[8, <Y>8]"}, DType::kF32);
  const absl::StatusOr<Plan> other = PlanOf({"{X:2,Y:2}", "[<Y>8, 4]", "[8, 4]"}, DType::kF32);
  REQUIRE(plan.ok());
  REQUIRE(other.ok());
  const absl::StatusOr<self_test::LogicalContent> content = self_test::LogicalContent::Create(*plan, 1);
  const absl::StatusOr<self_test::LogicalContent> other_content = self_test::LogicalContent::Create(*other, 1);
  // A fifth rank is in no group, but takes part in splitting.
  const FakeWorld fakes(5);
  CheckAllOk(RunNcclRanks(5, {}, [&](NcclCommunicator& comm) -> absl::Status {
    for (int time = 0; time < 2; ++time) {
      absl::Status status = RunOnRank(*plan, *content, comm);
      if (status.ok()) status = RunOnRank(*other, *other_content, comm);
      if (!status.ok()) return status;
    }
    return comm.groups() == 2 ? absl::OkStatus() : absl::InternalError("other than two groups");
  }));
  CheckNoComplaints();
}

TEST_CASE("a redistribution is captured into a graph and replayed") {
  const absl::StatusOr<Plan> plan = PlanOf({"{X:2}", "[<X>8, 8]", "[8, <X>8]"}, DType::kF32);
  REQUIRE(plan.ok());
  const FakeWorld fakes(2);
  CheckAllOk(RunNcclRanks(2, {}, [&](NcclCommunicator& comm) -> absl::Status {
    const cuda::CudaApi& api = FakeCuda::Api();
    const auto rank = static_cast<int>(comm.rank());
    auto* const in = static_cast<float*>(FakeCuda::Allocate(rank, 32 * 4));
    auto* const out = static_cast<float*>(FakeCuda::Allocate(rank, 32 * 4));
    TensorView source = DenseView(static_cast<void*>(in), DType::kF32, {4, 8});
    TensorView target = DenseView(static_cast<void*>(out), DType::kF32, {8, 4});
    source.memory = target.memory = MemoryKind::kCuda;
    const auto fill = [&](float first) {
      for (int i = 0; i < 32; ++i) in[i] = first + static_cast<float>(rank * 32 + i);
    };
    const auto right = [&](float first) {
      for (int i = 0; i < 8; ++i) {
        for (int j = 0; j < 4; ++j) {
          if (out[i * 4 + j] != first + static_cast<float>(i * 8 + rank * 4 + j)) return false;
        }
      }
      return true;
    };
    absl::StatusOr<Program> program = CompileProgram(*plan, rank, {comm.copies(), true});
    if (!program.ok()) return program.status();
    absl::StatusOr<Executor> executor =
        Executor::Create(std::make_shared<const Program>(*std::move(program)), &comm, Agreement::kEveryCall);
    const cuda::CudaDevice::Current current(comm.device());
    cuda::CudaStream stream = nullptr;
    api.StreamCreate(&stream, cuda::kCudaStreamNonBlocking);
    comm.UseStream(stream);
    fill(0);
    // Not before it has run once: then the tables are on the device.
    api.StreamBeginCapture(stream, cuda::kCudaCaptureThreadLocal);
    const bool too_early = absl::IsFailedPrecondition(executor->ExecuteChecked({source}, {target}).status());
    cuda::CudaGraph none = nullptr;
    api.StreamEndCapture(stream, &none);
    if (none != nullptr) api.GraphDestroy(none);
    if (!too_early) return absl::InternalError("captured without tables");
    executor = Executor::Create(std::make_shared<const Program>(executor->program()), &comm, Agreement::kEveryCall);
    absl::StatusOr<ExecuteResult> ran = executor->Execute(source, target);
    if (!ran.ok()) return ran.status();
    absl::Status status = comm.Wait();
    if (!status.ok()) return status;
    if (!right(0)) return absl::DataLossError("wrong before the capture");

    if (api.StreamBeginCapture(stream, cuda::kCudaCaptureThreadLocal) != cuda::kCudaSuccess)
      return absl::InternalError("begin");
    ran = executor->Execute(source, target);
    cuda::CudaGraph graph = nullptr;
    if (api.StreamEndCapture(stream, &graph) != cuda::kCudaSuccess) return absl::InternalError("end");
    if (!ran.ok()) return ran.status();
    cuda::CudaGraphExec exec = nullptr;
    if (api.GraphInstantiateWithFlags(&exec, graph, 0) != cuda::kCudaSuccess) return absl::InternalError("instantiate");
    for (const float first : {1000.0F, 2000.0F, 3000.0F}) {
      fill(first);
      if (api.GraphLaunch(exec, stream) != cuda::kCudaSuccess) return absl::InternalError("launch");
      if (api.StreamSynchronize(stream) != cuda::kCudaSuccess) return absl::InternalError("synchronize");
      if (!right(first)) return absl::DataLossError("wrong in a replay");
    }
    api.GraphExecDestroy(exec);
    api.GraphDestroy(graph);
    status = comm.Barrier();
    comm.UseStream(nullptr);
    api.StreamDestroy(stream);
    FakeCuda::Free(in);
    FakeCuda::Free(out);
    return status;
  }));
  CheckNoComplaints();
}

TEST_CASE("warming up makes every connection, and operations are remembered") {
  const FakeWorld fakes(3);
  CheckAllOk(RunNcclRanks(3, {}, [&](NcclCommunicator& comm) -> absl::Status {
    const absl::Status status = comm.WarmUp();
    if (!status.ok()) return status;
    const std::string json = comm.recent_operations()->ToJson();
    return json.find("\"warm-up\"") != std::string::npos ? absl::OkStatus() : absl::InternalError(json);
  }));
  CheckNoComplaints();
}

}  // namespace
}  // namespace reshard
