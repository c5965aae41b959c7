// The state of a Source; only for its .cc files.
#ifndef RESHARD_CHECKPOINT_SOURCE_STATE_H_
#define RESHARD_CHECKPOINT_SOURCE_STATE_H_

#include <array>
#include <atomic>
#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <string_view>
#include <vector>

#include "absl/container/flat_hash_map.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/types/span.h"
#include "checkpoint/catalog/stored_elements.h"
#include "checkpoint/io/files.h"
#include "checkpoint/source/box.h"
#include "checkpoint/source/chunk_index.h"
#include "checkpoint/source/record_check.h"
#include "checkpoint/source/sidecar_match.h"
#include "checkpoint/source/source.h"
#include "status/mutex.h"

namespace reshard::source {

// A chunk, and what it and a box have in common.
struct Overlap {
  int64_t number = 0;  // of the chunk, in its tensor
  std::shared_ptr<io::ReadFile> file;
  std::shared_ptr<const catalog::StoredElements> stream;
  Box box;                // in the tensor
  Indices within;         // the offset of `box` in the chunk, one per dimension
  int64_t bytes = 0;      // of the elements
  bool begins = false;    // it has the chunk's first element
  bool is_whole = false;  // it is the whole chunk
};

// A file of the checkpoint, opened when it is first used.
struct OpenFile {
  status::Mutex mutex;  // held by the thread that opens it
  std::shared_ptr<io::ReadFile> file ABSL_GUARDED_BY(mutex);
};

struct Source::State {
  Catalog catalog;  // of what is stored
  std::vector<LeftOut> not_selected;
  std::optional<views::Applied> applied;
  std::vector<Wrapper> wrappers;
  ChunkChecks checks = ChunkChecks::kAll;
  std::optional<Sidecar> sidecar;
  HashedChunks hashed;                 // points into `sidecar`
  std::atomic<int64_t> bytes_read{0};  // counted by the files

  status::Mutex mutex;
  std::map<int32_t, std::shared_ptr<OpenFile>> files ABSL_GUARDED_BY(mutex);
  std::vector<std::shared_ptr<const ChunkIndex>> indices ABSL_GUARDED_BY(mutex);  // by tensor
  absl::flat_hash_map<int64_t, std::shared_ptr<const catalog::StoredElements>> streams
      ABSL_GUARDED_BY(mutex);        // by chunk
  std::vector<int64_t> first_chunk;  // of every tensor, in `checked`

  // Each chunk's index in `checked`; the chunks of one record share it. Empty: each chunk has its own.
  std::vector<size_t> check_of;
  // Whether a chunk's checksum has been compared; one of the mutexes is held meanwhile.
  std::vector<std::atomic<char>> checked;
  std::vector<std::atomic<char>> items_checked;
  std::array<status::Mutex, 64> checking;

  absl::StatusOr<std::shared_ptr<io::ReadFile>> File(int32_t index);
  std::shared_ptr<const ChunkIndex> Index(int64_t tensor);
  absl::StatusOr<std::shared_ptr<const catalog::StoredElements>> Stream(int64_t tensor, int64_t number,
                                                                        const io::ReadFile& file);
  // Compares the announced sizes of chunks with the files, before memory is taken for them. DataLoss: a stream does not
  // have the elements that the metadata says. ResourceExhausted: a tensor repeats its elements so often that they are
  // far more than the bytes of all files.
  absl::Status CheckAnnounced();
  // The box of a chunk in its tensor.
  Box ChunkBox(int64_t tensor, int64_t number) const;
  // Requires that the chunk and the box have elements in common.
  absl::StatusOr<Overlap> OverlapOf(int64_t tensor, int64_t number, const Box& box);
  size_t CheckOf(int64_t tensor, int64_t number) const {
    const auto chunk = static_cast<size_t>(first_chunk[tensor] + number);
    return check_of.empty() ? chunk : check_of[chunk];
  }
  bool IsChecked(int64_t tensor, int64_t number) const {
    return checked[CheckOf(tensor, number)].load(std::memory_order_acquire) != 0;
  }
  // Whether the chunk of an overlap that is used is to be compared (SourceOptions::checks), and has not been yet.
  bool Wants(int64_t tensor, const Overlap& overlap) const { return Wants(tensor, overlap.number, overlap.begins); }
  bool Wants(int64_t tensor, int64_t number, bool begins) const {
    const bool wanted = checks == ChunkChecks::kAll || (checks == ChunkChecks::kBegun && begins);
    return wanted && !IsChecked(tensor, number);
  }
  // Whether the record of the overlap's chunk is its elements in order and nothing else, so that a reader of the chunk
  // reads exactly what is compared.
  static bool IsItsRecord(const Overlap& overlap);
  // Whether the chunk has a checksum that a reader of its elements in order can compare on the way.
  // False if it cannot be opened: reading it says why.
  bool IsReadThrough(int64_t tensor, int64_t number, const Box& box);
  // Reads the overlap, which is a whole chunk and IsItsRecord, into `out`, and compares it on the way.
  absl::Status ReadWhole(int64_t tensor, const Overlap& overlap, absl::Span<char> out);
  // What its record is compared with.
  RecordCheck CheckFor(int64_t tensor, const Overlap& overlap) const;
  // Records that the chunk has been compared, with that finding. DataLoss: it is damaged.
  absl::Status Found(int64_t tensor, const Overlap& overlap, RecordCheck::Finding finding);
  // Reads all of the chunk, once, and compares what is known of it.
  absl::Status Check(int64_t tensor, const Overlap& overlap);
  // Reads all of a byte item, once, and compares what is known of it: the hash of the sidecar, or the checksums inside,
  // where it is an archive, as PyTorch writes them.
  absl::Status CheckItem(size_t index, const io::ReadFile& file);
  absl::Status FindSidecar(const CatalogLimits& limits);

 private:
  static absl::Status CheckArchive(const io::ReadFile& file, const Catalog::FileRange& place);
};

}  // namespace reshard::source

#endif  // RESHARD_CHECKPOINT_SOURCE_STATE_H_
