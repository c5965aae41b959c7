// A file, or a part of one, that torch.save has written: an archive with a description, which is a pickle, and records
// of elements.
#ifndef RESHARD_CHECKPOINT_FORMATS_TORCH_SAVE_ARCHIVE_H_
#define RESHARD_CHECKPOINT_FORMATS_TORCH_SAVE_ARCHIVE_H_

#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <utility>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/str_cat.h"
#include "checkpoint/formats/pickle/machine.h"
#include "checkpoint/formats/zip/reader.h"
#include "checkpoint/io/files.h"
#include "reshard/checkpoint/catalog.h"

namespace reshard::torch_save {

class Archive {
 public:
  // The archive in bytes [at, at + length) of `file`, which must outlive it. Reads its directory and the description,
  // of at most `limits.metadata_bytes` each. Errors as ZipArchive::Open and Pickle::Read; DataLoss also: there is no
  // description; Unimplemented also: big-endian elements.
  static absl::StatusOr<Archive> Open(const io::ReadFile& file, int64_t at, int64_t length,
                                      const CatalogLimits& limits);

  const pickle::Pickle& description() const { return *description_; }
  int64_t description_bytes() const { return description_bytes_; }
  const zip::ZipArchive& records() const { return records_; }
  // The record of a storage's elements; null when there is none of that key.
  const zip::ZipArchive::Record* FindStorage(std::string_view key) const;

  // What errors begin with: the file, and where in it the archive is, if it is a part.
  const std::string& where() const { return where_; }
  template <typename... Text>
  absl::Status Bad(const Text&... text) const {
    return absl::DataLossError(absl::StrCat(where_, text...));
  }
  template <typename... Text>
  absl::Status CannotRead(const Text&... text) const {
    return absl::UnimplementedError(absl::StrCat(where_, text...));
  }

 private:
  Archive(zip::ZipArchive records, std::string where) : records_(std::move(records)), where_(std::move(where)) {}

  absl::Status FindFolder(const zip::ZipArchive::Record** description);
  absl::Status CheckByteOrder() const;

  zip::ZipArchive records_;
  std::string where_;
  std::string folder_;  // of all records: "archive"
  int64_t description_bytes_ = 0;
  std::unique_ptr<pickle::Pickle> description_;
};

}  // namespace reshard::torch_save

#endif  // RESHARD_CHECKPOINT_FORMATS_TORCH_SAVE_ARCHIVE_H_
