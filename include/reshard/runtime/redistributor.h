// Redistributes tensors in one call: plans and compiles, or finds what it prepared before, then executes. A job that
// moves tensors repeatedly keeps one Redistributor per rank.
//
//   Redistributor redistributor(&communicator);
//   auto prepared = redistributor.Prepare({source_layout, target_layout, DType::kF32});
//   ... (*prepared)->target() has the shape of the output ...
//   redistributor.Run(prepared, {source_view}, {target_view});
//
// Preparing is local. Running is collective, even for a rank whose problem could not be prepared: it tells the others,
// so that all get an error instead of waiting.
#ifndef RESHARD_RUNTIME_REDISTRIBUTOR_H_
#define RESHARD_RUNTIME_REDISTRIBUTOR_H_

#include <cstdint>
#include <list>
#include <memory>
#include <mutex>
#include <optional>
#include <utility>
#include <vector>

#include "absl/container/flat_hash_map.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/types/span.h"
#include "reshard/planner/plan.h"
#include "reshard/planner/problem.h"
#include "reshard/runtime/communicator.h"
#include "reshard/runtime/executor.h"
#include "reshard/runtime/tensor_view.h"

namespace reshard {

// Options of a Redistributor.
struct RedistributorOptions {
  Agreement agreement = DefaultAgreement();  // whether ranks compare calls before data moves
  PlanOptions plan;                          // for every plan
  // Number of prepared problems to keep; the least recently used are forgotten first.
  int64_t cache_entries = 1024;
  // A batch is split into exchanges whose tensors have at most this many bytes per rank, unless a single tensor has
  // more. With plan.memory_limit_bytes, the memory that an exchange needs is kept within that too. See BatchOptions.
  int64_t batch_bytes = int64_t{256} << 20;
};

// A planned and compiled problem or batch: one or more executors, one per bucket, that run one after the other.
class PreparedProblem {
 public:
  // Number of tensors.
  int64_t tensors() const { return tensors_; }
  // Shape and dtype of this rank's fragment of tensor t before the move, under the problem's source.
  const Buffer& source(int64_t t = 0) const;
  // Shape and dtype of this rank's fragment of tensor t after the move, under the problem's target.
  const Buffer& target(int64_t t = 0) const;
  // Whether a plan flattens dimensions that a problem's layouts keep apart. If so, the elements of a view must be
  // evenly spaced across these.
  bool flattens() const { return ends_ != nullptr; }
  // Signature of its memory limit and all its programs together; this is what ranks compare.
  const Signature& signature() const { return signature_; }

 private:
  friend class Redistributor;
  struct Bucket {
    int64_t first = 0;
    std::unique_ptr<Executor> executor;
  };
  std::vector<Bucket> buckets_;
  std::vector<std::pair<size_t, int64_t>> place_;  // tensor -> bucket, index in the bucket
  // Source and target of each tensor as callers pass them; null if the programs use the same shapes.
  struct Ends;
  std::shared_ptr<const Ends> ends_;
  int64_t tensors_ = 0;
  Signature signature_;
};

// What the caller knows about the views that it passes.
enum class ViewsAre {
  kAny,           // nothing: they are checked
  kFreshTargets,  // the targets are new memory, which overlaps nothing
  kChecked,       // Redistributor::Check has accepted exactly these views for this problem
};

// Plans, programs and executors of one rank. Prepare may be called from any thread; see Run for calls that communicate.
class Redistributor {
 public:
  // `communicator` must outlive the redistributor.
  explicit Redistributor(Communicator* communicator, RedistributorOptions options = {});

  // What its executors run on.
  Communicator& communicator() const { return *communicator_; }
  // The options that it was made with, except for the topology: see SetTopology.
  const RedistributorOptions& options() const { return options_; }

  // From now on plans for this network, and forgets what was prepared for a different one; a caller that still holds
  // such a problem may run it. Ranks whose networks differ get an error from Run, as for any other difference. Any
  // thread.
  void SetTopology(const Topology& topology);

  // Plans and compiles, or finds what was prepared before, which costs one lookup and no allocation. Device ids of the
  // layouts are ranks of the communicator.
  // InvalidArgument: shapes that differ, a mesh with devices that the communicator does not have. Otherwise the errors
  // of MakePlan and CompileProgram.
  absl::StatusOr<std::shared_ptr<PreparedProblem>> Prepare(const Problem& problem);
  // The same for many tensors that share exchanges, each between any two meshes. PlanBatch decides on their buckets and
  // senders. `memory_limit_bytes`, if given, replaces options().plan.memory_limit_bytes: it limits what a bucket needs
  // on a device for its sources, targets and staging together. Ranks that pass different limits disagree.
  // InvalidArgument also for an empty batch or a negative limit, ResourceExhausted for a single tensor that needs more.
  absl::StatusOr<std::shared_ptr<PreparedProblem>> PrepareBatch(
      absl::Span<const Problem> problems, std::optional<int64_t> memory_limit_bytes = std::nullopt);

  // Whether the views fit what was prepared: OK, or an InvalidArgument error of Executor::Execute. Local.
  absl::Status Check(const PreparedProblem& prepared, absl::Span<const ConstTensorView> sources,
                     absl::Span<const TensorView> targets, ViewsAre views = ViewsAre::kAny) const;

  // Executes what was prepared. Collective. A rank that has an error instead passes that, and every rank returns an
  // error about it. Post-conditions and errors: see Executor::Execute.
  absl::StatusOr<ExecuteResult> Run(const absl::StatusOr<std::shared_ptr<PreparedProblem>>& prepared,
                                    absl::Span<const ConstTensorView> sources, absl::Span<const TensorView> targets,
                                    ViewsAre views = ViewsAre::kAny);

  // Number of prepared problems in the cache.
  int64_t cached() const;

 private:
  // The problems and the memory limit of their batch.
  using Key = std::pair<absl::Span<const Problem>, std::optional<int64_t>>;
  struct Entry {
    std::vector<Problem> problems;
    std::optional<int64_t> memory_limit_bytes;
    std::shared_ptr<PreparedProblem> prepared;
    Key key() const { return {problems, memory_limit_bytes}; }
  };

  absl::StatusOr<std::shared_ptr<PreparedProblem>> Build(absl::Span<const Problem> problems,
                                                         std::optional<int64_t> memory_limit_bytes);
  // Memory for views in the shapes of the programs, for when the caller's views have different shapes.
  struct MergedViews {
    std::vector<ConstTensorView> sources;
    std::vector<TensorView> targets;
  };
  // As Check; brings the views into the shapes of the programs.
  absl::Status CheckAndMerge(const PreparedProblem& prepared, ViewsAre views, MergedViews& merged,
                             absl::Span<const ConstTensorView>& sources, absl::Span<const TensorView>& targets) const;

  Communicator* communicator_;
  RedistributorOptions options_;
  mutable std::mutex mutex_;
  std::list<Entry> entries_;                                          // the most recently used first; guarded by mutex_
  absl::flat_hash_map<Key, std::list<Entry>::iterator> by_problems_;  // keys point into entries_
};

}  // namespace reshard

#endif  // RESHARD_RUNTIME_REDISTRIBUTOR_H_
