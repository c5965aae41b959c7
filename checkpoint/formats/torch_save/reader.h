// Puts files of torch.save together as one catalog.
#ifndef RESHARD_CHECKPOINT_FORMATS_TORCH_SAVE_READER_H_
#define RESHARD_CHECKPOINT_FORMATS_TORCH_SAVE_READER_H_

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "absl/container/flat_hash_map.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/types/span.h"
#include "checkpoint/catalog/catalog_builder.h"
#include "checkpoint/formats/safetensors/weight_map.h"
#include "checkpoint/formats/torch_save/archive.h"
#include "checkpoint/formats/torch_save/dtensor.h"
#include "checkpoint/formats/torch_save/flatten.h"
#include "checkpoint/formats/torch_save/tensor_record.h"
#include "checkpoint/io/files.h"

namespace reshard::torch_save {

// A file of torch.save, open.
struct OpenFile {
  int32_t index = 0;  // in the catalog
  std::unique_ptr<io::ReadFile> file;
  std::unique_ptr<Archive> archive;

  const pickle::Pickle& values() const { return archive->description(); }
};

class Reader {
 public:
  Reader(const catalog::FormatTraits& format, std::string root, const CatalogLimits& limits);

  // Among the files so far.
  int64_t plain_tensors() const { return plain_tensors_; }
  int64_t dtensors() const { return dtensors_; }

  // A file of that name below the root, saved by that rank where files are of ranks. All names in it get `prefix`; a
  // root that is not a container is called `root_name`.
  absl::Status AddFile(const std::string& name, std::string_view prefix, std::string_view root_name, int64_t rank = 0);
  // The same, but only the leaves that `is_wanted` accepts.
  absl::Status AddFile(const std::string& name, const std::function<bool(const Leaf&)>& is_wanted);

  // For callers that take a file apart themselves: opens the file of that name below the root; they give builder() what
  // is to be in the catalog.
  absl::StatusOr<OpenFile> Open(const std::string& name);
  catalog::CatalogBuilder& builder() { return builder_; }
  // A chunk of the tensor that the builder was given last: all of what the record has, which may be elements of a type
  // that this library does not have. Errors as CatalogBuilder::AddChunk.
  absl::Status AddChunk(absl::Span<const int64_t> offset, int32_t file, TensorRecord record);

  // All that the index has must be in the file that it says. A name in two files is found out by its elements.
  absl::Status CheckIndex(const std::string& index_path, const safetensors::WeightMap& map);

  void SetIncomplete(std::string why) { builder_.SetIncomplete(std::move(why)); }
  absl::StatusOr<Catalog> Finish() &&;

 private:
  using Value = pickle::Pickle::Value;

  // What one rank has of a plain tensor or a value, which every rank has whole.
  struct Version {
    int64_t rank = 0;
    int32_t file = 0;
    std::string file_name;
    std::optional<TensorRecord> tensor;  // nothing: a value
    Catalog::FileRange place;            // of the value
    std::string sum;                     // of the value: equal where it is
  };
  struct Versions {
    std::vector<Version> all;
    std::optional<size_t> other;  // the first that is not as all[0]
    std::vector<Catalog::PathStep> path;
  };

  absl::Status AddLeaves(const std::string& name, std::string_view prefix, std::string_view root_name, int64_t rank,
                         const std::function<bool(const Leaf&)>& is_wanted);
  absl::Status Add(const Archive& archive, const Leaf& leaf);
  void NameAttributes(const pickle::Pickle& description, const Leaf& leaf, Value value);
  void NameItems(const pickle::Pickle& description, const Leaf& leaf, Value state);
  absl::Status AddTensor(const Archive& archive, const Leaf& leaf, Value value, bool requires_grad,
                         const LocalPart* part);
  absl::Status AddElements(const std::string& name, const TensorRecord& record, int32_t file);
  // A tensor of a kind that cannot be read: it is listed, and refused by what would have to read it.
  absl::Status AddUnreadable(const Leaf& leaf, std::string_view kind);
  absl::Status AddArray(const Archive& archive, const Leaf& leaf, Value value);
  absl::Status AddValue(const Archive& archive, const Leaf& leaf, Value value);
  void AddOpaque(const Archive& archive, const Leaf& leaf, Value value);
  // Where these bytes are kept, as a part of a file that is in memory; ResourceExhausted when there are too many.
  absl::StatusOr<Catalog::FileRange> Keep(const Archive& archive, std::string_view bytes);

  // Keeps what this rank has under the name, and compares it with the first rank's. False where there is one already.
  absl::StatusOr<bool> AddVersion(const Leaf& leaf, Version version);
  absl::StatusOr<bool> IsSame(const Version& a, const Version& b) const;
  absl::Status SplitVersions();

  const std::string root_;
  const CatalogLimits limits_;
  const bool ranks_;
  catalog::CatalogBuilder builder_;
  int64_t plain_tensors_ = 0;
  int64_t dtensors_ = 0;
  // Of the file that is being added:
  int32_t file_ = 0;
  std::string file_name_;
  int64_t rank_ = 0;
  std::string contents_;                                          // what is kept
  std::optional<int32_t> content_;                                // its index, once something is
  absl::flat_hash_map<std::string, std::set<int32_t>> files_of_;  // by tensor
  std::vector<std::string> version_names_;                        // of versions_, in the order of the files
  absl::flat_hash_map<std::string, Versions> versions_;           // of files of ranks
};

}  // namespace reshard::torch_save

#endif  // RESHARD_CHECKPOINT_FORMATS_TORCH_SAVE_READER_H_
