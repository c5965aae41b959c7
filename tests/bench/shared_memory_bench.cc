// Ranks as processes that share memory, against threads of one process and memcpy, in one run: they take turns.
//
//   bench_shared_memory [KiB a tensor,...; default 4,64,1024,16384,65536] [rounds, default 9] [part of a case's name]
//
// "processes" is the median over rounds of the slowest rank's time for one execution of the plan, agreement included;
// "threads" is the same for LocalWorld. Wanted: processes at most 2 x threads from 1 MiB on. Both begin each round with
// a call that is not counted, since the others' round has taken the caches; a rank that waits for its turn sleeps
// meanwhile.
//
// Once with sources that stay as they are, which up to some MiB lie in the caches of all threads that read them, and
// once with sources that their rank writes anew before each call, as a program does that has just computed them. Ranks
// stay on one core each, as launchers bind them: otherwise two of them share one in some rounds and not in others.
#include <sched.h>
#include <signal.h>
#include <sys/prctl.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <memory>
#include <string>
#include <vector>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_replace.h"
#include "absl/strings/str_split.h"
#include "reshard/layout/text.h"
#include "reshard/planner/planner.h"
#include "reshard/runtime/executor.h"
#include "reshard/runtime/local_world.h"
#include "reshard/runtime/program.h"
#include "runtime/host/futex.h"
#include "tests/bench/median.h"
#include "tests/runtime/shared/shared_memory_world.h"

namespace reshard {
namespace {

using Clock = std::chrono::steady_clock;

struct Case {
  const char* name;
  int64_t ranks;
  const char* mesh;
  const char* from;  // "$" stands for the number of rows
  const char* to;
};

const Case kCases[] = {
    {"S0->S1", 2, "{X:2}", "[<X>$, 1024]", "[$, <X>1024]"},
    {"S1->S0", 2, "{X:2}", "[$, <X>1024]", "[<X>$, 1024]"},
    {"other devices", 4, "{X:2}", "[<X>$, 1024]", "[$, 1024]"},
    {"S0->R", 2, "{X:2}", "[<X>$, 1024]", "[$, 1024]"},
    {"P->S0", 2, "{X:2}", "[$, 1024] sum<X>", "[<X>$, 1024]"},
    {"P->R", 2, "{X:2}", "[$, 1024] sum<X>", "[$, 1024]"},
    {"S0->S1", 4, "{X:4}", "[<X>$, 1024]", "[$, <X>1024]"},
    {"S0->R", 4, "{X:4}", "[<X>$, 1024]", "[$, 1024]"},
    {"(S0,S1)->(S1,S0)", 4, "{X:2,Y:2}", "[<X>$, <Y>1024]", "[<Y>$, <X>1024]"},
    {"P->S0", 4, "{X:4}", "[$, 1024] sum<X>", "[<X>$, 1024]"},
    {"P->R", 4, "{X:4}", "[$, 1024] sum<X>", "[$, 1024]"},
    {"S0->S1, 4 B runs", 4, "{X:4}", "[<X>$, 4]", "[$, <X>4]"},
    {"S0->R", 8, "{X:8}", "[<X>$, 1024]", "[$, 1024]"},
    {"P->R", 8, "{X:8}", "[$, 1024] sum<X>", "[$, 1024]"},
};

// Keeps the calling thread on one of the cores that the process may use.
void StayOnCore(int64_t rank) {
  static const cpu_set_t allowed = [] {
    cpu_set_t set;
    CPU_ZERO(&set);
    sched_getaffinity(0, sizeof(set), &set);
    return set;
  }();
  int64_t left = rank % std::max(1, CPU_COUNT(&allowed));
  for (int core = 0; core < CPU_SETSIZE; ++core) {
    if (!CPU_ISSET(core, &allowed) || left-- > 0) continue;
    cpu_set_t one;
    CPU_ZERO(&one);
    CPU_SET(core, &one);
    sched_setaffinity(0, sizeof(one), &one);
    return;
  }
}

// One rank's fragments, and how long an execution takes on it.
class Rank {
 public:
  absl::Status Prepare(const Plan& plan, Communicator& rank) {
    absl::StatusOr<Program> program = CompileProgram(plan, rank.rank(), {rank.copies(), true});
    if (!program.ok()) return program.status();
    program_ = std::make_shared<const Program>(*std::move(program));
    absl::StatusOr<Executor> executor = Executor::Create(program_, &rank);
    if (!executor.ok()) return executor.status();
    executor_ = std::make_unique<Executor>(*std::move(executor));
    source_.assign(static_cast<size_t>(program_->source().bytes), 1);
    target_.assign(static_cast<size_t>(program_->target().bytes), 1);
    return absl::OkStatus();
  }
  absl::StatusOr<double> Time(Communicator& rank, int64_t calls, bool renewed) {
    std::vector<double> seconds;
    const Buffer& from = program_->source();
    const Buffer& to = program_->target();
    for (int64_t k = -1; k < calls; ++k) {
      if (renewed) std::fill(source_.begin(), source_.end(), static_cast<char>(k));
      const absl::Status met = rank.Barrier();
      if (!met.ok()) return met;
      const Clock::time_point begin = Clock::now();
      const absl::StatusOr<ExecuteResult> done =
          executor_->Execute(DenseView(static_cast<const void*>(source_.data()), from.dtype, from.shape),
                             DenseView(static_cast<void*>(target_.data()), to.dtype, to.shape));
      if (!done.ok()) return done.status();
      if (k >= 0) seconds.push_back(std::chrono::duration<double>(Clock::now() - begin).count());
    }
    return bench::Median(seconds);
  }

 private:
  std::shared_ptr<const Program> program_;
  std::unique_ptr<Executor> executor_;
  std::vector<char> source_;
  std::vector<char> target_;
};

// Whose turn it is, and what came out; in memory that all processes inherit.
struct Turns {
  std::atomic<uint32_t> turn{0};
  std::atomic<uint32_t> done{0};
  double seconds[testing::SharedMemoryRendezvous::kMost] = {};

  static void Raise(std::atomic<uint32_t>& count) {
    count.fetch_add(1);
    host::FutexWakeAll(count, host::FutexScope::kProcesses);
  }
  // Returns when the count has come to `wanted`, or after some milliseconds.
  static void Await(std::atomic<uint32_t>& count, uint32_t wanted) {
    const uint32_t now = count.load();
    if (now < wanted) host::FutexWait(count, now, std::chrono::milliseconds(50), host::FutexScope::kProcesses);
  }
};

absl::Status RunCase(const Case& c, int64_t kib, int64_t rounds, bool renewed) {
  const auto mesh = ParseMesh(c.mesh).value();
  const std::string columns = absl::StrCat(c.from).find("1024") != std::string::npos ? "1024" : "4";
  const int64_t rows = std::max<int64_t>(1, (kib << 10) / 4 / (columns == "4" ? 4 : 1024));
  const auto text = [&](const char* layout) { return absl::StrReplaceAll(layout, {{"$", absl::StrCat(rows)}}); };
  const absl::StatusOr<Layout> from = ParseLayout(text(c.from), mesh);
  const auto target_mesh = c.ranks > mesh.size() ? ParseMesh("{Y:2}@2").value() : mesh;
  const absl::StatusOr<Layout> to = ParseLayout(text(c.to), target_mesh);
  if (!from.ok()) return from.status();
  if (!to.ok()) return to.status();
  const absl::StatusOr<Plan> plan = MakePlan({*from, *to, DType::kF32});
  if (!plan.ok()) return plan.status();
  const int64_t calls = std::clamp<int64_t>((int64_t{64} << 10) / kib, 3, 100);

  void* const memory = mmap(nullptr, sizeof(Turns), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
  auto* const turns = new (memory) Turns;
  const std::shared_ptr<testing::SharedMemoryRendezvous> meeting = testing::SharedMemoryRendezvous::Create();
  std::vector<pid_t> children;
  for (int64_t r = 0; r < c.ranks; ++r) {
    const pid_t child = fork();
    if (child != 0) {
      children.push_back(child);
      continue;
    }
    prctl(PR_SET_PDEATHSIG, SIGKILL);  // it would wait for its turn forever
    StayOnCore(r);
    auto communicator = testing::ConnectSharedMemory(*meeting, r, c.ranks, absl::Seconds(60));
    Rank rank;
    if (!communicator.ok() || !rank.Prepare(*plan, **communicator).ok()) _exit(1);
    for (int64_t round = 1; round <= rounds + 1; ++round) {
      while (turns->turn.load() < round) Turns::Await(turns->turn, static_cast<uint32_t>(round));
      const absl::StatusOr<double> seconds = rank.Time(**communicator, calls, renewed);
      if (!seconds.ok()) {
        std::fprintf(stderr, "rank %lld: %s\n", static_cast<long long>(r), seconds.status().ToString().c_str());
        _exit(1);
      }
      turns->seconds[r] = *seconds;
      Turns::Raise(turns->done);
    }
    _exit(0);
  }
  std::vector<double> near;
  std::vector<double> local;
  LocalWorld world(c.ranks);
  std::vector<Rank> ranks(static_cast<size_t>(c.ranks));
  for (int64_t round = 1; round <= rounds + 1; ++round) {
    Turns::Raise(turns->turn);
    while (turns->done.load() < round * c.ranks) {
      Turns::Await(turns->done, static_cast<uint32_t>(round * c.ranks));
      for (const pid_t child : children) {
        if (round <= rounds && waitpid(child, nullptr, WNOHANG) != 0) return absl::InternalError("a rank has ended");
      }
    }
    const double slowest = *std::max_element(turns->seconds, turns->seconds + c.ranks);
    std::vector<double> seconds(static_cast<size_t>(c.ranks));
    const absl::Status ran = world.Run([&](Communicator& rank) -> absl::Status {
      const auto at = static_cast<size_t>(rank.rank());
      StayOnCore(rank.rank());
      const absl::Status prepared = ranks[at].Prepare(*plan, rank);
      if (!prepared.ok()) return prepared;
      const absl::StatusOr<double> median = ranks[at].Time(rank, calls, renewed);
      if (median.ok()) seconds[at] = *median;
      return median.status();
    });
    if (!ran.ok()) return ran;
    if (round == 1) continue;  // the first warms up
    near.push_back(slowest);
    local.push_back(*std::max_element(seconds.begin(), seconds.end()));
  }
  for (const pid_t child : children) waitpid(child, nullptr, 0);
  munmap(memory, sizeof(Turns));
  std::sort(near.begin(), near.end());
  std::sort(local.begin(), local.end());
  const double n = near[near.size() / 2] * 1e6;
  const double l = local[local.size() / 2] * 1e6;
  std::printf("%-20s %2lld %8lld %-8s %11.1f (%8.1f..%8.1f) %11.1f (%8.1f..%8.1f) %6.2f\n", c.name,
              static_cast<long long>(c.ranks), static_cast<long long>(kib), renewed ? "renewed" : "kept", n,
              near.front() * 1e6, near.back() * 1e6, l, local.front() * 1e6, local.back() * 1e6, l / n);
  std::fflush(stdout);
  return absl::OkStatus();
}

}  // namespace
}  // namespace reshard

int main(int argc, char** argv) {
  const std::string sizes = argc > 1 ? argv[1] : "4,64,1024,16384,65536";
  const int64_t rounds = argc > 2 ? std::strtoll(argv[2], nullptr, 10) : 9;
  const std::string only = argc > 3 ? argv[3] : "";
  std::printf("%-20s %2s %8s %-8s %33s %33s %6s\n", "case", "n", "KiB", "sources", "processes us (least..most)",
              "threads us (least..most)", "ratio");
  for (const reshard::Case& c : reshard::kCases) {
    if (std::string(c.name).find(only) == std::string::npos) continue;
    for (const auto size : absl::StrSplit(sizes, ',')) {
      int64_t kib = 0;
      if (!absl::SimpleAtoi(size, &kib) || kib < 4 || rounds < 1) {
        std::fprintf(stderr, "usage: bench_shared_memory [KiB a tensor,...] [rounds] [part of a case's name]\n");
        return 2;
      }
      for (const bool renewed : {false, true}) {
        const absl::Status ran = reshard::RunCase(c, kib, rounds, renewed);
        if (ran.ok()) continue;
        std::fprintf(stderr, "%s: %s\n", c.name, ran.ToString().c_str());
        return 1;
      }
    }
  }
  return 0;
}
