// Any bytes as an archive, and as the whole stream of a float32 tensor of [2, 3].
#include <algorithm>
#include <array>
#include <vector>

#include "checkpoint/formats/torch_save/tensor_stream.h"
#include "checkpoint/formats/zip/reader.h"
#include "checkpoint/source/read_box.h"
#include "tests/fuzz/memory_file.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using namespace reshard;
  const std::unique_ptr<io::ReadFile> file = testing::MemoryFile(testing::Text(data, size));
  const auto bytes = static_cast<int64_t>(size);
  const absl::StatusOr<zip::ZipArchive> archive = zip::ZipArchive::Open(*file, 0, bytes);
  if (archive.ok()) {
    for (const zip::ZipArchive::Record& record : archive->records()) {
      testing::Promised(archive->Find(record.name) == &record, "a record is found by its name");
      const absl::StatusOr<int64_t> at = archive->PayloadAt(record);
      if (at.ok()) testing::Promised(*at >= 0 && *at <= bytes - record.length, "a payload in the archive");
      (void)archive->ReadPayload(record, bytes).ok();
    }
    (void)archive->CheckPayloads().ok();
  }
  const std::array<int64_t, 2> shape = {2, 3};
  const absl::StatusOr<catalog::StoredElements> stream =
      torch_save::FindTensorStream(*file, {0, 0, bytes}, DType::kF32, shape);
  if (!stream.ok()) return 0;
  std::array<char, 24> out;
  const std::array<int64_t, 2> zero = {0, 0};
  testing::Promised(source::ReadBox(*file, *stream, zero, shape, absl::MakeSpan(out)).ok(),
                    "every element lies in its record");
  return 0;
}
