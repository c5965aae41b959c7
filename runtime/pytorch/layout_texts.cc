#include "runtime/pytorch/layout_texts.h"

#include <string>

#include "absl/container/flat_hash_map.h"
#include "absl/strings/str_cat.h"
#include "reshard/layout/text.h"
#include "status/macros.h"
#include "status/mutex.h"
#include "status/view.h"

namespace reshard::pytorch {
namespace {

// A limit, so that a job that makes up new texts forever does not fill the memory with them.
constexpr size_t kMostTexts = 1 << 16;

// State: the parsed layouts, by the text of the mesh, then by that of the layout. Invariant: layouts over one mesh text
// share one mesh.
class Parsed {
 public:
  absl::StatusOr<Layout> Find(std::string_view mesh, std::string_view layout) {
    const status::MutexLock lock(mutex_);
    auto over = meshes_.find(status::View(mesh));
    if (over != meshes_.end()) {
      const auto found = over->second.layouts.find(status::View(layout));
      if (found != over->second.layouts.end()) return found->second;
    }
    if (++parsed_ > kMostTexts) {
      meshes_.clear();
      parsed_ = 1;
      over = meshes_.end();
    }
    if (over == meshes_.end()) {
      ASSIGN_OR_RETURN(const Mesh parsed, ParseMesh(mesh));
      over = meshes_.emplace(mesh, OverMesh{parsed, {}}).first;
    }
    absl::StatusOr<Layout> parsed = ParseLayout(layout, over->second.mesh);
    if (parsed.ok()) over->second.layouts.emplace(layout, *parsed);
    return parsed;
  }

 private:
  struct OverMesh {
    Mesh mesh;
    absl::flat_hash_map<std::string, Layout> layouts;
  };

  status::Mutex mutex_;
  size_t parsed_ ABSL_GUARDED_BY(mutex_) = 0;  // since the maps were last empty
  absl::flat_hash_map<std::string, OverMesh> meshes_ ABSL_GUARDED_BY(mutex_);
};

}  // namespace

absl::StatusOr<Layout> LayoutOf(std::string_view mesh, std::string_view layout) {
  // Never destroyed: threads of the process may still be in a call when statics go.
  static Parsed* const parsed = new Parsed;
  return parsed->Find(mesh, layout);
}

absl::StatusOr<std::vector<Problem>> ProblemsOf(size_t count, absl::FunctionRef<ProblemTexts(size_t)> texts) {
  std::vector<Problem> problems;
  problems.reserve(count);
  ProblemTexts last;
  for (size_t i = 0; i < count; ++i) {
    const ProblemTexts now = texts(i);
    // Neighbors are often alike: the layers of a model have few shapes.
    if (i > 0 && now == last) {
      problems.push_back(problems.back());
      continue;
    }
    const absl::StatusOr<Layout> before = LayoutOf(now.mesh, now.source);
    const absl::StatusOr<Layout> after =
        before.ok() ? LayoutOf(now.target_mesh.empty() ? now.mesh : now.target_mesh, now.target) : before;
    if (!after.ok()) {
      const absl::Status& status = after.status();
      if (count == 1) return status;
      return absl::Status(status.code(), absl::StrCat("tensor ", i, ": ", status.message()));
    }
    problems.push_back({*before, *after, DType::kU8});
    last = now;
  }
  return problems;
}

}  // namespace reshard::pytorch
