#include "reshard/runtime/redistributor.h"

#include <algorithm>
#include <chrono>
#include <cstddef>

#include "absl/strings/str_cat.h"
#include "planner/layout/no_throw.h"
#include "reshard/layout/text.h"
#include "reshard/planner/batch.h"
#include "reshard/planner/planner.h"
#include "reshard/runtime/program.h"

namespace reshard {
namespace {

// The parts are set apart by bytes that no text form contains. A problem that equals the one before it takes one byte:
// the tensors of a batch have few shapes.
void AppendKey(const Problem& problem, const Problem* before, std::string* key) {
  const bool same_mesh = before != nullptr && problem.mesh == before->mesh && problem.dtype == before->dtype &&
                         problem.target_mesh == before->target_mesh;
  if (same_mesh && problem.source == before->source && problem.target == before->target) {
    key->push_back('\2');
    return;
  }
  key->append(problem.source);
  key->push_back('\0');
  key->append(problem.target);
  if (same_mesh) {
    key->push_back('\1');
    return;
  }
  key->push_back('\0');
  key->append(problem.mesh);
  key->push_back('\0');
  key->append(problem.target_mesh);
  key->push_back('\0');
  key->push_back(static_cast<char>(problem.dtype));
}

absl::StatusOr<BatchProblem> ParseProblem(const Problem& problem, const Communicator& comm) {
  absl::StatusOr<Mesh> mesh = ParseMesh(problem.mesh);
  if (!mesh.ok()) return mesh.status();
  auto source_mesh = std::make_shared<const Mesh>(*std::move(mesh));
  auto target_mesh = source_mesh;
  if (!problem.target_mesh.empty()) {
    absl::StatusOr<Mesh> other = ParseMesh(problem.target_mesh);
    if (!other.ok()) return other.status();
    target_mesh = std::make_shared<const Mesh>(*std::move(other));
  }
  for (const Mesh* each : {source_mesh.get(), target_mesh.get()}) {
    for (int64_t position = 0; position < each->size(); ++position) {
      if (comm.has_rank(each->Device(position))) continue;
      return absl::InvalidArgumentError(absl::StrCat("mesh ", ToString(*each), " has device ", each->Device(position),
                                                     ", which is none of the ", comm.world_size(), " ranks"));
    }
  }
  absl::StatusOr<Layout> source = ParseLayout(problem.source, source_mesh);
  if (!source.ok()) return source.status();
  absl::StatusOr<Layout> target = ParseLayout(problem.target, target_mesh);
  if (!target.ok()) return target.status();
  return BatchProblem{"", *std::move(source), *std::move(target), problem.dtype};
}

absl::StatusOr<BatchPlan> PlanAll(absl::Span<const Problem> problems, const RedistributorOptions& options,
                                  const Communicator& comm) {
  // Tensors of one problem share its plan: a model has few shapes.
  absl::flat_hash_map<std::string, int64_t> known;
  std::vector<BatchProblem> distinct;
  std::vector<int64_t> which;
  which.reserve(problems.size());
  std::string key;
  for (size_t i = 0; i < problems.size(); ++i) {
    key.clear();
    AppendKey(problems[i], nullptr, &key);
    const auto [found, added] = known.emplace(key, static_cast<int64_t>(distinct.size()));
    which.push_back(found->second);
    if (!added) continue;
    absl::StatusOr<BatchProblem> parsed = ParseProblem(problems[i], comm);
    if (!parsed.ok()) {
      if (problems.size() == 1) return parsed.status();
      return absl::Status(parsed.status().code(), absl::StrCat("tensor ", i, ": ", parsed.status().message()));
    }
    distinct.push_back(*std::move(parsed));
  }
  if (problems.size() == 1) {
    // One tensor has nobody to share with, and its errors need no name.
    absl::StatusOr<Plan> plan = MakePlan(distinct[0].source, distinct[0].target, distinct[0].dtype, options.plan);
    if (!plan.ok()) return plan.status();
    BatchPlan out;
    out.plans.push_back(*std::move(plan));
    out.tensors.push_back({0, 0, 0});
    out.buckets.push_back({0, 1, 0, 0, 0, {}});
    return out;
  }
  return PlanBatch(distinct, which, {}, {options.plan, std::max<int64_t>(0, options.batch_bytes)});
}

}  // namespace

const Buffer& PreparedProblem::source(int64_t t) const {
  const auto [bucket, index] = place_[static_cast<size_t>(t)];
  return buckets_[bucket].executor->program().source(index);
}

const Buffer& PreparedProblem::target(int64_t t) const {
  const auto [bucket, index] = place_[static_cast<size_t>(t)];
  return buckets_[bucket].executor->program().target(index);
}

Redistributor::Redistributor(Communicator* communicator, RedistributorOptions options)
    : communicator_(communicator), options_(std::move(options)) {}

absl::StatusOr<std::shared_ptr<PreparedProblem>> Redistributor::Prepare(const Problem& problem) {
  return PrepareBatch({&problem, 1});
}

absl::StatusOr<std::shared_ptr<PreparedProblem>> Redistributor::PrepareBatch(absl::Span<const Problem> problems) {
  if (problems.empty()) return absl::InvalidArgumentError("a batch needs at least one tensor");
  return NoThrow("preparing a redistribution", [&]() -> absl::StatusOr<std::shared_ptr<PreparedProblem>> {
    const std::lock_guard<std::mutex> lock(mutex_);
    key_.clear();
    for (size_t i = 0; i < problems.size(); ++i) AppendKey(problems[i], i == 0 ? nullptr : &problems[i - 1], &key_);
    const auto found = by_key_.find(key_);
    if (found != by_key_.end()) {
      entries_.splice(entries_.begin(), entries_, found->second);
      return found->second->second;
    }
    absl::StatusOr<std::shared_ptr<PreparedProblem>> built = Build(problems);
    if (!built.ok()) return built;
    entries_.emplace_front(key_, *built);
    by_key_[entries_.front().first] = entries_.begin();
    if (static_cast<int64_t>(entries_.size()) > std::max<int64_t>(1, options_.cache_entries)) {
      by_key_.erase(entries_.back().first);
      entries_.pop_back();
    }
    return built;
  });
}

absl::StatusOr<std::shared_ptr<PreparedProblem>> Redistributor::Build(absl::Span<const Problem> problems) {
  auto prepared = std::make_shared<PreparedProblem>();
  prepared->tensors_ = static_cast<int64_t>(problems.size());
  const absl::StatusOr<BatchPlan> batch = PlanAll(problems, options_, *communicator_);
  if (!batch.ok()) return batch.status();
  // Tensors of one plan that start at the same holders share a program.
  absl::flat_hash_map<std::pair<int64_t, int64_t>, std::shared_ptr<const Program>> compiled;
  std::vector<std::shared_ptr<const Program>> each;
  for (size_t t = 0; t < batch->tensors.size(); ++t) {
    const BatchTensor& tensor = batch->tensors[t];
    std::shared_ptr<const Program>& program = compiled[{tensor.plan, tensor.first_holder}];
    if (program == nullptr) {
      absl::StatusOr<Program> one =
          CompileProgram(batch->PlanOf(static_cast<int64_t>(t)), communicator_->rank(),
                         {communicator_->copies(), communicator_->copies() != CopyFor::kPull});
      if (!one.ok()) {
        if (problems.size() == 1) return one.status();
        return absl::Status(one.status().code(), absl::StrCat("tensor ", t, ": ", one.status().message()));
      }
      program = std::make_shared<const Program>(*std::move(one));
    }
    each.push_back(program);
  }
  std::vector<Signature::Field> fields;
  // Every rank plans the same batch, so every rank cuts alike.
  for (const BatchBucket& bucket : batch->buckets) {
    const auto first = static_cast<size_t>(bucket.first), end = first + static_cast<size_t>(bucket.count);
    std::shared_ptr<const Program> program = each[first];
    if (end - first > 1) {
      std::vector<const Program*> list;
      for (size_t i = first; i < end; ++i) list.push_back(each[i].get());
      absl::StatusOr<Program> merged = MergePrograms(list);
      if (!merged.ok()) return merged.status();
      program = std::make_shared<const Program>(*std::move(merged));
    }
    for (const Signature::Field& field : program->signature.fields) fields.push_back(field);
    // Agreement is on the whole batch, before the first bucket.
    absl::StatusOr<Executor> executor = Executor::Create(std::move(program), communicator_, Agreement::kOff);
    if (!executor.ok()) return executor.status();
    for (size_t i = first; i < end; ++i) {
      prepared->place_.emplace_back(prepared->buckets_.size(), static_cast<int64_t>(i - first));
    }
    prepared->buckets_.push_back({static_cast<int64_t>(first), std::make_unique<Executor>(*std::move(executor))});
  }
  prepared->signature_ = Signature(std::move(fields));
  return prepared;
}

absl::Status Redistributor::Check(const PreparedProblem& prepared, absl::Span<const ConstTensorView> sources,
                                  absl::Span<const TensorView> targets, ViewsAre views) const {
  if (sources.size() != targets.size() || static_cast<int64_t>(sources.size()) != prepared.tensors()) {
    return absl::InvalidArgumentError(absl::StrCat("prepared for ", prepared.tensors(), " tensors, got ",
                                                   sources.size(), " sources and ", targets.size(), " targets"));
  }
  if (views == ViewsAre::kChecked) return absl::OkStatus();
  return NoThrow("checking the tensors", [&] {
    for (const PreparedProblem::Bucket& bucket : prepared.buckets_) {
      const auto first = static_cast<size_t>(bucket.first);
      const auto count = static_cast<size_t>(bucket.executor->program().tensors);
      const absl::Status checked = bucket.executor->Check(sources.subspan(first, count), targets.subspan(first, count),
                                                          views == ViewsAre::kFreshTargets);
      if (!checked.ok()) return checked;
    }
    return absl::OkStatus();
  });
}

absl::StatusOr<ExecuteResult> Redistributor::Run(const absl::StatusOr<std::shared_ptr<PreparedProblem>>& prepared,
                                                 absl::Span<const ConstTensorView> sources,
                                                 absl::Span<const TensorView> targets, ViewsAre views) {
  const auto start = std::chrono::steady_clock::now();
  const absl::Status own = prepared.ok() ? Check(**prepared, sources, targets, views) : prepared.status();
  if (options_.agreement == Agreement::kEveryCall) {
    static const Signature* const kNothing = new Signature;
    const absl::Status agreed = communicator_->Agree(own, own.ok() ? (*prepared)->signature() : *kNothing);
    if (!agreed.ok()) return agreed;
  } else if (!own.ok()) {
    return own;
  }
  ExecuteResult result;
  for (const PreparedProblem::Bucket& bucket : (*prepared)->buckets_) {
    const auto first = static_cast<size_t>(bucket.first);
    const auto count = static_cast<size_t>(bucket.executor->program().tensors);
    absl::StatusOr<ExecuteResult> part =
        bucket.executor->ExecuteChecked(sources.subspan(first, count), targets.subspan(first, count));
    if (!part.ok()) return part.status();
    result.moved += part->moved;
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
