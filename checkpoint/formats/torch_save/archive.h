// A file, or a part of one, that torch.save has written: a description, which is a pickle, and storages of elements.
// Its usual form is a zip archive; its first form (before PyTorch 1.6, and today with a flag) is several pickles and
// then the storages, one after the other.
#ifndef RESHARD_CHECKPOINT_FORMATS_TORCH_SAVE_ARCHIVE_H_
#define RESHARD_CHECKPOINT_FORMATS_TORCH_SAVE_ARCHIVE_H_

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <utility>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/str_cat.h"
#include "checkpoint/formats/pickle/machine.h"
#include "checkpoint/formats/torch_save/storage.h"
#include "checkpoint/formats/zip/reader.h"
#include "checkpoint/io/files.h"
#include "reshard/checkpoint/catalog.h"

namespace reshard::torch_save {

// Whether a file of torch.save, in either form, begins with these bytes.
inline constexpr size_t kMostBeginning = 64;  // bytes that are enough to tell
bool IsBeginning(std::string_view bytes);

class Archive {
 public:
  // The zip archive in bytes [at, at + length) of `file`, which must outlive it. Reads its directory and the
  // description, of at most `limits.metadata_bytes` each. Errors as ZipArchive::Open and Pickle::Read; DataLoss also:
  // there is no description; Unimplemented also: big-endian elements.
  static absl::StatusOr<Archive> Open(const io::ReadFile& file, int64_t at, int64_t length,
                                      const CatalogLimits& limits);
  // All of a file, in either form. Errors also as ReadFirstForm.
  static absl::StatusOr<Archive> OpenFile(const io::ReadFile& file, const CatalogLimits& limits);

  const pickle::Pickle& description() const { return *description_; }
  int64_t description_bytes() const { return description_bytes_; }
  // Whether it is a TorchScript module (torch.jit.save): a description of objects of classes of its own.
  bool is_script() const { return is_script_; }
  // The storage of that key; nothing when there is none. DataLoss: the archive contradicts itself. Unimplemented: the
  // storage is compressed.
  absl::StatusOr<std::optional<Storage>> FindStorage(std::string_view key) const;

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
  explicit Archive(std::string where) : where_(std::move(where)) {}

  absl::Status ReadZip(const io::ReadFile& file, int64_t at, int64_t length, const CatalogLimits& limits);
  absl::Status FindFolder(const zip::ZipArchive::Record** description);
  absl::Status CheckByteOrder() const;

  std::string where_;
  std::optional<zip::ZipArchive> records_;  // of the usual form
  std::string folder_;                      // of all records: "archive"
  Storages storages_;                       // of the first form
  bool is_script_ = false;
  int64_t description_bytes_ = 0;
  std::unique_ptr<pickle::Pickle> description_;
};

}  // namespace reshard::torch_save

#endif  // RESHARD_CHECKPOINT_FORMATS_TORCH_SAVE_ARCHIVE_H_
