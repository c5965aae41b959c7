// Any bytes as the description inside the stream of a float32 tensor of [2, 3]; archive and checksums are right.
#include <array>
#include <string>

#include "checkpoint/formats/torch_save/tensor_stream.h"
#include "checkpoint/source/read_box.h"
#include "tests/checkpoint/formats/zip_bytes.h"
#include "tests/fuzz/memory_file.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using namespace reshard;
  static const std::string elements(64, '\x3f');
  const std::string bytes =
      testing::ZipBytes({{.name = "a/data.pkl", .content = std::string(testing::Text(data, size))},
                         {.name = "a/data/0", .content = elements}});
  const std::unique_ptr<io::ReadFile> file = testing::MemoryFile(bytes);
  const std::array<int64_t, 2> shape = {2, 3};
  const std::array<int64_t, 2> zero = {0, 0};
  std::array<char, 96> out;
  for (const DType dtype : {DType::kF32, DType::kC64, DType::kU16}) {
    const absl::StatusOr<catalog::StoredElements> stream =
        torch_save::FindTensorStream(*file, {0, 0, static_cast<int64_t>(bytes.size())}, dtype, shape);
    if (!stream.ok()) continue;
    const auto wanted = static_cast<size_t>(6 * SizeOf(dtype));
    testing::Promised(source::ReadBox(*file, *stream, zero, shape, {out.data(), wanted}).ok(),
                      "every element lies in its record");
  }
  return 0;
}
