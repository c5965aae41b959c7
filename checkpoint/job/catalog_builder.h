// Puts a Catalog together: what the readers of both formats share.
#ifndef RESHARD_CHECKPOINT_JOB_CATALOG_BUILDER_H_
#define RESHARD_CHECKPOINT_JOB_CATALOG_BUILDER_H_

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/types/span.h"
#include "reshard/checkpoint/catalog.h"

namespace reshard {

class CatalogBuilder {
 public:
  CatalogBuilder(CheckpointFormat format, std::string root);

  // The index of a file; the same path gives the same index. Whether it exists, and how long it is, is asked in Build.
  // InvalidArgument: the path leaves the directory.
  absl::StatusOr<int32_t> AddFile(std::string_view path);
  // Names, dtypes and texts are copied. All chunks of a tensor are added before the next tensor; a name may come again,
  // with the same dtype and shape, and then its chunks join those that it has (DataLoss when they differ).
  absl::Status AddTensor(std::string_view name, std::string_view stored_dtype, std::optional<DType> dtype,
                         absl::Span<const int64_t> shape, bool requires_grad);
  // A chunk of the tensor added last. DataLoss: offsets or sizes of another rank than the tensor's, negative ones, a
  // box that leaves the tensor. A chunk with the box and place of one that the tensor has is left out.
  absl::Status AddChunk(absl::Span<const int64_t> offset, absl::Span<const int64_t> size, const Catalog::Place& place);
  absl::Status AddByteItem(std::string_view name, const Catalog::Place& place);
  void AddPath(std::string_view name, std::vector<Catalog::PathStep> path);
  void AddNote(std::string_view key, std::string_view value);

  // DataLoss: a name twice, a place beyond the end of its file, a shape whose bytes overflow, a file that is not there.
  absl::StatusOr<Catalog> Build() &&;

 private:
  struct State;
  std::shared_ptr<State> state_;
};

}  // namespace reshard

#endif  // RESHARD_CHECKPOINT_JOB_CATALOG_BUILDER_H_
