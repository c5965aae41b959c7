#include "reshard/runtime/redistributor.h"

#include <algorithm>
#include <chrono>
#include <cstddef>

#include "absl/container/flat_hash_map.h"
#include "absl/container/flat_hash_set.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "reshard/layout/text.h"
#include "reshard/planner/batch.h"
#include "reshard/planner/planner.h"
#include "reshard/runtime/program.h"
#include "runtime/execute/merged_views.h"
#include "status/log.h"
#include "status/macros.h"
#include "status/no_throw.h"
#include "status/view.h"

namespace reshard {
namespace {

absl::StatusOr<BatchPlan> PlanAll(absl::Span<const Problem> problems, const PlanOptions& options, int64_t batch_bytes,
                                  const Communicator& comm) {
  absl::flat_hash_set<Mesh> checked;
  for (size_t i = 0; i < problems.size(); ++i) {
    for (const Mesh* mesh : {&problems[i].source.mesh(), &problems[i].target.mesh()}) {
      if (!checked.insert(*mesh).second) continue;
      const absl::Status status = comm.CheckRanksOf(*mesh);
      if (status.ok()) continue;
      if (problems.size() == 1) return status;
      return absl::Status(status.code(), absl::StrCat("tensor ", i, ": ", status.message()));
    }
  }
  if (problems.size() > 1) return PlanBatch(problems, {options, std::max<int64_t>(0, batch_bytes)});
  // One tensor has no other to share with, and its errors need no name.
  absl::StatusOr<Plan> plan = MakePlan(problems[0], options);
  if (!plan.ok()) return plan.status();
  BatchPlan out;
  out.plans.push_back(*std::move(plan));
  out.tensors.push_back({0, 0, 0});
  out.buckets.push_back({0, 1, 0, 0, 0, {}});
  return out;
}

// One line per distinct plan, but no more than a log can take.
void LogPlans(const BatchPlan& batch, int64_t rank) {
  constexpr size_t kMost = 20;
  if (batch.tensors.size() > 1) {
    RESHARD_LOG(kInfo, "rank ", rank, " plans ", batch.tensors.size(), " tensors with ", batch.plans.size(),
                " distinct plans in ", batch.buckets.size(), " rounds");
  }
  for (size_t p = 0; p < std::min(kMost, batch.plans.size()); ++p) {
    const Plan& plan = batch.plans[p];
    const auto name = [](std::string* out, const Step& step) { absl::StrAppend(out, status::View(Name(step.op))); };
    RESHARD_LOG(kInfo, "rank ", rank, " plans ", ToString(plan.source), " to ", ToString(plan.target), ": ",
                plan.steps.empty() ? "nothing to do" : absl::StrJoin(plan.steps, ", ", name),
                "; a device receives at most ", plan.totals.recv_bytes_max, " bytes, ",
                status::View(Name(plan.certificate.kind)));
  }
}

}  // namespace

struct PreparedProblem::Ends {
  std::vector<execute::CallersEnd> sources, targets;  // one each per tensor
};

const Buffer& PreparedProblem::source(int64_t t) const {
  if (ends_ != nullptr) return ends_->sources[static_cast<size_t>(t)].buffer;
  const auto [bucket, index] = place_[t];
  return buckets_[bucket].executor->program().source(index);
}

const Buffer& PreparedProblem::target(int64_t t) const {
  if (ends_ != nullptr) return ends_->targets[static_cast<size_t>(t)].buffer;
  const auto [bucket, index] = place_[t];
  return buckets_[bucket].executor->program().target(index);
}

Redistributor::Redistributor(Communicator* communicator, RedistributorOptions options)
    : communicator_(communicator), options_(std::move(options)) {}

void Redistributor::SetTopology(const Topology& topology) {
  const std::lock_guard<std::mutex> lock(mutex_);
  if (topology == options_.plan.topology) return;
  options_.plan.topology = topology;
  by_problems_.clear();  // before the entries that its keys point into
  entries_.clear();
}

absl::StatusOr<std::shared_ptr<PreparedProblem>> Redistributor::Prepare(const Problem& problem) {
  return PrepareBatch({&problem, 1});
}

absl::StatusOr<std::shared_ptr<PreparedProblem>> Redistributor::PrepareBatch(
    absl::Span<const Problem> problems, std::optional<int64_t> memory_limit_bytes) {
  if (problems.empty()) return absl::InvalidArgumentError("a batch needs at least one tensor");
  return status::NoThrow("preparing a redistribution", [&]() -> absl::StatusOr<std::shared_ptr<PreparedProblem>> {
    const std::lock_guard<std::mutex> lock(mutex_);
    const auto found = by_problems_.find(Key(problems, memory_limit_bytes));
    if (found != by_problems_.end()) {
      entries_.splice(entries_.begin(), entries_, found->second);
      return found->second->prepared;
    }
    absl::StatusOr<std::shared_ptr<PreparedProblem>> built = Build(problems, memory_limit_bytes);
    if (!built.ok()) return built;
    entries_.push_front({{problems.begin(), problems.end()}, memory_limit_bytes, *built});
    by_problems_[entries_.front().key()] = entries_.begin();
    if (static_cast<int64_t>(entries_.size()) > std::max<int64_t>(1, options_.cache_entries)) {
      by_problems_.erase(entries_.back().key());
      entries_.pop_back();
    }
    return built;
  });
}

absl::StatusOr<std::shared_ptr<PreparedProblem>> Redistributor::Build(absl::Span<const Problem> problems,
                                                                      std::optional<int64_t> memory_limit_bytes) {
  auto prepared = std::make_shared<PreparedProblem>();
  prepared->tensors_ = static_cast<int64_t>(problems.size());
  PlanOptions options = options_.plan;
  if (memory_limit_bytes) options.memory_limit_bytes = memory_limit_bytes;
  ASSIGN_OR_RETURN(const BatchPlan batch, PlanAll(problems, options, options_.batch_bytes, *communicator_));
  if (status::Logs(status::LogLevel::kInfo)) LogPlans(batch, communicator_->rank());
  // Tensors of one plan that start at the same holders share a program.
  absl::flat_hash_map<std::pair<int64_t, int64_t>, std::shared_ptr<const Program>> compiled;
  std::vector<std::shared_ptr<const Program>> each;
  for (size_t t = 0; t < batch.tensors.size(); ++t) {
    const BatchTensor& tensor = batch.tensors[t];
    std::shared_ptr<const Program>& program = compiled[{tensor.plan, tensor.first_holder}];
    if (program == nullptr) {
      absl::StatusOr<Program> one =
          CompileProgram(batch.PlanOf(static_cast<int64_t>(t)), communicator_->rank(),
                         {communicator_->copies(), communicator_->copies() != CopyFor::kPull});
      if (!one.ok()) {
        if (problems.size() == 1) return one.status();
        return absl::Status(one.status().code(), absl::StrCat("tensor ", t, ": ", one.status().message()));
      }
      program = std::make_shared<const Program>(*std::move(one));
    }
    each.push_back(program);
  }
  const auto flattens = [](const Problem& problem) { return problem.source.flattens() || problem.target.flattens(); };
  if (std::any_of(problems.begin(), problems.end(), flattens)) {
    auto ends = std::make_shared<PreparedProblem::Ends>();
    for (size_t t = 0; t < problems.size(); ++t) {
      const Plan& plan = batch.plans[static_cast<size_t>(batch.tensors[t].plan)];
      ends->sources.emplace_back(problems[t].source, plan.source, each[t]->source(), communicator_->rank());
      ends->targets.emplace_back(problems[t].target, plan.target, each[t]->target(), communicator_->rank());
    }
    prepared->ends_ = std::move(ends);
  }
  const std::optional<int64_t>& limit = options.memory_limit_bytes;
  std::vector<Signature::Field> fields = {{"memory limit", limit ? absl::StrCat(*limit, " bytes") : "none"}};
  // Every rank plans the same batch, so every rank cuts alike.
  for (const BatchBucket& bucket : batch.buckets) {
    const auto first = static_cast<size_t>(bucket.first), end = first + static_cast<size_t>(bucket.count);
    std::shared_ptr<const Program> program = each[first];
    if (end - first > 1) {
      std::vector<const Program*> list;
      for (size_t i = first; i < end; ++i) list.push_back(each[i].get());
      ASSIGN_OR_RETURN(Program merged, MergePrograms(list));
      program = std::make_shared<const Program>(std::move(merged));
    }
    for (const Signature::Field& field : program->signature.fields) fields.push_back(field);
    // Agreement is on the whole batch, before the first bucket.
    ASSIGN_OR_RETURN(Executor executor, Executor::Create(std::move(program), communicator_, Agreement::kOff));
    for (size_t i = first; i < end; ++i) {
      prepared->place_.emplace_back(prepared->buckets_.size(), static_cast<int64_t>(i - first));
    }
    prepared->buckets_.push_back({static_cast<int64_t>(first), std::make_unique<Executor>(std::move(executor))});
  }
  prepared->signature_ = Signature(std::move(fields));
  return prepared;
}

absl::Status Redistributor::Check(const PreparedProblem& prepared, absl::Span<const ConstTensorView> sources,
                                  absl::Span<const TensorView> targets, ViewsAre views) const {
  MergedViews merged;
  return CheckAndMerge(prepared, views, merged, sources, targets);
}

absl::Status Redistributor::CheckAndMerge(const PreparedProblem& prepared, ViewsAre views, MergedViews& merged,
                                          absl::Span<const ConstTensorView>& sources,
                                          absl::Span<const TensorView>& targets) const {
  if (sources.size() != targets.size() || static_cast<int64_t>(sources.size()) != prepared.tensors()) {
    return absl::InvalidArgumentError(absl::StrCat("prepared for ", prepared.tensors(), " tensors, got ",
                                                   sources.size(), " sources and ", targets.size(), " targets"));
  }
  if (views == ViewsAre::kChecked && !prepared.flattens()) return absl::OkStatus();
  return status::NoThrow("checking the tensors", [&]() -> absl::Status {
    for (size_t t = 0; t < sources.size() && prepared.flattens(); ++t) {
      const std::string which = sources.size() == 1 ? "" : absl::StrCat(" of tensor ", t);
      const PreparedProblem::Ends& ends = *prepared.ends_;
      ASSIGN_OR_RETURN(ConstTensorView source,
                       execute::MergedView(ends.sources[t], sources[t], absl::StrCat("source", which)));
      ASSIGN_OR_RETURN(const ConstTensorView target,
                       execute::MergedView(ends.targets[t], targets[t], absl::StrCat("target", which)));
      merged.sources.push_back(std::move(source));
      merged.targets.push_back(targets[t]);
      merged.targets.back().shape = target.shape;
      merged.targets.back().strides = target.strides;
    }
    if (prepared.flattens()) {
      sources = merged.sources;
      targets = merged.targets;
    }
    if (views == ViewsAre::kChecked) return absl::OkStatus();
    for (const PreparedProblem::Bucket& bucket : prepared.buckets_) {
      const auto first = static_cast<size_t>(bucket.first);
      const auto count = static_cast<size_t>(bucket.executor->program().tensors);
      RETURN_IF_ERROR(bucket.executor->Check(sources.subspan(first, count), targets.subspan(first, count),
                                             views == ViewsAre::kFreshTargets, bucket.first));
    }
    return absl::OkStatus();
  });
}

absl::StatusOr<ExecuteResult> Redistributor::Run(const absl::StatusOr<std::shared_ptr<PreparedProblem>>& prepared,
                                                 absl::Span<const ConstTensorView> sources,
                                                 absl::Span<const TensorView> targets, ViewsAre views) {
  const auto start = std::chrono::steady_clock::now();
  MergedViews merged;
  const absl::Status own =
      prepared.ok() ? CheckAndMerge(**prepared, views, merged, sources, targets) : prepared.status();
  if (options_.agreement == Agreement::kEveryCall) {
    static const Signature* const kNothing = new Signature;
    if (!own.ok()) return communicator_->Agree(own, *kNothing);
    Executor& first = *(*prepared)->buckets_[0].executor;
    RETURN_IF_ERROR(
        first.AgreeBefore(sources.subspan(0, static_cast<size_t>(first.program().tensors)), (*prepared)->signature()));
  } else if (!own.ok()) {
    return own;
  }
  ExecuteResult result;
  for (const PreparedProblem::Bucket& bucket : (*prepared)->buckets_) {
    const auto first = static_cast<size_t>(bucket.first);
    const auto count = static_cast<size_t>(bucket.executor->program().tensors);
    ASSIGN_OR_RETURN(ExecuteResult part,
                     bucket.executor->ExecuteChecked(sources.subspan(first, count), targets.subspan(first, count)));
    result.moved += part.moved;
  }
  const std::chrono::duration<double> seconds = std::chrono::steady_clock::now() - start;
  result.seconds = seconds.count();
  return result;
}

int64_t Redistributor::cached() const {
  const std::lock_guard<std::mutex> lock(mutex_);
  return static_cast<int64_t>(entries_.size());
}

}  // namespace reshard
