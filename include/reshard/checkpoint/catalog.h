// What a checkpoint contains: tensors, the chunks they are stored in, and items that are plain bytes. The form is the
// same for all formats: PyTorch's distributed checkpoints (DCP: a directory with `.metadata` and `.distcp` files),
// safetensors (one file, or several with an index, or the shards that PyTorch's Hugging Face storage writes),
// torch.save (one file, the `.bin` files of a Hugging Face model, or a file for each rank with its parts of DTensors),
// and listings (a `reshard.listing.json` that says where in the files beside it everything is).
//
//   absl::StatusOr<Catalog> catalog = ReadCatalog("step-1000", {});
//   for (const Catalog::Tensor& tensor : catalog->tensors()) {
//     for (int64_t i = 0; i < tensor.num_chunks; ++i) ... catalog->chunk(tensor, i) ...
//   }
//
// Reading a catalog reads headers only, never runs anything from a file, and takes memory in proportion to the bytes
// that it reads, never to a number that a file states.
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

// PyTorch's distributed checkpoints, safetensors, files of torch.save, what a listing describes, or Orbax as this
// library writes it.
enum class CheckpointFormat { kDcp, kSafetensors, kTorchSave, kListing, kOrbax };

// "dcp", "safetensors", "torch_save", "listing", "orbax".
std::string_view Name(CheckpointFormat format);
// The format of that name, if there is one.
std::optional<CheckpointFormat> FindCheckpointFormat(std::string_view name);

namespace catalog {
class CatalogBuilder;
class DerivedCatalog;
struct FormatTraits;
struct CatalogLookup;  // finds by name
struct StoredElements;
}  // namespace catalog

// Limits on untrusted input. Input that exceeds one is refused with ResourceExhausted; the message has both numbers.
struct CatalogLimits {
  int64_t metadata_bytes = int64_t{1} << 30;  // size of one `.metadata`, index or header
  int64_t string_bytes = int64_t{64} << 20;   // size of one name
  int64_t depth = 64;                         // levels of nested containers
  int64_t objects = int64_t{64} << 20;        // objects in one pickle, and entries in its memo
};

// The contents of one checkpoint. Views that it returns are valid while it, or a copy of it, exists.
class Catalog {
 public:
  // Where a run of bytes is.
  struct FileRange {
    int32_t file = 0;    // index into files()
    int64_t at = 0;      // bytes from the start of the file
    int64_t length = 0;  // bytes
  };
  using Place [[deprecated("FileRange")]] = FileRange;  // until 0.4

  // A box of one tensor. For safetensors and listings `place` has the elements themselves, dense and row-major; for DCP
  // it has a stream, which is an archive that contains the elements; for torch.save it extends from the first element
  // to the last, and StoredAs gives their order.
  struct Chunk {
    absl::Span<const int64_t> offset;  // index of its first element, one per dimension
    absl::Span<const int64_t> size;    // in elements, one per dimension; any may be 0
    FileRange place;                   // where its bytes are
  };

  // One tensor.
  struct Tensor {
    std::string_view name;            // the flat key exactly as stored, unless a selection has renamed it
    std::string_view stored_name;     // the flat key exactly as stored
    std::string_view stored_dtype;    // as the file has it: "torch.float32", "F32"
    std::optional<DType> dtype;       // nullopt: one that this library does not have (torch.complex32, quantized types)
    absl::Span<const int64_t> shape;  // in elements
    int64_t first_chunk = 0;          // index of its first chunk among the chunks of all tensors
    int64_t first_box = 0;            // where the boxes of its chunks begin; for the catalog's own use
    int64_t num_chunks = 0;           // number of chunks
    int64_t bytes = 0;                // of all elements; 0 if the dtype is unknown
    bool requires_grad = false;       // DCP: as recorded
  };

  // A value that is stored as plain bytes. In DCP these are pickles, which are never run; for torch.save they are what
  // torch.save would write for the value alone.
  struct ByteItem {
    std::string_view name;  // the flat key exactly as stored
    FileRange place;        // where its bytes are
  };

  // DCP: something that the metadata records about the whole checkpoint, besides what it always records. torch.save: a
  // value of the state dict that is not plain data. Such a value is opaque: it can be listed, but not carried.
  struct Attribute {
    std::string name;
    // A pickle of its value if that is plain data (numbers, strings, containers of them), or empty.
    std::string pickle = {};
    bool of_files = false;  // it describes the files of this checkpoint, and means nothing in another
    // What an opaque value is: "an object of hparams.Config", "functools.partial".
    std::string kind = {};

    bool is_opaque_value() const { return !kind.empty(); }
    // Its name in a list of tensors and byte items: "attribute mcore_data", "hparams (an object of hparams.Config)".
    std::string Label() const;
  };

  // A tensor or a value that every rank stored whole, and that differs between ranks. The catalog has each rank's under
  // its own name, "NAME.rank_R".
  struct RankLocal {
    std::string name;                           // in the files
    std::vector<std::string> names;             // here
    std::pair<std::string, std::string> files;  // two that differ
  };

  // One step of the path to a value in nested containers: a key, or an index into a list.
  using PathStep = std::variant<std::string, int64_t>;

  // One file of the checkpoint.
  struct File {
    std::string path;      // relative to root(), with '/' between its parts
    int64_t bytes = 0;     // its size
    int64_t modified = 0;  // time of the last modification, in nanoseconds since 1970
    // Not null: these bytes instead of a file of its own, made from the file that `path` begins with.
    std::shared_ptr<const std::string> content = nullptr;
  };

  // What was read.
  CheckpointFormat format() const;
  // What else follows from the format, for code that reads chunks; a default Catalog has none.
  const catalog::FormatTraits& traits() const { return *traits_; }
  // The directory; for a single safetensors file, the directory that it is in.
  const std::string& root() const { return root_; }
  // What FileRange::file refers to.
  const std::vector<File>& files() const { return files_; }

  // In the order in which the checkpoint lists them. Names are unique over tensors and byte items together.
  absl::Span<const Tensor> tensors() const { return tensors_; }
  // In the order in which the checkpoint lists them.
  absl::Span<const ByteItem> byte_items() const { return byte_items_; }
  // The tensor with that name, or null if there is none.
  const Tensor* FindTensor(std::string_view name) const;
  // The byte item with that name, or null if there is none.
  const ByteItem* FindByteItem(std::string_view name) const;

  // The index-th chunk of a tensor of this catalog. Requires 0 <= index < tensor.num_chunks.
  Chunk chunk(const Tensor& tensor, int64_t index) const;

  // Where the elements of that chunk are, and in which order; null where its place says that already.
  const catalog::StoredElements* StoredAs(const Tensor& tensor, int64_t index) const;

  // The bytes of all elements of a tensor of this catalog. For an unknown dtype, those of its chunks if these are the
  // elements themselves, as in safetensors, and 0 otherwise. The largest int64_t if there are more than that.
  int64_t BytesOf(const Tensor& tensor) const;

  // DCP, torch.save: the path of a flat key in nested containers, or null if the checkpoint does not record one.
  const std::vector<PathStep>* PathOf(std::string_view name) const;
  // DCP: in the order of the metadata, each name once, without those whose value is None. Megatron's `mcore_data` is
  // plain data; the `all_local_plans` that some versions of PyTorch keep describes the files.
  const std::vector<Attribute>& attributes() const { return attributes_; }
  // Files of ranks: what differs between them. A selection that takes any of it must allow it explicitly (Selection).
  const std::vector<RankLocal>& rank_local() const { return rank_local_; }
  // The name that a tensor or value of rank_local() has in the files; for any other, the name itself.
  std::string_view NameInFiles(std::string_view name) const;
  // Why this is probably not a whole checkpoint: "2 of 9 parts are here: ..."; empty if nothing suggests that. A
  // selection must allow it explicitly (Selection).
  const std::string& incomplete() const { return incomplete_; }
  // safetensors, torch.save: whether an index says which file has which tensor. Some readers want one even for a single
  // file.
  bool has_index() const { return has_index_; }
  // safetensors: the key-value pairs of `__metadata__` of all files, without those that describe sharding.
  const std::vector<std::pair<std::string, std::string>>& notes() const { return notes_; }

  // OK if the chunks of a tensor cover each of its elements exactly once; otherwise DataLoss, with the name of the
  // tensor and the index of an element that is missing or covered twice. O(chunks log chunks) for chunks that form a
  // grid, rows, columns or nested boxes.
  absl::Status CheckCover(const Tensor& tensor) const;

 private:
  friend class catalog::CatalogBuilder;
  friend class catalog::DerivedCatalog;

  const catalog::FormatTraits* traits_ = nullptr;
  std::string root_;
  std::vector<File> files_;
  std::vector<Tensor> tensors_;
  std::vector<ByteItem> byte_items_;
  std::vector<FileRange> places_;                                         // of all chunks, tensor by tensor
  std::vector<std::shared_ptr<const catalog::StoredElements>> elements_;  // of all chunks, or none
  std::vector<int64_t> boxes_;         // offset, then size, of all chunks, in the same order
  std::shared_ptr<const void> names_;  // what the views point into
  std::vector<Attribute> attributes_;
  std::vector<RankLocal> rank_local_;
  std::string incomplete_;
  bool has_index_ = false;
  std::vector<std::pair<std::string, std::string>> notes_;
  std::shared_ptr<const catalog::CatalogLookup> lookup_;
};

// Reads the checkpoint at `path`: a directory with `.metadata` (or per-rank `__N.metadata` files), a directory with
// safetensors files, with a `reshard.listing.json`, with `pytorch_model*.bin` files, or with
// `model_world_size_W_rank_R.pt` files of all W ranks, with the files of DeepSpeed or a `latest` that names them, or
// one file of safetensors or torch.save. NotFound: there is no checkpoint at the path. DataLoss: it violates the
// format; the message says how, and at which byte. InvalidArgument: two checkpoints in one directory, or a path that
// leaves the directory. Unimplemented: encoded streams, with the name of the encoding; an unsupported kind of
// checkpoint, with what it is. ResourceExhausted: over a limit. Unavailable: the system could not read a file, with its
// reason. Whether the chunks cover their tensors is not checked here: see CheckCover.
//
// A file that is only part of a checkpoint stands for the whole checkpoint: one that says what is where (`.metadata`,
// `model.safetensors.index.json`, `reshard.json`, `reshard.listing.json`), one shard of several, the file of one rank.
absl::StatusOr<Catalog> ReadCatalog(const std::string& path, const CatalogLimits& limits = {});

// The scheme of the store (reshard/checkpoint/store.h) that is needed to read the checkpoint at `path`: that of a URL,
// or "orbax", "gguf", "hdf5", "numpy" for a checkpoint of that kind. Empty if the library reads it by itself, and if
// there is nothing. For a path of such a kind, ReadCatalog reads SCHEME://PATH through a registered store.
std::string StoreNeededFor(const std::string& path);

// The directory of the checkpoint that the file at `path` is only a part of, which ReadCatalog reads instead. Empty if
// ReadCatalog reads what is at the path, or would report why it cannot.
std::string DirectoryMeantBy(const std::string& path);

}  // namespace reshard

#endif  // RESHARD_CHECKPOINT_CATALOG_H_
