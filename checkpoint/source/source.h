// The contents of a checkpoint by logical index, whatever its format and its chunks.
#ifndef RESHARD_CHECKPOINT_SOURCE_SOURCE_H_
#define RESHARD_CHECKPOINT_SOURCE_SOURCE_H_

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/types/span.h"
#include "checkpoint/hash/digest.h"
#include "checkpoint/source/box.h"
#include "checkpoint/source/sidecar.h"
#include "checkpoint/views/apply.h"
#include "reshard/checkpoint/catalog.h"
#include "reshard/checkpoint/recipe.h"

namespace reshard::source {

// Which chunks are compared with the checksum that the checkpoint has for them, if any. A chunk is compared once, and
// read whole for it.
enum class ChunkChecks {
  kAll,    // each, before it is used for the first time
  kBegun,  // those of which a box with their first element is read: where several processes share the reading, each
           // chunk is compared by one of them. Where a recipe makes tensors of others this is kAll
  kNone,
};

struct SourceOptions {
  CatalogLimits limits;
  bool ignore_sidecar = false;
  ChunkChecks checks = ChunkChecks::kAll;
  Recipe recipe = {};  // what of the checkpoint there is to be read, under which names, and what is made of it
  // Names are first what the bare model calls them: the wrappers of the weights (unwrap.h) come off.
  bool unwrap = false;
};

// Threads for reading from a store where nothing is asked for: they wait, and need no core.
inline constexpr int kThreadsForStores = 16;

// Any number of threads may read.
class Source {
 public:
  // Reads the catalog, applies the recipe to it, and reads the sidecar where there is one. DataLoss: chunks that leave
  // a tensor's elements out or have them twice; a sidecar that does not match (sidecar_match.h). Otherwise what
  // ReadCatalog, Select and Apply report. InvalidArgument: something that was asked for matches nothing (asked.h).
  static absl::StatusOr<std::unique_ptr<Source>> Open(const std::string& path, const SourceOptions& options);
  ~Source();

  // What the recipe makes of what is stored.
  const Catalog& catalog() const;
  // What is stored, as far as the recipe's selection takes it; the same as catalog() where tensors stay what they are.
  const Catalog& stored() const;
  // What of the checkpoint the selection leaves out.
  const std::vector<LeftOut>& not_selected() const;
  // What each tensor of catalog() is, or null where all are what is stored.
  const std::vector<views::View>* views() const;
  const std::optional<Sidecar>& sidecar() const;
  // What has come off names, with SourceOptions::unwrap.
  const std::vector<Wrapper>& wrappers() const;

  // Adds what is made of stored(): nothing where tensors stay what they are.
  void AddViews(hash::Digest* digest) const;

  // The elements of a box of the index-th tensor, dense and row-major, into `out`, which has exactly their bytes. The
  // tensor's dtype is known. DataLoss: a chunk that does not have its checksum (SourceOptions::checks).
  absl::Status Read(int64_t tensor, absl::Span<const int64_t> offset, absl::Span<const int64_t> size,
                    absl::Span<char> out);
  struct BoxOfChunk {
    Box box;
    bool is_whole = false;  // it is all of the chunk
    bool at_once = false;   // it should not be cut: it is a whole chunk of at most 64 MiB, or one that is compared
  };
  // The parts of a box that are in one chunk each. A caller that reads those that should not be cut at once, and in a
  // StreamingReader where they are not whole, reads no byte twice. Of what a recipe makes of tensors: the box.
  std::vector<BoxOfChunk> CutAlongChunks(int64_t tensor, const Box& box);
  // Bytes [from, from + out.size()) of the index-th byte item. Before the first of them all of it is read and compared
  // in the same way.
  absl::Status ReadItem(int64_t item, int64_t from, absl::Span<char> out);

  // How many threads had better read: as many as are asked for; for 0 what suits where it lies, of files at most
  // `most`.
  int ReadThreads(int asked, int most) const;

  // Bytes read so far from the files that tensors and byte items lie in: what was asked for, what lies between its
  // parts and was read with them, the frames of streams, and whole chunks whose checksums were compared.
  int64_t bytes_read() const;

 private:
  friend class StreamingReader;
  struct State;
  explicit Source(std::unique_ptr<State> state);
  absl::Status ReadStored(int64_t tensor, absl::Span<const int64_t> offset, absl::Span<const int64_t> size,
                          absl::Span<char> out);
  std::unique_ptr<State> state_;
};

}  // namespace reshard::source

#endif  // RESHARD_CHECKPOINT_SOURCE_SOURCE_H_
