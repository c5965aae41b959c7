// What a checkpoint contains: tensors, the chunks they are stored in, and items that are plain bytes. One form for both
// formats, PyTorch's distributed checkpoints (a directory with `.metadata` and `.distcp` files) and safetensors (one
// file, or several with an index, or the shards that PyTorch's Hugging Face storage writes).
//
//   absl::StatusOr<Catalog> catalog = ReadCatalog("step-1000", {});
//   for (const Catalog::Tensor& tensor : catalog->tensors()) ... catalog->chunks(tensor) ...
//
// Reading a catalog reads headers only, never runs anything from a file, and takes memory in proportion to the bytes it
// has read, never to a number it has read.
#ifndef RESHARD_CHECKPOINT_CATALOG_H_
#define RESHARD_CHECKPOINT_CATALOG_H_

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <variant>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/types/span.h"
#include "reshard/layout/dtype.h"

namespace reshard {

enum class CheckpointFormat { kDcp, kSafetensors };

// "dcp", "safetensors".
std::string_view Name(CheckpointFormat format);

struct CatalogLookup;  // finds by name; private

// Bounds on input that nobody vouches for. What exceeds them is refused with ResourceExhausted that names both numbers.
struct CatalogLimits {
  int64_t metadata_bytes = int64_t{1} << 30;  // of one `.metadata`, index or header
  int64_t string_bytes = int64_t{64} << 20;   // of one name
  int64_t depth = 64;                         // of nested containers
  int64_t objects = int64_t{64} << 20;        // in one pickle, and remembered by it
};

class Catalog {
 public:
  // Where a run of bytes lies: `file` is an index into files().
  struct Place {
    int32_t file = 0;
    int64_t at = 0;      // bytes from the start of the file
    int64_t length = 0;  // bytes
  };

  // A box of one tensor. For safetensors `place` is the elements themselves, dense and row-major; for DCP it is a
  // stream, an archive with the elements inside (checkpoint/dcp/tensor_stream.h finds them).
  struct Chunk {
    absl::Span<const int64_t> offset;  // of its first element, one a dimension
    absl::Span<const int64_t> size;    // one a dimension; any may be 0
    Place place;
  };

  struct Tensor {
    std::string_view name;          // the flat key exactly as stored
    std::string_view stored_dtype;  // as the file says it: "torch.float32", "F32"
    std::optional<DType> dtype;     // none: a dtype that this library does not have (torch.complex32, quantized)
    absl::Span<const int64_t> shape;
    int64_t first_chunk = 0;  // among the chunks of all tensors
    int64_t first_box = 0;    // where the boxes of its chunks begin, for the catalog's own use
    int64_t num_chunks = 0;
    int64_t bytes = 0;           // of all elements; 0 where the dtype is unknown
    bool requires_grad = false;  // DCP
  };

  struct ByteItem {
    std::string_view name;
    Place place;
  };

  // One step on the way to a value in nested containers: a key, or an index of a list.
  using PathStep = std::variant<std::string, int64_t>;

  struct File {
    std::string path;  // relative to root(), '/' between its parts
    int64_t bytes = 0;
    int64_t modified = 0;  // when it was last written, in nanoseconds since 1970
  };

  CheckpointFormat format() const { return format_; }
  // The directory; for a single safetensors file the directory that it is in.
  const std::string& root() const { return root_; }
  const std::vector<File>& files() const { return files_; }

  // In the order in which the checkpoint lists them. Names are unique over tensors and byte items together.
  absl::Span<const Tensor> tensors() const { return tensors_; }
  absl::Span<const ByteItem> byte_items() const { return byte_items_; }
  // Null when there is none of that name.
  const Tensor* FindTensor(std::string_view name) const;
  const ByteItem* FindByteItem(std::string_view name) const;

  // The index-th chunk of a tensor, 0 <= index < num_chunks.
  Chunk chunk(const Tensor& tensor, int64_t index) const;

  // DCP: the nested path of a flat key, where the checkpoint records one.
  const std::vector<PathStep>* PathOf(std::string_view name) const;
  // safetensors: the pairs of `__metadata__`, of all files, without those that describe sharding.
  const std::vector<std::pair<std::string, std::string>>& notes() const { return notes_; }

  // Where the chunks of a tensor leave elements out or cover them twice: OK when they cover each exactly once, DataLoss
  // that names the tensor and an index otherwise. O(chunks log chunks) for the chunks of any grid, rows, columns or
  // nested boxes.
  absl::Status CheckCover(const Tensor& tensor) const;

 private:
  friend class CatalogBuilder;

  CheckpointFormat format_ = CheckpointFormat::kDcp;
  std::string root_;
  std::vector<File> files_;
  std::vector<Tensor> tensors_;
  std::vector<ByteItem> byte_items_;
  std::vector<Place> places_;          // of all chunks, tensor by tensor
  std::vector<int64_t> boxes_;         // offset, then size, of all chunks, in the same order
  std::shared_ptr<const void> names_;  // what the views point into
  std::vector<std::pair<std::string, std::string>> notes_;
  std::shared_ptr<const CatalogLookup> lookup_;
};

// Reads what is at `path`: a directory with `.metadata` (or per-rank `__N.metadata` files), a directory with
// safetensors files, or one safetensors file.
// NotFound: nothing there that is a checkpoint. DataLoss: not what the format says (what, and at which byte).
// InvalidArgument: a pickle that wants code to run (the name of it), a path that leaves the directory. Unimplemented:
// encoded streams, by the name of the encoding. ResourceExhausted: beyond a limit. Unavailable: the system refused to
// read (its reason).
// Whether chunks cover their tensors is not asked here: see CheckCover.
absl::StatusOr<Catalog> ReadCatalog(const std::string& path, const CatalogLimits& limits = {});

}  // namespace reshard

#endif  // RESHARD_CHECKPOINT_CATALOG_H_
