// Lays out tensors as one safetensors file, or as several files with an index. It only computes bytes, and writes no
// file.
#ifndef RESHARD_CHECKPOINT_FORMATS_SAFETENSORS_WRITE_HEADER_H_
#define RESHARD_CHECKPOINT_FORMATS_SAFETENSORS_WRITE_HEADER_H_

#include <cstdint>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/types/span.h"

namespace reshard::safetensors {

struct SafetensorsTensor {
  std::string name;
  std::string dtype;  // as the format spells it: "F32"; see dtypes.h
  std::vector<int64_t> shape;
};

struct SafetensorsLayout {
  struct DataRange {
    int64_t at = 0;  // bytes from the start of the file
    int64_t length = 0;
  };
  std::string head;               // the first bytes of the file: length, JSON, spaces up to a multiple of 8
  std::vector<DataRange> places;  // one per tensor, in the order given
  int64_t bytes = 0;              // of the whole file
};

// The file of these tensors, the same bytes that the safetensors package would choose: larger alignment first (the
// order of SafetensorsDTypes), then by name; compact JSON. The data begins at a multiple of 8. InvalidArgument: a name
// twice, not UTF-8, or `__metadata__`; a negative size; elements that are not a whole number of bytes. Unimplemented: a
// dtype that the format does not have. ResourceExhausted: sizes that do not fit, or a header of more than 100,000,000
// bytes, which the package refuses to read.
absl::StatusOr<SafetensorsLayout> LayOutSafetensors(absl::Span<const SafetensorsTensor> tensors,
                                                    absl::Span<const std::pair<std::string, std::string>> metadata);

// Cuts a list of sizes into runs, one per file: each as long as it stays within `most` bytes, or a single larger one.
// Post-condition: the runs, one after the other, are 0 .. sizes.size(); none is empty unless there are no sizes.
std::vector<std::pair<size_t, size_t>> SplitIntoFiles(absl::Span<const int64_t> sizes, int64_t most);

// model.safetensors for the only file, model-00002-of-00011.safetensors for the index-th (from 0) of `count`; `stem` is
// "model".
std::string SafetensorsFileName(std::string_view stem, int64_t index, int64_t count);

// model.safetensors.index.json: which file has which tensor.
inline constexpr std::string_view kSafetensorsIndexName = "model.safetensors.index.json";
// The same for another stem.
std::string SafetensorsIndexName(std::string_view stem);
// `files` are pairs of tensor and file; names sorted. InvalidArgument: a name twice or not UTF-8.
absl::StatusOr<std::string> SafetensorsIndex(absl::Span<const std::pair<std::string, std::string>> files,
                                             int64_t total_bytes);

}  // namespace reshard::safetensors

#endif  // RESHARD_CHECKPOINT_FORMATS_SAFETENSORS_WRITE_HEADER_H_
