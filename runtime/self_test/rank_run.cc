#include "runtime/self_test/rank_run.h"

#include <algorithm>
#include <cstring>
#include <limits>
#include <optional>
#include <string>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "reshard/layout/checked.h"
#include "runtime/self_test/available_memory.h"
#include "status/macros.h"
#include "status/no_throw.h"

namespace reshard {
namespace self_test {
namespace {

constexpr unsigned char kPaint = 0xA5;

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

void AddMismatches(int64_t count, std::string first, RankReport& report) {
  if (report.mismatches == 0) report.first_mismatch = std::move(first);
  report.mismatches += count;
}

}  // namespace

absl::Status Painted::Allocate(int64_t bytes) {
  bytes_ = bytes;
  const int64_t padded = CeilDiv(bytes + 2 * kMargin, kMargin) * kMargin;
  memory_.reset(static_cast<char*>(std::aligned_alloc(kMargin, static_cast<size_t>(padded))));
  if (memory_ == nullptr) return absl::ResourceExhaustedError(absl::StrCat("no memory for ", bytes, " bytes"));
  std::memset(memory_.get(), kPaint, static_cast<size_t>(bytes + 2 * kMargin));
  return absl::OkStatus();
}

void Painted::Paint() { std::memset(data(), kPaint, static_cast<size_t>(bytes_)); }

bool Painted::MarginsIntact() {
  const auto painted = [](char c) { return static_cast<unsigned char>(c) == kPaint; };
  return std::all_of(memory_.get(), data(), painted) &&
         std::all_of(data() + bytes_, data() + bytes_ + kMargin, painted);
}

int64_t FragmentBytes(const Layout& layout, DType dtype, int64_t device) {
  const std::optional<int64_t> position = layout.mesh().Position(device);
  return position ? NumElements(layout.LocalShape(*position)) * SizeOf(dtype) : 0;
}

int64_t MemoryNeeded(const Plan& plan, int64_t device) {
  int64_t scratch[2] = {0, 0};
  int64_t passing = 0;
  for (size_t i = 0; i + 1 < plan.steps.size(); ++i) {
    const int64_t bytes = FragmentBytes(plan.steps[i].to, plan.dtype, device);
    scratch[i % 2] = std::max(scratch[i % 2], bytes);
    passing += bytes / plan.chunks.count;
  }
  if (plan.chunks.count > 1) scratch[0] = scratch[1] = passing;
  int64_t needed = 0;
  for (const int64_t bytes : {FragmentBytes(plan.source, plan.dtype, device) + 3 * kMargin,
                              FragmentBytes(plan.target, plan.dtype, device) + 3 * kMargin, scratch[0], scratch[1]}) {
    needed = CheckedAdd(needed, bytes).value_or(std::numeric_limits<int64_t>::max());
  }
  return needed;
}

absl::Status CheckMemory(int64_t needed, int64_t limit) {
  if (needed <= limit) return absl::OkStatus();
  return absl::ResourceExhaustedError(absl::StrCat(
      "running this plan needs ", needed, " bytes of memory; allowed are 3/4 of what is available: ", limit, " bytes"));
}

int64_t MemoryLimit() { return AvailableMemoryBytes() / 4 * 3; }

absl::StatusOr<std::vector<LogicalContent>> ContentsFor(const Plan& plan) {
  std::vector<LogicalContent> contents;
  const uint64_t fills = SizeOf(plan.dtype) <= 2 || plan.source.partial() ? 2 : 1;
  for (uint64_t salt = 1; salt <= fills; ++salt) {
    ASSIGN_OR_RETURN(LogicalContent content, LogicalContent::Create(plan, salt));
    contents.push_back(std::move(content));
  }
  return contents;
}

absl::Status RankRun::Allocate() {
  RETURN_IF_ERROR(source_.Allocate(executor_.program().buffers[0].bytes));
  return target_.Allocate(executor_.program().buffers[1].bytes);
}

absl::StatusOr<ExecuteResult> RankRun::Execute(char* target) {
  const auto view = [this](char* memory, const Buffer& buffer) {
    return buffer.held ? DenseView(static_cast<void*>(memory), plan_.dtype, buffer.shape) : TensorView();
  };
  const std::vector<Buffer>& buffers = executor_.program().buffers;
  return executor_.Execute(view(source_.data(), buffers[0]), view(target, buffers[1]));
}

absl::Status RankRun::Verify(const std::vector<LogicalContent>& contents, RankReport& report) {
  const std::optional<int64_t> position = plan_.source.mesh().Position(executor_.program().rank);
  for (const LogicalContent& content : contents) {
    if (position) content.Fill(plan_.source, *position, source_.data());
    target_.Paint();
    RETURN_IF_ERROR(Execute().status());
    CheckSide(content, plan_.source, source_, "source (it must not change)", report);
    CheckSide(content, plan_.target, target_, "target", report);
  }
  return absl::OkStatus();
}

void RankRun::CheckSide(const LogicalContent& content, const Layout& layout, Painted& memory, absl::string_view name,
                        RankReport& report) {
  const int64_t device = executor_.program().rank;
  if (const std::optional<int64_t> position = layout.mesh().Position(device)) {
    int64_t first = 0;
    const int64_t wrong = content.CountMismatches(layout, *position, memory.data(), &first);
    if (wrong > 0) {
      AddMismatches(
          wrong, absl::StrCat("device ", device, ": element ", IndexText(layout, first), " of the ", name, " is wrong"),
          report);
    }
    report.elements_checked += NumElements(layout.LocalShape(*position));
  }
  if (!memory.MarginsIntact()) {
    AddMismatches(1, absl::StrCat("device ", device, ": memory beside the ", name, " was written to"), report);
  }
}

namespace {

// What may be refused on one rank alone; the others are told.
absl::StatusOr<std::shared_ptr<const Program>> Prepare(const Plan& plan, const Communicator& comm,
                                                       const RunOptions& options) {
  if (options.repeat < 0) return absl::InvalidArgumentError("a negative number of repetitions");
  if (options.fresh) return absl::InvalidArgumentError("fresh destinations are timed on in-process ranks only");
  RETURN_IF_ERROR(comm.CheckRanksOf(plan.source.mesh()));
  RETURN_IF_ERROR(comm.CheckRanksOf(plan.target.mesh()));
  const int64_t limit = MemoryLimit(), fragments = MemoryNeeded(plan, comm.rank());
  RETURN_IF_ERROR(CheckMemory(fragments, limit));
  ASSIGN_OR_RETURN(Program program,
                   CompileProgram(plan, comm.rank(), {comm.copies(), comm.copies() != CopyFor::kPull}));
  RETURN_IF_ERROR(CheckMemory(CheckedAdd(fragments, program.MemoryBytes()).value_or(limit + 1), limit));
  return std::make_shared<const Program>(std::move(program));
}

absl::StatusOr<RankReport> RunOnRank(const Plan& plan, Communicator& comm, const RunOptions& options) {
  const absl::StatusOr<std::shared_ptr<const Program>> program = Prepare(plan, comm, options);
  Signature call;
  if (program.ok()) {
    std::vector<Signature::Field> fields = (*program)->signature.fields;
    fields.push_back({"repetitions", absl::StrCat(options.repeat)});
    fields.push_back({"verification", options.verify ? "on" : "off"});
    call = Signature(std::move(fields));
  }
  RETURN_IF_ERROR(comm.Agree(program.status(), call));

  ASSIGN_OR_RETURN(Executor executor, Executor::Create(*program, &comm, DefaultAgreement()));
  RankRun run(plan, executor);
  absl::Status ready = run.Allocate();
  absl::StatusOr<std::vector<LogicalContent>> contents = std::vector<LogicalContent>();
  if (ready.ok() && options.verify) contents = ContentsFor(plan);
  if (ready.ok()) ready = contents.status();
  RETURN_IF_ERROR(comm.Agree(ready, call));

  RankReport report;
  ASSIGN_OR_RETURN(const ExecuteResult first, run.Execute());
  report.moved = first.moved;
  RETURN_IF_ERROR(run.Verify(*contents, report));
  for (int64_t i = 0; i < options.repeat; ++i) {
    RETURN_IF_ERROR(comm.Barrier());
    ASSIGN_OR_RETURN(const ExecuteResult executed, run.Execute());
    report.seconds.push_back(executed.seconds);
  }
  RETURN_IF_ERROR(comm.Barrier());
  return report;
}

}  // namespace
}  // namespace self_test

absl::StatusOr<RankReport> RunPlanOnRank(const Plan& plan, Communicator& communicator, const RunOptions& options) {
  return status::NoThrow("running a plan", [&] { return self_test::RunOnRank(plan, communicator, options); });
}

}  // namespace reshard
