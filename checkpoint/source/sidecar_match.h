// Checks whether a sidecar belongs to the checkpoint that it is found with.
#ifndef RESHARD_CHECKPOINT_SOURCE_SIDECAR_MATCH_H_
#define RESHARD_CHECKPOINT_SOURCE_SIDECAR_MATCH_H_

#include <cstdint>
#include <optional>
#include <string_view>
#include <utility>

#include "absl/container/flat_hash_map.h"
#include "absl/status/statusor.h"
#include "checkpoint/source/sidecar.h"
#include "reshard/checkpoint/catalog.h"

namespace reshard::source {

// The sidecar in the checkpoint's directory; nothing when there is none. DataLoss: damaged.
absl::StatusOr<std::optional<Sidecar>> ReadSidecar(const Catalog& catalog, const CatalogLimits& limits);

// What a sidecar says of the bytes of a file from a position on. Points into the sidecar.
using HashedChunks = absl::flat_hash_map<std::pair<std::string_view, int64_t>, const Sidecar::Chunk*>;

// The chunks of a sidecar by their place, those without bytes left out, after it is sure that the files which say what
// is where have the hashes that the sidecar says, and, for DCP, that it has a hash of every chunk and byte item.
// DataLoss: they do not (the sidecar is stale, or something is damaged); the sidecar speaks of files or bytes that the
// checkpoint does not have, or of the same ones twice. Reads headers only, none of more than limits.metadata_bytes.
absl::StatusOr<HashedChunks> MatchSidecar(const Sidecar& sidecar, const Catalog& catalog, const CatalogLimits& limits);

}  // namespace reshard::source

#endif  // RESHARD_CHECKPOINT_SOURCE_SIDECAR_MATCH_H_
