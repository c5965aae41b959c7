#include "reshard/checkpoint/recorded_layouts.h"

#include <optional>

#include "checkpoint/job/sidecar_match.h"
#include "planner/layout/no_throw.h"

namespace reshard {
namespace {

using Layouts = std::map<std::string, RecordedLayout>;

absl::StatusOr<Layouts> Read(const Catalog& catalog, const CatalogLimits& limits) {
  Layouts layouts;
  const absl::StatusOr<std::optional<Sidecar>> sidecar = ReadSidecar(catalog, limits);
  if (!sidecar.ok()) return sidecar.status();
  if (!*sidecar) return layouts;
  if (const auto matched = MatchSidecar(**sidecar, catalog, limits); !matched.ok()) return matched.status();
  for (const Sidecar::Tensor& tensor : (*sidecar)->tensors) {
    if (!tensor.layout.empty()) layouts[tensor.name] = {tensor.mesh, tensor.layout};
  }
  return layouts;
}

}  // namespace

absl::StatusOr<Layouts> ReadRecordedLayouts(const Catalog& catalog, const CatalogLimits& limits) {
  return NoThrow("reading a sidecar", [&] { return Read(catalog, limits); });
}

}  // namespace reshard
