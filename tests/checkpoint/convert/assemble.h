// Whole tensors of a checkpoint, put together from boxes of its chunks.
#ifndef RESHARD_TESTS_CHECKPOINT_CONVERT_ASSEMBLE_H_
#define RESHARD_TESTS_CHECKPOINT_CONVERT_ASSEMBLE_H_

#include <cstdint>
#include <string>
#include <string_view>

#include "absl/status/statusor.h"
#include "absl/types/span.h"
#include "reshard/checkpoint/catalog.h"

namespace reshard::testing {

// The box of a DCP tensor, dense and row-major: read from whichever chunks have parts of it.
absl::StatusOr<std::string> ReadTensorBox(const Catalog& catalog, const Catalog::Tensor& tensor,
                                          absl::Span<const int64_t> offset, absl::Span<const int64_t> size);
absl::StatusOr<std::string> ReadTensor(const Catalog& catalog, const Catalog::Tensor& tensor);

// The element-wise copy that a test trusts: of a box at `offset` of a dense tensor, by the definition of row-major.
std::string BoxOf(std::string_view dense, absl::Span<const int64_t> shape, int64_t element,
                  absl::Span<const int64_t> offset, absl::Span<const int64_t> size);

}  // namespace reshard::testing

#endif  // RESHARD_TESTS_CHECKPOINT_CONVERT_ASSEMBLE_H_
