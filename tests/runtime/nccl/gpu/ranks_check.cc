// The plan suite over real NCCL: one process a rank, all on one GPU (docs/gpu.md says how NCCL is brought to allow
// that), or one GPU each where there are enough.
//
//   gpu_ranks SUITE.json RANKS [SAMPLES]     starts RANKS processes and prints one line
//
// Every golden case, cut to RANKS devices, and SAMPLES random pairs (default 300, seed RESHARD_TEST_SEED), dense and
// strided, with agreement. Then: a graph that outlives its communicator, ranks that disagree, and a rank that stays
// away under a short timeout. Ends with 0 when all is well, with 77 when there is no GPU, which it says; else 1.
#include <signal.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <iostream>
#include <string>
#include <thread>
#include <vector>

#include "absl/strings/match.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"
#include "reshard/layout/text.h"
#include "runtime/cuda/device.h"
#include "tests/property/problems.h"
#include "tests/runtime/cases.h"
#include "tests/runtime/nccl/golden_cases.h"
#include "tests/runtime/nccl/gpu/file_store.h"
#include "tests/runtime/nccl/rank_run.h"

namespace reshard {
namespace {

using testing::GoldenCase;
using testing::PlanOf;
using testing::RunOnRank;

struct Work {
  std::string name;
  Plan plan;
  self_test::LogicalContent content;
};

std::vector<Work> MakeWork(const std::string& suite, int64_t ranks, int samples, uint64_t seed) {
  std::vector<Work> all;
  const auto add = [&](const std::string& name, const absl::StatusOr<Plan>& plan) {
    if (!plan.ok() || plan->world() > ranks || !CompileProgram(*plan, 0).ok()) return false;
    absl::StatusOr<self_test::LogicalContent> content = self_test::LogicalContent::Create(*plan, all.size());
    if (!content.ok()) return false;
    all.push_back({name, *plan, *std::move(content)});
    return true;
  };
  for (const GoldenCase& golden : testing::GoldenCases(suite, ranks)) {
    const absl::StatusOr<Plan> plan = PlanOf(golden.problem, DType::kBF16);
    if (!add(golden.name, plan)) std::cerr << "left out: " << golden.name << " " << plan.status() << "\n";
  }
  for (uint64_t i = 0; samples > 0 && i < 1000000; ++i) {
    testing::Choices choices(seed + i);
    const testing::RandomProblem p = testing::MakeProblem(choices, testing::Flavour::Everything());
    const absl::StatusOr<Plan> plan = PlanOf({p.mesh, p.from, p.to, p.target_mesh}, p.dtype, p.options);
    if (add(p.Text(), plan)) --samples;
  }
  return all;
}

NcclOptions Options(int device, absl::Duration timeout) {
  NcclOptions options;
  options.device = device;
  options.timeout = timeout;
  const char* ctas = std::getenv("NCCL_MAX_CTAS");
  if (ctas != nullptr) options.max_ctas = std::atoi(ctas);
  return options;
}

absl::Status RunSuite(const std::vector<Work>& all, NcclCommunicator& comm) {
  for (size_t k = 0; k < all.size(); ++k) {
    const absl::Status status =
        RunOnRank(all[k].plan, all[k].content, comm,
                  {k % 3 == 1, k % 2 == 0 ? Agreement::kEveryCall : Agreement::kOff, k % 10 == 0 ? 2 : 1});
    if (!status.ok()) return absl::Status(status.code(), absl::StrCat(all[k].name, ": ", status.message()));
  }
  return comm.Barrier();
}

// What must fail, and how.
absl::Status RunFailures(int64_t rank, int64_t ranks, int device, const std::string& folder) {
  const std::string mesh = absl::StrCat("{X:", ranks, "}");
  const absl::StatusOr<Plan> usual = PlanOf({mesh, "[<X>64, 64]", "[64, <X>64]"}, DType::kF32);
  const absl::StatusOr<Plan> other = PlanOf({mesh, "[<X>64, 64]", "[64, 64]"}, DType::kF32);
  if (!usual.ok() || !other.ok()) return absl::InternalError("no plan");
  const absl::StatusOr<self_test::LogicalContent> content = self_test::LogicalContent::Create(*usual, 1);
  const absl::StatusOr<self_test::LogicalContent> other_content = self_test::LogicalContent::Create(*other, 1);
  {
    testing::FileStore store(folder + "/disagree");
    auto comm = NcclCommunicator::Create(rank, ranks, &store, Options(device, absl::Seconds(20)));
    if (!comm.ok()) return comm.status();
    const bool odd = rank == 1;
    const absl::Status status =
        RunOnRank(odd ? *other : *usual, odd ? *other_content : *content, **comm, {false, Agreement::kEveryCall});
    if (!absl::StrContains(status.message(), "ranks disagree on target")) {
      return absl::InternalError(absl::StrCat("instead of a disagreement: ", status.ToString()));
    }
  }
  {
    testing::FileStore store(folder + "/away");
    auto comm = NcclCommunicator::Create(rank, ranks, &store, Options(device, absl::Seconds(5)));
    if (!comm.ok()) return comm.status();
    absl::Status status = RunOnRank(*usual, *content, **comm);
    if (!status.ok()) return status;
    if (rank == ranks - 1) _exit(0);  // gone, with its process
    status = RunOnRank(*usual, *content, **comm);
    if (status.ok()) return absl::InternalError("a rank that is gone was not missed");
  }
  return absl::OkStatus();
}

// A redistribution that is captured and replayed, and a communicator that goes while the graph is still there, which it
// must not wait for.
absl::Status RunGraph(int64_t rank, int64_t ranks, int device, const std::string& folder) {
  const absl::StatusOr<const cuda::CudaApi*> loaded = cuda::LoadCudaApi();
  const absl::StatusOr<Plan> plan =
      PlanOf({absl::StrCat("{X:", ranks, "}"), "[<X>64, 64]", "[64, <X>64]"}, DType::kF32);
  if (!loaded.ok() || !plan.ok()) return absl::InternalError("no driver, or no plan");
  const cuda::CudaApi& api = **loaded;
  const absl::StatusOr<self_test::LogicalContent> content = self_test::LogicalContent::Create(*plan, 1);
  if (!content.ok()) return content.status();
  // Keeps the context for the graph.
  const absl::StatusOr<std::unique_ptr<cuda::CudaDevice>> opened = cuda::CudaDevice::Open(api, device);
  if (!opened.ok()) return opened.status();
  const cuda::CudaDevice::Current current(**opened);
  const auto check = [&](cuda::CudaResult result, const char* what) { return cuda::CudaStatus(api, result, what); };
  cuda::CudaStream stream = nullptr;
  cuda::CudaGraphExec exec = nullptr;
  absl::Status status = check(api.StreamCreate(&stream, cuda::kCudaStreamNonBlocking), "a stream");
  absl::Time left = absl::InfinitePast();
  {
    testing::FileStore store(folder + "/graph");
    auto comm = NcclCommunicator::Create(rank, ranks, &store, Options(device, absl::Seconds(30)));
    if (!comm.ok()) return comm.status();
    (*comm)->UseStream(stream);
    absl::StatusOr<Program> program = CompileProgram(*plan, rank, {(*comm)->copies(), true});
    if (!program.ok()) return program.status();
    const int64_t bytes = program->source().bytes;
    const Dims from = program->source().shape, to = program->target().shape;
    absl::StatusOr<Executor> executor =
        Executor::Create(std::make_shared<const Program>(*std::move(program)), comm->get(), Agreement::kEveryCall);
    if (!executor.ok()) return executor.status();
    absl::StatusOr<cuda::DeviceBlock> in = (*comm)->device().Allocate(bytes, stream);
    absl::StatusOr<cuda::DeviceBlock> out = (*comm)->device().Allocate(bytes, stream);
    if (!in.ok() || !out.ok()) return absl::ResourceExhaustedError("no memory on the GPU");
    TensorView source = DenseView(static_cast<void*>(in->data()), DType::kF32, from);
    TensorView target = DenseView(static_cast<void*>(out->data()), DType::kF32, to);
    source.memory = target.memory = MemoryKind::kCuda;
    std::vector<char> values(static_cast<size_t>(bytes)), got(values.size());
    content->Fill(plan->source, rank, values.data());
    status.Update((*comm)->device().Copy(in->data(), values.data(), bytes, stream));
    if (status.ok()) status = executor->Execute(source, target).status();
    if (status.ok()) status = (*comm)->Wait();
    cuda::CudaGraph graph = nullptr;
    constexpr int kGlobal = 0;
    if (status.ok()) status = check(api.StreamBeginCapture(stream, kGlobal), "beginning a capture");
    if (status.ok()) {
      status = executor->Execute(source, target).status();
      status.Update(check(api.StreamEndCapture(stream, &graph), "ending a capture"));
    }
    if (status.ok()) status = check(api.GraphInstantiateWithFlags(&exec, graph, 0), "instantiating a graph");
    if (graph != nullptr) api.GraphDestroy(graph);
    if (status.ok()) status = (*comm)->device().Copy(out->data(), got.data(), bytes, stream);  // something else
    if (status.ok()) status = check(api.GraphLaunch(exec, stream), "launching a graph");
    if (status.ok()) status = (*comm)->device().Copy(got.data(), out->data(), bytes, stream);
    if (status.ok()) status = check(api.StreamSynchronize(stream), "waiting for a graph");
    int64_t first = 0;
    if (status.ok() && content->CountMismatches(plan->target, rank, got.data(), &first) > 0) {
      status = absl::DataLossError(absl::StrCat("element ", first, " is wrong"));
    }
    if (status.ok()) status = (*comm)->Barrier();
    left = absl::Now();
  }
  const absl::Duration waited = absl::Now() - left;
  if (exec != nullptr) api.GraphExecDestroy(exec);
  api.StreamDestroy(stream);
  if (!status.ok()) return absl::Status(status.code(), absl::StrCat("a graph: ", status.message()));
  if (waited < absl::Seconds(15)) return absl::OkStatus();
  return absl::InternalError(absl::StrCat("a communicator waited ", absl::FormatDuration(waited), " for a graph"));
}

int RunRank(const std::string& suite, int64_t rank, int64_t ranks, int samples, const std::string& folder) {
  const absl::StatusOr<const cuda::CudaApi*> cuda = cuda::LoadCudaApi();
  int devices = 0;
  if (!cuda.ok() || (*cuda)->DeviceGetCount(&devices) != cuda::kCudaSuccess) return 1;
  const int device = devices >= ranks ? static_cast<int>(rank) : 0;
  const char* seed_text = std::getenv("RESHARD_TEST_SEED");
  uint64_t seed = 20240607;
  if (seed_text != nullptr && !absl::SimpleAtoi(seed_text, &seed)) return 2;
  const std::vector<Work> all = MakeWork(suite, ranks, samples, seed);
  testing::FileStore store(folder + "/suite");
  absl::Status status;
  const absl::Time start = absl::Now();
  {
    auto comm = NcclCommunicator::Create(rank, ranks, &store, Options(device, absl::Seconds(60)));
    status = comm.status();
    if (status.ok()) status = RunSuite(all, **comm);
  }
  if (status.ok() && rank == 0) {
    const absl::StatusOr<const NcclApi*> nccl = LoadNcclApi();
    int driver = 0;
    (*cuda)->DriverGetVersion(&driver);
    std::cout << "libraries: NCCL " << NcclVersionText((*nccl)->version) << " (" << (*nccl)->origin << "), CUDA driver "
              << driver / 1000 << "." << driver % 1000 / 10 << std::endl;
    std::cout << all.size() << " plans, 0 wrong elements, seed " << seed << ", "
              << absl::FormatDuration(absl::Trunc(absl::Now() - start, absl::Milliseconds(1))) << std::endl;
  }
  if (status.ok()) status = RunGraph(rank, ranks, device, folder);
  if (status.ok() && ranks > 1) status = RunFailures(rank, ranks, device, folder);
  if (!status.ok()) std::cerr << "rank " << rank << ": " << status << std::endl;
  return status.ok() ? 0 : 1;
}

// Each rank is a process with a host of its own, as far as NCCL can see. Kills all when one fails or time is over.
int StartRanks(char** argv, int64_t ranks, const std::string& folder) {
  std::vector<pid_t> children;
  for (int64_t rank = 0; rank < ranks; ++rank) {
    const pid_t child = fork();
    if (child == 0) {
      const auto set = [](const char* name, const std::string& value) { setenv(name, value.c_str(), 1); };
      set("NCCL_HOSTID", absl::StrCat("vhost", rank));
      for (const auto& [name, value] :
           std::vector<std::pair<const char*, const char*>>{{"NCCL_SOCKET_IFNAME", "lo"},
                                                            {"NCCL_SOCKET_FAMILY", "AF_INET"},
                                                            {"NCCL_NET", "Socket"},
                                                            {"NCCL_NET_PLUGIN", "none"},
                                                            {"NCCL_IB_DISABLE", "1"},
                                                            {"NCCL_MNNVL_ENABLE", "0"},
                                                            {"NCCL_NVLS_ENABLE", "0"},
                                                            {"NCCL_RAS_ENABLE", "0"},
                                                            {"NCCL_MAX_CTAS", "2"},
                                                            {"NCCL_DEBUG", "WARN"}}) {
        setenv(name, value, 0);
      }
      set("RESHARD_GPU_RANK", absl::StrCat(rank));
      set("RESHARD_GPU_FOLDER", folder);
      execv("/proc/self/exe", argv);
      _exit(127);
    }
    children.push_back(child);
  }
  const absl::Time deadline = absl::Now() + absl::Minutes(8);
  size_t left = children.size();
  int failed = 0;
  while (left > 0) {
    int state = 0;
    const pid_t ended = waitpid(-1, &state, WNOHANG);
    if (ended == 0) {
      absl::SleepFor(absl::Milliseconds(20));
    } else {
      --left;
      if (!WIFEXITED(state) || WEXITSTATUS(state) != 0) ++failed;
    }
    if (failed > 0 || absl::Now() > deadline) {
      // The others get a moment to say what they saw.
      absl::SleepFor(absl::Seconds(2));
      for (pid_t child : children) kill(child, SIGKILL);
      if (failed == 0) std::cerr << "ranks did not end within 8 minutes" << std::endl;
      while (left > 0 && waitpid(-1, nullptr, 0) > 0) --left;
      return 1;
    }
  }
  return 0;
}

int Main(int argc, char** argv) {
  int64_t ranks = 0;
  int samples = 300;
  if (argc < 3 || argc > 4 || !absl::SimpleAtoi(argv[2], &ranks) || ranks < 1 || ranks > 64 ||
      (argc == 4 && !absl::SimpleAtoi(argv[3], &samples))) {
    std::cerr << "usage: gpu_ranks SUITE.json RANKS [SAMPLES]" << std::endl;
    return 2;
  }
  const char* rank_text = std::getenv("RESHARD_GPU_RANK");
  const char* folder = std::getenv("RESHARD_GPU_FOLDER");
  int64_t rank = 0;
  if (rank_text != nullptr && folder != nullptr && absl::SimpleAtoi(rank_text, &rank)) {
    return RunRank(argv[1], rank, ranks, samples, folder);
  }
  const absl::StatusOr<const cuda::CudaApi*> cuda = cuda::LoadCudaApi();
  if (!cuda.ok()) {
    std::cout << "test skipped: plans over NCCL on a GPU: " << cuda.status().message() << std::endl;
    return 77;
  }
  std::string made = "/tmp/reshard_gpu_XXXXXX";
  if (mkdtemp(made.data()) == nullptr) return 1;
  for (const char* part : {"/suite", "/graph", "/disagree", "/away"}) {
    if (mkdir((made + part).c_str(), 0700) != 0) return 1;
  }
  const int code = StartRanks(argv, ranks, made);
  std::error_code ignored;
  std::filesystem::remove_all(made, ignored);
  std::cout << ranks << " ranks: " << (code == 0 ? "PASS" : "FAIL") << std::endl;
  return code;
}

}  // namespace
}  // namespace reshard

int main(int argc, char** argv) { return reshard::Main(argc, argv); }
