// Builds a Catalog: what the readers of all formats share.
#ifndef RESHARD_CHECKPOINT_CATALOG_CATALOG_BUILDER_H_
#define RESHARD_CHECKPOINT_CATALOG_CATALOG_BUILDER_H_

#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/types/span.h"
#include "checkpoint/catalog/format_traits.h"
#include "checkpoint/catalog/stored_elements.h"
#include "checkpoint/io/files.h"
#include "reshard/checkpoint/catalog.h"

namespace reshard::catalog {

class CatalogBuilder {
 public:
  // `format` lives as long as all catalogs of it.
  CatalogBuilder(const FormatTraits& format, std::string root);

  // The index of a file; the same path gives the same index. Build asks whether it exists, and how long it is, unless
  // SetOpened has said it. InvalidArgument: the path leaves the directory.
  absl::StatusOr<int32_t> AddFile(std::string_view path);
  // The reader has opened it: what is read of it later is checked against what it was then.
  void SetOpened(int32_t index, const io::ReadFile& file);
  // The index of bytes without a file of their own, which SetContent gives before Build; `path` is that of the file
  // they are made of, and some more.
  int32_t AddContent(std::string path);
  void SetContent(int32_t index, std::string bytes);
  // Names, dtypes and texts are copied. All chunks of a tensor are added before the next tensor; a name may come again,
  // with the same dtype and shape, and its chunks then join those that it has (DataLoss if dtype or shape differ, or if
  // the name is that of a byte item). DataLoss: a negative size, more than 64 dimensions, a shape whose bytes overflow.
  absl::Status AddTensor(std::string_view name, std::string_view stored_dtype, std::optional<DType> dtype,
                         absl::Span<const int64_t> shape, bool requires_grad);
  // Takes memory for that many more chunks, whose offsets and sizes are that many numbers in all.
  void ReserveChunks(size_t chunks, size_t numbers);
  // A chunk of the tensor added last. DataLoss: offsets or sizes of another rank than the tensor's, negative ones, a
  // box that leaves the tensor. If a name came again, a chunk with the box and place of one that the tensor has is
  // left out; if replicas come again (FormatTraits), the same box is enough.
  absl::Status AddChunk(absl::Span<const int64_t> offset, absl::Span<const int64_t> size,
                        const Catalog::FileRange& place);
  // The same, in `file`, for elements in any order. InvalidArgument: they have another shape than `elements`.
  absl::Status AddChunk(absl::Span<const int64_t> offset, int32_t file, StoredElements elements);
  // DataLoss: the name is there already, and replicas do not come again.
  absl::Status AddByteItem(std::string_view name, const Catalog::FileRange& place);
  void AddPath(std::string_view name, std::vector<Catalog::PathStep> path);
  // Of several with the same name the first stays.
  void AddAttribute(Catalog::Attribute attribute);
  // A tensor or byte item that was added as `name` is called `rank_name` from here on, and is one of several that stand
  // under `name` in the files. DataLoss: something else has that name.
  absl::Status MakeRankLocal(std::string_view name, std::string_view rank_name);
  // The same for one that was added as `rank_name`.
  void SetRankLocal(std::string_view name, std::string_view rank_name);
  void AddRankLocal(Catalog::RankLocal rank_local);
  void SetIncomplete(std::string why);
  void SetHasIndex();
  void AddNote(std::string_view key, std::string_view value);

  // DataLoss: a place beyond the end of its file, a file that is not there or that is not a regular file. A
  // symbolic link below the directory counts as one if FormatTraits::may_be_links says so.
  absl::StatusOr<Catalog> Build() &&;
  // A catalog of what is not stored yet: tensors without chunks, byte items whose places say only how long they
  // are. No file is looked at.
  Catalog BuildUnstored() &&;

 private:
  Catalog Take();

  struct State;
  std::shared_ptr<State> state_;
};

}  // namespace reshard::catalog

#endif  // RESHARD_CHECKPOINT_CATALOG_CATALOG_BUILDER_H_
