// The index beside a model in several files, which says what is in which of them.
#ifndef RESHARD_CHECKPOINT_FORMATS_SAFETENSORS_WEIGHT_MAP_H_
#define RESHARD_CHECKPOINT_FORMATS_SAFETENSORS_WEIGHT_MAP_H_

#include <functional>
#include <map>
#include <string>

#include "absl/status/statusor.h"
#include "reshard/checkpoint/catalog.h"

namespace reshard::safetensors {

// tensor -> file, as the index has it.
using WeightMap = std::map<std::string, std::string, std::less<>>;

// The `weight_map` of a `.safetensors.index.json` or `.bin.index.json`. DataLoss: no JSON, or none of that form.
// ResourceExhausted: over a limit. Errors of the system.
absl::StatusOr<WeightMap> ReadWeightMap(const std::string& path, const CatalogLimits& limits);

}  // namespace reshard::safetensors

#endif  // RESHARD_CHECKPOINT_FORMATS_SAFETENSORS_WEIGHT_MAP_H_
