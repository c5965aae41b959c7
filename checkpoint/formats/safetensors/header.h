// The header of a safetensors file: eight bytes of length (little endian), that many bytes of JSON, then the data.
//
//   {"__metadata__":{"format":"pt"},"w":{"dtype":"F32","shape":[2,3],"data_offsets":[0,24]}}
//
// Every tensor is a dense row-major run of the data, with `data_offsets` relative to the beginning of the data;
// together they cover it without holes or overlaps. Tensors without elements may be anywhere. Spaces may follow the
// JSON.
#ifndef RESHARD_CHECKPOINT_FORMATS_SAFETENSORS_HEADER_H_
#define RESHARD_CHECKPOINT_FORMATS_SAFETENSORS_HEADER_H_

#include <cstdint>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "absl/status/statusor.h"
#include "checkpoint/io/files.h"
#include "reshard/checkpoint/catalog.h"

namespace reshard::safetensors {

// A file begins with the length of its header, little-endian.
inline constexpr int64_t kLengthBytes = 8;

struct SafetensorsHeader {
  struct Entry {
    std::string name;
    std::string dtype;  // as stored; see dtypes.h
    std::vector<int64_t> shape;
    int64_t begin = 0;  // of its bytes, from where the data begins
    int64_t end = 0;
  };
  std::vector<Entry> entries;                                 // in the order of the JSON, names unique
  std::vector<std::pair<std::string, std::string>> metadata;  // `__metadata__`
};

// What the JSON of a header says about `data_bytes` bytes of data. Members of an entry other than the three are
// skipped, as the safetensors package does. Post-conditions: the places of the entries cover [0, data_bytes) as said
// above; where the dtype is known, the length of each is that of its shape. DataLoss: anything else (the tensor and
// what is wrong). ResourceExhausted: beyond `limits`.
absl::StatusOr<SafetensorsHeader> ParseSafetensorsHeader(std::string_view json, int64_t data_bytes,
                                                         const CatalogLimits& limits);

struct SafetensorsFile {
  SafetensorsHeader header;
  int64_t data_begin = 0;  // bytes from the start of the file
};

// Reads the header of a file. Errors name the file; those of ParseSafetensorsHeader, and those of reading.
// The length is compared with the file and the limit before memory is taken for it.
absl::StatusOr<SafetensorsFile> ReadSafetensorsHeader(const io::ReadFile& file, const CatalogLimits& limits);

}  // namespace reshard::safetensors

#endif  // RESHARD_CHECKPOINT_FORMATS_SAFETENSORS_HEADER_H_
