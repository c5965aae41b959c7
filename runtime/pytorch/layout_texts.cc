#include "runtime/pytorch/layout_texts.h"

#include <string>
#include <utility>

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

// State: layouts by the text of the mesh, then by their own. Invariant: layouts over one mesh text share one mesh.
class Known {
 public:
  absl::StatusOr<Layout> Find(std::string_view mesh, std::string_view layout) {
    const status::MutexLock lock(mutex_);
    const auto known = meshes_.find(status::View(mesh));
    if (known != meshes_.end()) {
      const auto found = known->second.layouts.find(status::View(layout));
      if (found != known->second.layouts.end()) return found->second;
    }
    ASSIGN_OR_RETURN(OverMesh* const over, Over(mesh));
    absl::StatusOr<Layout> parsed = ParseLayout(layout, over->mesh);
    if (parsed.ok()) over->layouts.emplace(layout, *parsed);
    return parsed;
  }

  absl::StatusOr<std::string> Add(std::string_view mesh, absl::FunctionRef<absl::StatusOr<Layout>(const Mesh&)> make) {
    const status::MutexLock lock(mutex_);
    ASSIGN_OR_RETURN(OverMesh* const over, Over(mesh));
    ASSIGN_OR_RETURN(Layout layout, make(over->mesh));
    std::string text = ToString(layout);
    over->layouts.emplace(text, std::move(layout));
    return text;
  }

 private:
  struct OverMesh {
    Mesh mesh;
    absl::flat_hash_map<std::string, Layout> layouts;
  };

  // The layouts over this mesh, to which one may be added.
  absl::StatusOr<OverMesh*> Over(std::string_view mesh) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_) {
    if (++added_ > kMostTexts) {
      meshes_.clear();
      added_ = 1;
    }
    auto over = meshes_.find(status::View(mesh));
    if (over == meshes_.end()) {
      ASSIGN_OR_RETURN(const Mesh parsed, ParseMesh(mesh));
      over = meshes_.emplace(mesh, OverMesh{parsed, {}}).first;
    }
    return &over->second;
  }

  status::Mutex mutex_;
  size_t added_ ABSL_GUARDED_BY(mutex_) = 0;  // since the maps were last empty
  absl::flat_hash_map<std::string, OverMesh> meshes_ ABSL_GUARDED_BY(mutex_);
};

Known& AllKnown() {
  // Never destroyed: threads of the process may still be in a call when statics go.
  static Known* const known = new Known;
  return *known;
}

}  // namespace

absl::StatusOr<Layout> LayoutOf(std::string_view mesh, std::string_view layout) {
  return AllKnown().Find(mesh, layout);
}

absl::StatusOr<std::string> TextOf(std::string_view mesh, absl::FunctionRef<absl::StatusOr<Layout>(const Mesh&)> make) {
  return AllKnown().Add(mesh, make);
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
