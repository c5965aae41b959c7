#include "checkpoint/formats/safetensors/weight_map.h"

#include <utility>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "absl/types/span.h"
#include "checkpoint/io/files.h"
#include "checkpoint/io/show.h"
#include "json/walk.h"
#include "status/macros.h"

namespace reshard::safetensors {

absl::StatusOr<WeightMap> ReadWeightMap(const std::string& path, const CatalogLimits& limits) {
  using Is = json::WalkedValue::Kind;
  ASSIGN_OR_RETURN(auto file, io::ReadFile::Open(path, /*follow_links=*/true));
  auto json = file->ReadAll(limits.metadata_bytes);
  if (!json.ok()) return json.status();
  WeightMap map;
  bool found = false;
  absl::Status walked =
      json::Walk(*json, limits.depth, [&](absl::Span<const json::PathStep> at, const json::WalkedValue& value) {
        if (at.empty()) {
          return value.kind == Is::kObject ? absl::OkStatus() : absl::DataLossError("not a JSON object");
        }
        if (at[0].key != "weight_map") return absl::OkStatus();
        if (at.size() == 1) {
          found = true;
          return value.kind == Is::kObject ? absl::OkStatus() : absl::DataLossError("weight_map is not a JSON object");
        }
        if (value.kind != Is::kString) {
          return absl::DataLossError(absl::StrCat("the file of ", io::Shown(at[1].key), " is not text"));
        }
        map.emplace(at[1].key, std::move(*value.text));
        return absl::OkStatus();
      });
  if (!walked.ok()) {
    const auto code = absl::IsInvalidArgument(walked) ? absl::StatusCode::kDataLoss : walked.code();
    return absl::Status(code, absl::StrCat(path, ": ", walked.message()));
  }
  if (!found) return absl::DataLossError(absl::StrCat(path, ": there is no weight_map"));
  return map;
}

}  // namespace reshard::safetensors
