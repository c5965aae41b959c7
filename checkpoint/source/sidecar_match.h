// Checks that a sidecar belongs to the checkpoint beside it.
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

// The sidecar's chunks by file and by the position where their bytes begin. Points into the sidecar.
using HashedChunks = absl::flat_hash_map<std::pair<std::string_view, int64_t>, const Sidecar::Chunk*>;

// The chunks of a sidecar by their place, without those that have no bytes. First checks that the headers, the files
// that say what is where, have the hashes in the sidecar, and, for DCP, that it has a hash of every chunk and byte
// item. DataLoss: that is not so (the sidecar is stale, or something is damaged), or the sidecar has files or bytes
// that the checkpoint does not have, or the same ones twice. Reads headers only, none of more than
// limits.metadata_bytes.
absl::StatusOr<HashedChunks> MatchSidecar(const Sidecar& sidecar, const Catalog& catalog, const CatalogLimits& limits);

}  // namespace reshard::source

#endif  // RESHARD_CHECKPOINT_SOURCE_SIDECAR_MATCH_H_
