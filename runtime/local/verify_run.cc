#include "reshard/runtime/verify_run.h"

#include <algorithm>
#include <atomic>
#include <chrono>
#include <cstdlib>
#include <cstring>
#include <limits>
#include <memory>
#include <mutex>
#include <optional>
#include <thread>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "reshard/layout/checked.h"
#include "reshard/runtime/executor.h"
#include "reshard/runtime/local_world.h"
#include "runtime/host/host_pool.h"
#include "runtime/local/available_memory.h"
#include "runtime/local/logical_content.h"
#include "status/macros.h"
#include "status/no_throw.h"

namespace reshard {
namespace {

using Clock = std::chrono::steady_clock;

// Bytes around a fragment that nobody may write to.
constexpr int64_t kMargin = 64;
constexpr unsigned char kPaint = 0xA5;
// The comparison with memcpy uses buffers of at least this size a thread, if there is so much to copy.
constexpr int64_t kMemcpyBufferMin = int64_t{64} << 20;

struct FreeMemory {
  void operator()(char* memory) const { std::free(memory); }
};

// Memory with painted margins.
class Painted {
 public:
  absl::Status Allocate(int64_t bytes) {
    bytes_ = bytes;
    const int64_t padded = CeilDiv(bytes + 2 * kMargin, kMargin) * kMargin;
    memory_.reset(static_cast<char*>(std::aligned_alloc(kMargin, static_cast<size_t>(padded))));
    if (memory_ == nullptr) return absl::ResourceExhaustedError(absl::StrCat("no memory for ", bytes, " bytes"));
    std::memset(memory_.get(), kPaint, static_cast<size_t>(bytes + 2 * kMargin));
    return absl::OkStatus();
  }
  char* data() { return memory_.get() + kMargin; }
  void Paint() { std::memset(data(), kPaint, static_cast<size_t>(bytes_)); }
  bool MarginsIntact() {
    const auto painted = [](char c) { return static_cast<unsigned char>(c) == kPaint; };
    return std::all_of(memory_.get(), data(), painted) &&
           std::all_of(data() + bytes_, data() + bytes_ + kMargin, painted);
  }

 private:
  int64_t bytes_ = 0;
  std::unique_ptr<char[], FreeMemory> memory_;
};

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

// Element `global` as an index: "[4, 17]".
std::string IndexText(const Layout& layout, int64_t global) {
  std::vector<int64_t> index(static_cast<size_t>(layout.rank()));
  for (size_t d = index.size(); d-- > 0;) {
    const int64_t size = layout.dim(static_cast<int>(d)).size;
    index[d] = global % size;
    global /= size;
  }
  return absl::StrCat("[", absl::StrJoin(index, ", "), "]");
}

// All that the ranks of one run share, and what they find out.
class LocalRun {
 public:
  LocalRun(const Plan& plan, const RunOptions& options) : plan_(plan), options_(options) {}

  absl::StatusOr<RunReport> Run();

 private:
  // One a repetition.
  struct Times {
    std::vector<double> plan;
    // Of the ranks that copy.
    std::vector<std::pair<Clock::time_point, Clock::time_point>> memcpy;
  };
  // What one rank measured.
  struct RankResult {
    MoveStats moved;
    Times warm;
    Times fresh;
  };
  struct Medians {
    double plan = 0.0;
    double plan_min = 0.0;
    double memcpy = 0.0;
  };

  absl::Status Prepare();
  absl::Status CheckMemory(int64_t needed) const;
  int64_t FragmentBytes(const Layout& layout, int64_t device) const;
  absl::Status RunRank(Communicator& comm);
  absl::Status Verify(Executor& executor, Painted& source, Painted& target);
  absl::Status Time(Communicator& comm, Executor& executor, Painted& source, Painted& target, size_t index);
  absl::Status TimeFresh(Communicator& comm, Executor& executor, Painted& source, size_t index);
  Medians MediansOf(Times RankResult::*times) const;
  bool Copies(size_t index) const { return index < memcpy_threads_ && memcpy_buffer_ > 0; }
  absl::StatusOr<ExecuteResult> Execute(Executor& executor, char* source, char* target) const;
  void ReportMismatch(int64_t count, const std::string& first);

  const Plan& plan_;
  const RunOptions& options_;
  std::vector<int64_t> devices_;
  std::vector<std::shared_ptr<const Program>> programs_;  // as devices_
  std::vector<local::LogicalContent> contents_;           // one a fill
  int64_t memory_limit_ = 0;
  size_t memcpy_threads_ = 1;
  int64_t memcpy_share_ = 0;   // bytes that each of the threads copies
  int64_t memcpy_buffer_ = 0;  // size of its buffers
  std::vector<RankResult> results_;
  std::mutex mutex_;
  RunReport report_;  // guarded by mutex_ while the ranks run
};

int64_t LocalRun::FragmentBytes(const Layout& layout, int64_t device) const {
  const std::optional<int64_t> position = layout.mesh().Position(device);
  return position ? NumElements(layout.LocalShape(*position)) * SizeOf(plan_.dtype) : 0;
}

absl::Status LocalRun::CheckMemory(int64_t needed) const {
  if (needed <= memory_limit_) return absl::OkStatus();
  return absl::ResourceExhaustedError(
      absl::StrCat("running this plan needs ", needed,
                   " bytes of memory; allowed are 3/4 of what is available: ", memory_limit_, " bytes"));
}

// Everything that may be refused, before a thread starts.
absl::Status LocalRun::Prepare() {
  if (options_.repeat < 0) return absl::InvalidArgumentError("a negative number of repetitions");
  devices_ = DevicesOf(plan_.source.mesh(), plan_.target.mesh());
  const auto ranks = static_cast<int64_t>(devices_.size());
  if (ranks > kMaxLocalRanks) {
    return absl::ResourceExhaustedError(
        absl::StrCat("a plan over more than ", kMaxLocalRanks, " devices does not run on threads of one process"));
  }
  const int64_t available = local::AvailableMemoryBytes();
  memory_limit_ = available / 4 * 3;
  int64_t needed = 0;
  const auto need = [&](int64_t bytes) {
    needed = CheckedAdd(needed, bytes).value_or(std::numeric_limits<int64_t>::max());
  };
  for (int64_t device : devices_) {
    need(FragmentBytes(plan_.source, device) + 3 * kMargin);
    const int64_t target = FragmentBytes(plan_.target, device);
    need(target + 3 * kMargin);
    if (options_.fresh) need(target + target / 8);  // the pool rounds up
    int64_t scratch[2] = {0, 0};
    int64_t passing = 0;
    for (size_t i = 0; i + 1 < plan_.steps.size(); ++i) {
      const int64_t bytes = FragmentBytes(plan_.steps[i].to, device);
      scratch[i % 2] = std::max(scratch[i % 2], bytes);
      passing += bytes / plan_.chunks.count;
    }
    if (plan_.chunks.count > 1) scratch[0] = scratch[1] = passing;
    need(scratch[0]);
    need(scratch[1]);
  }
  // The first check costs nothing; what programs and the comparison with memcpy take is known after compiling.
  absl::Status enough = CheckMemory(needed);
  if (!enough.ok()) return enough;
  ASSIGN_OR_RETURN(ProgramCompiler compiler, ProgramCompiler::Create(plan_));
  for (int64_t device : devices_) {
    ASSIGN_OR_RETURN(Program program, compiler.Compile(device, {CopyFor::kPull, /*sends=*/false}));
    need(program.MemoryBytes());
    enough = CheckMemory(needed);
    if (!enough.ok()) return enough;
    for (const StepProgram& step : program.steps) {
      for (const StepTensor& tensor : step.tensors) {
        report_.bytes_moved += program.buffers[static_cast<size_t>(tensor.output)].bytes;
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
    enough = CheckMemory(needed);
    if (!enough.ok()) return enough;
  }
  if (options_.verify) {
    const uint64_t fills = SizeOf(plan_.dtype) <= 2 || plan_.source.pending() ? 2 : 1;
    for (uint64_t salt = 1; salt <= fills; ++salt) {
      ASSIGN_OR_RETURN(local::LogicalContent content, local::LogicalContent::Create(plan_, salt));
      contents_.push_back(std::move(content));
    }
  }
  report_.ranks = ranks;
  report_.memory_bytes = needed;
  results_.resize(devices_.size());
  return absl::OkStatus();
}

absl::StatusOr<ExecuteResult> LocalRun::Execute(Executor& executor, char* source, char* target) const {
  const auto view = [this](char* memory, const Buffer& buffer) {
    return buffer.held ? DenseView(static_cast<void*>(memory), plan_.dtype, buffer.shape) : TensorView();
  };
  const std::vector<Buffer>& buffers = executor.program().buffers;
  return executor.Execute(view(source, buffers[0]), view(target, buffers[1]));
}

void LocalRun::ReportMismatch(int64_t count, const std::string& first) {
  const std::lock_guard<std::mutex> lock(mutex_);
  if (report_.mismatches == 0) report_.first_mismatch = first;
  report_.mismatches += count;
}

absl::Status LocalRun::Verify(Executor& executor, Painted& source, Painted& target) {
  const int64_t device = executor.program().rank;
  struct Side {
    const Layout& layout;
    Painted& memory;
    const char* name;
  };
  const Side sides[] = {{plan_.source, source, "source (it must not change)"}, {plan_.target, target, "target"}};
  for (const local::LogicalContent& content : contents_) {
    const std::optional<int64_t> position = plan_.source.mesh().Position(device);
    if (position) content.Fill(plan_.source, *position, source.data());
    target.Paint();
    RETURN_IF_ERROR(Execute(executor, source.data(), target.data()).status());
    for (const Side& side : sides) {
      const std::optional<int64_t> held = side.layout.mesh().Position(device);
      if (held) {
        int64_t first = 0;
        const int64_t wrong = content.CountMismatches(side.layout, *held, side.memory.data(), &first);
        if (wrong > 0) {
          ReportMismatch(wrong, absl::StrCat("device ", device, ": element ", IndexText(side.layout, first), " of the ",
                                             side.name, " is wrong"));
        }
        const std::lock_guard<std::mutex> lock(mutex_);
        report_.elements_checked += NumElements(side.layout.LocalShape(*held));
      }
      if (!side.memory.MarginsIntact()) {
        ReportMismatch(1, absl::StrCat("device ", device, ": memory beside the ", side.name, " was written to"));
      }
    }
  }
  return absl::OkStatus();
}

absl::Status LocalRun::Time(Communicator& comm, Executor& executor, Painted& source, Painted& target, size_t index) {
  Times& times = results_[index].warm;
  const bool copies = Copies(index);
  Painted from;
  Painted to;
  if (copies) {
    for (Painted* memory : {&from, &to}) {
      RETURN_IF_ERROR(memory->Allocate(memcpy_buffer_));
    }
  }
  // The first repetition warms up. Plan and memcpy take turns, so that what else the machine does meets both.
  for (int64_t repetition = -1; repetition < options_.repeat; ++repetition) {
    absl::Status met = comm.Barrier();
    if (!met.ok()) return met;
    ASSIGN_OR_RETURN(const ExecuteResult executed, Execute(executor, source.data(), target.data()));
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

absl::Status LocalRun::TimeFresh(Communicator& comm, Executor& executor, Painted& source, size_t index) {
  Times& times = results_[index].fresh;
  const int64_t bytes = executor.program().buffers[1].bytes;
  Painted from;
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
      RETURN_IF_ERROR(Execute(executor, source.data(), target.data()).status());
      if (repetition >= 0) times.plan.push_back(std::chrono::duration<double>(Clock::now() - start).count());
    }
    met = comm.Barrier();
    if (!met.ok()) return met;
    if (!Copies(index)) continue;
    const auto start = Clock::now();
    auto end = start;
    for (int64_t left = memcpy_share_; left > 0; left -= memcpy_buffer_) {
      const auto piece = static_cast<size_t>(std::min(left, memcpy_buffer_));
      const std::unique_ptr<char, FreeMemory> to(static_cast<char*>(std::malloc(piece)));
      if (to == nullptr) return absl::ResourceExhaustedError(absl::StrCat("no memory for ", piece, " bytes"));
      std::memcpy(to.get(), from.data(), piece);
      __asm__ volatile("" : : "r"(to.get()) : "memory");  // else nobody reads it, and the compiler drops the copy
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
  Painted source;
  Painted target;
  absl::Status allocated = source.Allocate(executor.program().buffers[0].bytes);
  if (allocated.ok()) allocated = target.Allocate(executor.program().buffers[1].bytes);
  if (!allocated.ok()) return allocated;
  ASSIGN_OR_RETURN(ExecuteResult first, Execute(executor, source.data(), target.data()));
  results_[index].moved = first.moved;
  if (options_.verify) {
    RETURN_IF_ERROR(Verify(executor, source, target));
  }
  if (options_.repeat == 0) return absl::OkStatus();
  const absl::Status timed = Time(comm, executor, source, target, index);
  return timed.ok() && options_.fresh ? TimeFresh(comm, executor, source, index) : timed;
}

LocalRun::Medians LocalRun::MediansOf(Times RankResult::*times) const {
  std::vector<double> plan;
  std::vector<double> copies;
  for (size_t r = 0; r < (results_[0].*times).plan.size(); ++r) {
    double slowest = 0.0;
    // A plan's ranks wait for each other, so the slowest one's time has all of it. The threads that only copy do not:
    // their time runs from the first start to the last end.
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
    written += result.moved.written;
    report_.received_bytes_total += result.moved.received;
    report_.received_bytes_max = std::max(report_.received_bytes_max, result.moved.received);
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
