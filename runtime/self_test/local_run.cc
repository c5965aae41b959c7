#include <algorithm>
#include <chrono>
#include <cstdlib>
#include <cstring>
#include <limits>
#include <memory>
#include <optional>
#include <thread>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "reshard/layout/checked.h"
#include "reshard/runtime/executor.h"
#include "reshard/runtime/local_world.h"
#include "reshard/runtime/verify_run.h"
#include "runtime/host/host_pool.h"
#include "runtime/self_test/logical_content.h"
#include "runtime/self_test/rank_run.h"
#include "status/macros.h"
#include "status/no_throw.h"

namespace reshard {
namespace {

using Clock = std::chrono::steady_clock;

// The comparison with memcpy uses buffers of at least this size per thread, if there is that much to copy.
constexpr int64_t kMemcpyBufferMin = int64_t{64} << 20;

double Median(std::vector<double> values) {
  if (values.empty()) return 0.0;
  std::sort(values.begin(), values.end());
  const size_t middle = values.size() / 2;
  return values.size() % 2 != 0 ? values[middle] : (values[middle - 1] + values[middle]) / 2;
}

// Ascending; stops early beyond kMaxLocalRanks, so that huge meshes are not enumerated.
std::vector<int64_t> DevicesOf(const Mesh& a, const Mesh& b) {
  std::vector<int64_t> ids;
  for (const Mesh* mesh : {&a, &b}) {
    for (int64_t p = 0; p < std::min(mesh->size(), kMaxLocalRanks + 1); ++p) ids.push_back(mesh->Device(p));
  }
  std::sort(ids.begin(), ids.end());
  ids.erase(std::unique(ids.begin(), ids.end()), ids.end());
  return ids;
}

// All that the ranks of one run share, and what they find out.
class LocalRun {
 public:
  LocalRun(const Plan& plan, const RunOptions& options) : plan_(plan), options_(options) {}

  absl::StatusOr<RunReport> Run();

 private:
  // One per repetition.
  struct Times {
    std::vector<double> plan;
    // Of the ranks that copy.
    std::vector<std::pair<Clock::time_point, Clock::time_point>> memcpy;
  };
  // What one rank measured.
  struct RankResult {
    RankReport found;
    Times warm;
    Times fresh;
  };
  struct Medians {
    double plan = 0.0;
    double plan_min = 0.0;
    double memcpy = 0.0;
  };

  absl::Status Prepare();
  absl::Status RunRank(Communicator& comm);
  absl::Status Time(Communicator& comm, self_test::RankRun& run, size_t index);
  absl::Status TimeFresh(Communicator& comm, self_test::RankRun& run, size_t index);
  Medians MediansOf(Times RankResult::*times) const;
  bool Copies(size_t index) const { return index < memcpy_threads_ && memcpy_buffer_ > 0; }

  const Plan& plan_;
  const RunOptions& options_;
  std::vector<int64_t> devices_;
  std::vector<std::shared_ptr<const Program>> programs_;  // as devices_
  std::vector<self_test::LogicalContent> contents_;       // one per fill
  int64_t memory_limit_ = 0;
  size_t memcpy_threads_ = 1;
  int64_t memcpy_share_ = 0;   // bytes that each of the threads copies
  int64_t memcpy_buffer_ = 0;  // size of its buffers
  std::vector<RankResult> results_;
  RunReport report_;
};

// Checks everything that may be refused, before a thread starts.
absl::Status LocalRun::Prepare() {
  if (options_.repeat < 0) return absl::InvalidArgumentError("a negative number of repetitions");
  devices_ = DevicesOf(plan_.source.mesh(), plan_.target.mesh());
  const auto ranks = static_cast<int64_t>(devices_.size());
  if (ranks > kMaxLocalRanks) {
    return absl::ResourceExhaustedError(
        absl::StrCat("a plan over more than ", kMaxLocalRanks, " devices does not run on threads of one process"));
  }
  memory_limit_ = self_test::MemoryLimit();
  int64_t needed = 0;
  const auto need = [&](int64_t bytes) {
    needed = CheckedAdd(needed, bytes).value_or(std::numeric_limits<int64_t>::max());
  };
  for (int64_t device : devices_) {
    need(self_test::MemoryNeeded(plan_, device));
    const int64_t target = self_test::FragmentBytes(plan_.target, plan_.dtype, device);
    if (options_.fresh) need(target + target / 8);  // the pool rounds up
  }
  // The first check costs nothing; what programs and the comparison with memcpy take is known after compiling.
  RETURN_IF_ERROR(self_test::CheckMemory(needed, memory_limit_));
  ASSIGN_OR_RETURN(ProgramCompiler compiler, ProgramCompiler::Create(plan_));
  for (int64_t device : devices_) {
    ASSIGN_OR_RETURN(Program program, compiler.Compile(device, {CopyFor::kPull, /*sends=*/false}));
    need(program.MemoryBytes());
    RETURN_IF_ERROR(self_test::CheckMemory(needed, memory_limit_));
    for (const StepProgram& step : program.steps) {
      for (const StepTensor& tensor : step.tensors) {
        report_.bytes_moved += program.buffers[tensor.output].bytes;
      }
    }
    programs_.push_back(std::make_shared<const Program>(std::move(program)));
  }
  if (options_.repeat > 0) {
    const unsigned cores = std::max(1u, std::thread::hardware_concurrency());
    memcpy_threads_ = std::min<size_t>(devices_.size(), cores);
    const auto threads = static_cast<int64_t>(memcpy_threads_);
    memcpy_share_ = CeilDiv(report_.bytes_moved, threads);
    const int64_t spare = std::max<int64_t>(0, memory_limit_ - needed) / (2 * threads);
    memcpy_buffer_ = std::min(memcpy_share_, std::max(kMemcpyBufferMin, spare));
    need(2 * threads * memcpy_buffer_);
    RETURN_IF_ERROR(self_test::CheckMemory(needed, memory_limit_));
  }
  if (options_.verify) {
    ASSIGN_OR_RETURN(contents_, self_test::ContentsFor(plan_));
  }
  report_.ranks = ranks;
  report_.memory_bytes = needed;
  results_.resize(devices_.size());
  return absl::OkStatus();
}

absl::Status LocalRun::Time(Communicator& comm, self_test::RankRun& run, size_t index) {
  Times& times = results_[index].warm;
  const bool copies = Copies(index);
  self_test::Painted from;
  self_test::Painted to;
  if (copies) {
    for (self_test::Painted* memory : {&from, &to}) {
      RETURN_IF_ERROR(memory->Allocate(memcpy_buffer_));
    }
  }
  // The first repetition warms up. Plan and memcpy take turns, so that other load on the machine affects both.
  for (int64_t repetition = -1; repetition < options_.repeat; ++repetition) {
    absl::Status met = comm.Barrier();
    if (!met.ok()) return met;
    ASSIGN_OR_RETURN(const ExecuteResult executed, run.Execute());
    if (repetition >= 0) times.plan.push_back(executed.seconds);
    met = comm.Barrier();
    if (!met.ok()) return met;
    if (!copies) continue;
    const auto start = Clock::now();
    for (int64_t left = memcpy_share_; left > 0; left -= memcpy_buffer_) {
      std::memcpy(to.data(), from.data(), static_cast<size_t>(std::min(left, memcpy_buffer_)));
    }
    if (repetition >= 0) times.memcpy.emplace_back(start, Clock::now());
  }
  return absl::OkStatus();
}

absl::Status LocalRun::TimeFresh(Communicator& comm, self_test::RankRun& run, size_t index) {
  Times& times = results_[index].fresh;
  const int64_t bytes = programs_[index]->buffers[1].bytes;
  self_test::Painted from;
  if (Copies(index)) {
    RETURN_IF_ERROR(from.Allocate(memcpy_buffer_));
  }
  for (int64_t repetition = -1; repetition < options_.repeat; ++repetition) {
    absl::Status met = comm.Barrier();
    if (!met.ok()) return met;
    {
      const auto start = Clock::now();
      const host::HostBlock target(bytes);
      if (!target) return absl::ResourceExhaustedError(absl::StrCat("no memory for ", bytes, " bytes"));
      RETURN_IF_ERROR(run.Execute(target.data()).status());
      if (repetition >= 0) times.plan.push_back(std::chrono::duration<double>(Clock::now() - start).count());
    }
    met = comm.Barrier();
    if (!met.ok()) return met;
    if (!Copies(index)) continue;
    const auto start = Clock::now();
    auto end = start;
    for (int64_t left = memcpy_share_; left > 0; left -= memcpy_buffer_) {
      const auto piece = static_cast<size_t>(std::min(left, memcpy_buffer_));
      const std::unique_ptr<char, self_test::FreeMemory> to(static_cast<char*>(std::malloc(piece)));
      if (to == nullptr) return absl::ResourceExhaustedError(absl::StrCat("no memory for ", piece, " bytes"));
      std::memcpy(to.get(), from.data(), piece);
      __asm__ volatile("" : : "r"(to.get()) : "memory");  // else nothing reads it, and the compiler drops the copy
      end = Clock::now();
    }
    if (repetition >= 0) times.memcpy.emplace_back(start, end);
  }
  return absl::OkStatus();
}

absl::Status LocalRun::RunRank(Communicator& comm) {
  const auto index =
      static_cast<size_t>(std::lower_bound(devices_.begin(), devices_.end(), comm.rank()) - devices_.begin());
  // All programs come from one plan, so there is nothing to agree on.
  ASSIGN_OR_RETURN(Executor executor, Executor::Create(programs_[index], &comm, Agreement::kOff));
  self_test::RankRun run(plan_, executor);
  RETURN_IF_ERROR(run.Allocate());
  ASSIGN_OR_RETURN(const ExecuteResult first, run.Execute());
  results_[index].found.moved = first.moved;
  RETURN_IF_ERROR(run.Verify(contents_, results_[index].found));
  if (options_.repeat == 0) return absl::OkStatus();
  const absl::Status timed = Time(comm, run, index);
  return timed.ok() && options_.fresh ? TimeFresh(comm, run, index) : timed;
}

LocalRun::Medians LocalRun::MediansOf(Times RankResult::*times) const {
  std::vector<double> plan;
  std::vector<double> copies;
  for (size_t r = 0; r < (results_[0].*times).plan.size(); ++r) {
    double slowest = 0.0;
    // A plan's ranks wait for each other, so the slowest one's time covers all of it. The threads that only copy do
    // not: their time runs from the first start to the last end.
    auto start = Clock::time_point::max();
    auto end = Clock::time_point::min();
    for (const RankResult& result : results_) {
      const Times& of_rank = result.*times;
      slowest = std::max(slowest, of_rank.plan[r]);
      if (of_rank.memcpy.empty()) continue;
      start = std::min(start, of_rank.memcpy[r].first);
      end = std::max(end, of_rank.memcpy[r].second);
    }
    plan.push_back(slowest);
    if (memcpy_buffer_ > 0) copies.push_back(std::chrono::duration<double>(end - start).count());
  }
  return {Median(plan), plan.empty() ? 0.0 : *std::min_element(plan.begin(), plan.end()), Median(copies)};
}

absl::StatusOr<RunReport> LocalRun::Run() {
  RETURN_IF_ERROR(Prepare());
  LocalWorld world(devices_, {options_.timeout});
  RETURN_IF_ERROR(world.Run([this](Communicator& comm) { return RunRank(comm); }));

  int64_t written = 0;
  for (const RankResult& result : results_) {
    const RankReport& found = result.found;
    written += found.moved.written;
    report_.received_bytes_total += found.moved.received;
    report_.received_bytes_max = std::max(report_.received_bytes_max, found.moved.received);
    report_.elements_checked += found.elements_checked;
    if (report_.mismatches == 0) report_.first_mismatch = found.first_mismatch;
    report_.mismatches += found.mismatches;
  }
  if (written != report_.bytes_moved) {
    return absl::InternalError(
        absl::StrCat("the ranks wrote ", written, " bytes, the plan says ", report_.bytes_moved));
  }
  report_.verified = options_.verify && report_.mismatches == 0;
  const Medians warm = MediansOf(&RankResult::warm);
  report_.seconds_median = warm.plan;
  report_.seconds_min = warm.plan_min;
  report_.memcpy_seconds_median = warm.memcpy;
  if (report_.seconds_median > 0) {
    report_.gb_per_s = static_cast<double>(report_.bytes_moved) / report_.seconds_median / 1e9;
    report_.memcpy_ratio = report_.memcpy_seconds_median / report_.seconds_median;
  }
  const Medians fresh = MediansOf(&RankResult::fresh);
  report_.fresh_seconds_median = fresh.plan;
  report_.fresh_memcpy_seconds_median = fresh.memcpy;
  return report_;
}

}  // namespace

absl::StatusOr<RunReport> RunPlanLocally(const Plan& plan, const RunOptions& options) {
  return status::NoThrow("running a plan", [&] { return LocalRun(plan, options).Run(); });
}

}  // namespace reshard
