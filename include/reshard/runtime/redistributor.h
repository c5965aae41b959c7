// Redistributing tensors in one call: plans, compiles and remembers, then executes. What a program that moves tensors
// again and again holds on to, one a rank.
//
//   Redistributor redistributor(&communicator);
//   auto executor = redistributor.Prepare({"{X:4}", "[<X>1024, 512]", "[1024, <X>512]", "", DType::kF32});
//   ... executor->program().target() has the shape of the output ...
//   redistributor.Run(executor, source, target);
//
// Preparing is local. Running is collective, also for a rank whose problem could not be prepared: it tells the others,
// and all get an error instead of waiting.
#ifndef RESHARD_RUNTIME_REDISTRIBUTOR_H_
#define RESHARD_RUNTIME_REDISTRIBUTOR_H_

#include <cstdint>
#include <list>
#include <memory>
#include <mutex>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "absl/container/flat_hash_map.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/types/span.h"
#include "reshard/layout/dtype.h"
#include "reshard/planner/plan.h"
#include "reshard/runtime/communicator.h"
#include "reshard/runtime/executor.h"
#include "reshard/runtime/tensor_view.h"

namespace reshard {

// One tensor's way, in the text forms of docs/layouts.md. Device ids are ranks of the communicator.
struct Problem {
  std::string_view mesh;
  std::string_view source;
  std::string_view target;
  std::string_view target_mesh;  // empty: the same mesh
  DType dtype = DType::kF32;
};

struct RedistributorOptions {
  Agreement agreement = DefaultAgreement();
  PlanOptions plan;
  // Prepared problems kept, the least recently used are forgotten first.
  int64_t cache_entries = 1024;
  // A batch is cut into exchanges whose tensors have at most so many bytes a rank, unless one tensor alone has more.
  // With plan.memory_limit_bytes what an exchange needs keeps to that, too. See BatchOptions.
  int64_t batch_bytes = int64_t{256} << 20;
};

// One or more executors that run one after the other: a batch cut into buckets.
class PreparedProblem {
 public:
  int64_t tensors() const { return tensors_; }
  // What this rank must bring, and will get, for tensor t.
  const Buffer& source(int64_t t = 0) const;
  const Buffer& target(int64_t t = 0) const;
  const Signature& signature() const { return signature_; }

 private:
  friend class Redistributor;
  struct Bucket {
    int64_t first = 0;
    std::unique_ptr<Executor> executor;
  };
  std::vector<Bucket> buckets_;
  std::vector<std::pair<size_t, int64_t>> place_;  // tensor -> bucket, index in the bucket
  int64_t tensors_ = 0;
  Signature signature_;
};

// What is known of the views that are passed.
enum class ViewsAre {
  kAny,
  kFreshTargets,  // the targets are new memory, which overlaps nothing
  kChecked,       // these very views have passed Redistributor::Check for this problem
};

class Redistributor {
 public:
  // `communicator` must outlive it.
  explicit Redistributor(Communicator* communicator, RedistributorOptions options = {});

  Communicator& communicator() const { return *communicator_; }
  const RedistributorOptions& options() const { return options_; }

  // Plans and compiles, or finds what was prepared before: then it costs one look-up and no allocation.
  // InvalidArgument: bad text, shapes that differ, a mesh with devices that the communicator does not have. Otherwise
  // what MakePlan and CompileProgram report.
  absl::StatusOr<std::shared_ptr<PreparedProblem>> Prepare(const Problem& problem);
  // Many tensors whose exchanges are shared: PlanBatch says which bucket each is in and who sends it.
  absl::StatusOr<std::shared_ptr<PreparedProblem>> PrepareBatch(absl::Span<const Problem> problems);

  // Whether the views fit what was prepared, see Executor::Execute. Local.
  absl::Status Check(const PreparedProblem& prepared, absl::Span<const ConstTensorView> sources,
                     absl::Span<const TensorView> targets, ViewsAre views = ViewsAre::kAny) const;

  // Executes what was prepared; collective. A rank that has an error instead brings that, and every rank returns it.
  // Post-conditions and errors: see Executor::Execute.
  absl::StatusOr<ExecuteResult> Run(const absl::StatusOr<std::shared_ptr<PreparedProblem>>& prepared,
                                    absl::Span<const ConstTensorView> sources, absl::Span<const TensorView> targets,
                                    ViewsAre views = ViewsAre::kAny);

  // Prepared problems that are remembered.
  int64_t cached() const;

 private:
  using Entry = std::pair<std::string, std::shared_ptr<PreparedProblem>>;

  absl::StatusOr<std::shared_ptr<PreparedProblem>> Build(absl::Span<const Problem> problems);

  Communicator* communicator_;
  RedistributorOptions options_;
  mutable std::mutex mutex_;
  std::list<Entry> entries_;  // the most recently used first; guarded by mutex_
  absl::flat_hash_map<std::string_view, std::list<Entry>::iterator> by_key_;  // keys point into entries_
  std::string key_;                                                           // scratch for look-ups
};

}  // namespace reshard

#endif  // RESHARD_RUNTIME_REDISTRIBUTOR_H_
