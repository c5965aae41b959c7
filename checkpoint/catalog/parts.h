// Files that are numbered parts of one checkpoint, by their names.
#ifndef RESHARD_CHECKPOINT_CATALOG_PARTS_H_
#define RESHARD_CHECKPOINT_CATALOG_PARTS_H_

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

#include "absl/types/span.h"

namespace reshard::catalog {

// "model-00002-of-00009.safetensors" is part 2 of 9 of the series "model-?-of-00009.safetensors"; of
// "shard-00003-model-00002-of-00009.safetensors" the shard is 3. "consolidated.01.pth" and "model.rank_1.pt" are parts
// of an unknown number.
struct PartName {
  std::string series;
  int64_t number = 0;
  int64_t count = 0;  // 0: not known
  int64_t shard = 0;  // 0: not a shard
};
std::optional<PartName> ParsePartName(std::string_view name);

// What of the series that these files belong to is missing, as the end of a sentence: "2 of 9 parts are here; missing
// are model-00001-of-00009.safetensors, ..."; empty where nothing is. Files that are not parts do not count.
std::string MissingParts(absl::Span<const std::string> names);

// Where `name` is a part, in a directory with these files, and others of its series are there, too: "it is one of 8
// parts, consolidated.00.pth to consolidated.07.pth"; empty otherwise.
std::string OtherParts(std::string_view name, absl::Span<const std::string> names);

}  // namespace reshard::catalog

#endif  // RESHARD_CHECKPOINT_CATALOG_PARTS_H_
