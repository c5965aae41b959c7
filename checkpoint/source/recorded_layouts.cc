#include "reshard/checkpoint/recorded_layouts.h"

#include <optional>

#include "checkpoint/source/sidecar_match.h"
#include "status/macros.h"
#include "status/no_throw.h"

namespace reshard {
namespace {

using Layouts = std::map<std::string, RecordedLayout>;

absl::StatusOr<Layouts> Read(const Catalog& catalog, const CatalogLimits& limits) {
  Layouts layouts;
  ASSIGN_OR_RETURN(const std::optional<source::Sidecar> sidecar, source::ReadSidecar(catalog, limits));
  if (!sidecar) return layouts;
  if (const auto matched = source::MatchSidecar(*sidecar, catalog, limits); !matched.ok()) return matched.status();
  for (const source::Sidecar::Tensor& tensor : sidecar->tensors) {
    if (!tensor.layout.empty()) layouts[tensor.name] = {tensor.mesh, tensor.layout};
  }
  return layouts;
}

}  // namespace

absl::StatusOr<Layouts> ReadRecordedLayouts(const Catalog& catalog, const CatalogLimits& limits) {
  return status::NoThrow("reading a sidecar", [&] { return Read(catalog, limits); });
}

}  // namespace reshard
