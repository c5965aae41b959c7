#include "reshard/checkpoint/recorded_layouts.h"

#include <optional>

#include "checkpoint/job/sidecar_match.h"

namespace reshard {

absl::StatusOr<std::map<std::string, RecordedLayout>> ReadRecordedLayouts(const Catalog& catalog,
                                                                          const CatalogLimits& limits) {
  std::map<std::string, RecordedLayout> layouts;
  const absl::StatusOr<std::optional<Sidecar>> sidecar = ReadSidecar(catalog, limits);
  if (!sidecar.ok()) return sidecar.status();
  if (!*sidecar) return layouts;
  if (const auto matched = MatchSidecar(**sidecar, catalog, limits); !matched.ok()) return matched.status();
  for (const Sidecar::Tensor& tensor : (*sidecar)->tensors) {
    if (!tensor.layout.empty()) layouts[tensor.name] = {tensor.mesh, tensor.layout};
  }
  return layouts;
}

}  // namespace reshard
