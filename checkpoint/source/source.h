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
// is read whole for that.
enum class ChunkChecks {
  kAll,    // each, before it is used for the first time
  kBegun,  // those whose first element is in a box that is read: if several processes share the reading, one of them
           // compares each chunk. If a recipe makes tensors of others this is kAll
  kNone,
};

struct SourceOptions {
  CatalogLimits limits;
  bool ignore_sidecar = false;
  ChunkChecks checks = ChunkChecks::kAll;
  Recipe recipe = {};  // what of the checkpoint there is to be read, under which names, and what is made of it
  // First takes the wrappers of the weights (unwrap.h) off names, which then are those of the bare model.
  bool unwrap = false;
};

// Threads that read from a store by default: they wait, and need no core.
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

  // Adds to the digest what is made of stored(); nothing where tensors stay what they are.
  void AddViews(hash::Digest* digest) const;

  // Reads the elements of a box of the index-th tensor, dense and row-major, into `out`, which has exactly their bytes.
  // Requires a known dtype. DataLoss: a chunk that does not have its checksum (SourceOptions::checks).
  absl::Status Read(int64_t tensor, absl::Span<const int64_t> offset, absl::Span<const int64_t> size,
                    absl::Span<char> out);
  struct BoxOfChunk {
    Box box;
    bool is_whole = false;  // it is all of the chunk
    bool at_once = false;   // it should not be cut: it is a whole chunk of at most 64 MiB, or one that is compared
  };
  // Cuts a box into parts that are in one chunk each. To read no byte twice, a caller reads in one go each part that
  // should not be cut, by a StreamingReader if it is not a whole chunk. A tensor that a recipe makes: the box itself.
  std::vector<BoxOfChunk> CutAlongChunks(int64_t tensor, const Box& box);
  // Reads bytes [from, from + out.size()) of the index-th byte item. Before the first read of an item, all of it is
  // read and compared in the same way.
  absl::Status ReadItem(int64_t item, int64_t from, absl::Span<char> out);

  // How many threads should read: `asked`; if that is 0, what suits where the checkpoint lies, and for files at most
  // `most`.
  int ReadThreads(int asked, int most) const;

  // Bytes read so far from the files that tensors and byte items lie in: what was asked for, what lies between its
  // parts and was read along with them, the frames of streams, and whole chunks whose checksums were compared.
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
