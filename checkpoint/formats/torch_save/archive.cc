#include "checkpoint/formats/torch_save/archive.h"

#include <algorithm>

#include "checkpoint/formats/torch_save/first_form.h"
#include "checkpoint/io/show.h"
#include "status/macros.h"
#include "status/view.h"

namespace reshard::torch_save {
namespace {

constexpr int64_t kMostByteOrder = 16;
constexpr std::string_view kZipMark = "PK\x03\x04";

}  // namespace

bool IsBeginning(std::string_view bytes) { return bytes.starts_with(kZipMark) || IsFirstForm(bytes); }

absl::StatusOr<Archive> Archive::Open(const io::ReadFile& file, int64_t at, int64_t length,
                                      const CatalogLimits& limits) {
  const bool whole = at == 0 && length == file.bytes();
  Archive archive(absl::StrCat(file.path(), whole ? "" : absl::StrCat(", stream at ", at, " + ", length), ": "));
  RETURN_IF_ERROR(archive.ReadZip(file, at, length, limits));
  return archive;
}

absl::StatusOr<Archive> Archive::OpenFile(const io::ReadFile& file, const CatalogLimits& limits) {
  std::string begin(static_cast<size_t>(std::min<int64_t>(file.bytes(), kMostBeginning)), '\0');
  RETURN_IF_ERROR(file.ReadAt(0, absl::MakeSpan(begin)));
  if (!IsFirstForm(begin)) return Open(file, 0, file.bytes(), limits);
  Archive archive(absl::StrCat(file.path(), ": "));
  absl::StatusOr<FirstForm> form = ReadFirstForm(file, 0, file.bytes(), limits);
  if (!form.ok()) {
    return absl::Status(form.status().code(), absl::StrCat(archive.where_, form.status().message()));
  }
  archive.description_bytes_ = form->description.bytes();
  archive.description_ = std::make_unique<pickle::Pickle>(std::move(form->description));
  archive.storages_ = std::move(form->storages);
  return archive;
}

absl::Status Archive::ReadZip(const io::ReadFile& file, int64_t at, int64_t length, const CatalogLimits& limits) {
  ASSIGN_OR_RETURN(records_, zip::ZipArchive::Open(file, at, length, limits.metadata_bytes));
  const zip::ZipArchive::Record* description = nullptr;
  RETURN_IF_ERROR(FindFolder(&description));
  RETURN_IF_ERROR(CheckByteOrder());
  ASSIGN_OR_RETURN(const std::string bytes, records_->ReadPayload(*description, limits.metadata_bytes));
  description_bytes_ = static_cast<int64_t>(bytes.size());
  absl::StatusOr<pickle::Pickle> pickle = pickle::Pickle::Read(bytes, limits, /*persistent_ids=*/true);
  if (!pickle.ok()) return absl::Status(pickle.status().code(), absl::StrCat(where_, pickle.status().message()));
  description_ = std::make_unique<pickle::Pickle>(*std::move(pickle));
  return absl::OkStatus();
}

// All records are in one folder, whatever its name, and the description is one of them.
absl::Status Archive::FindFolder(const zip::ZipArchive::Record** description) {
  constexpr std::string_view kDescription = "/data.pkl";
  const std::vector<zip::ZipArchive::Record>& records = records_->records();
  for (const zip::ZipArchive::Record& record : records) {
    const std::string_view name = record.name;
    if (name.size() <= kDescription.size() || name.find('/') != name.size() - kDescription.size() ||
        name.substr(name.size() - kDescription.size()) != kDescription) {
      continue;
    }
    if (*description != nullptr) return Bad("two descriptions");
    *description = &record;
  }
  if (*description == nullptr) {
    const auto is_array = [](const zip::ZipArchive::Record& record) { return record.name.ends_with(".npy"); };
    if (!records.empty() && std::all_of(records.begin(), records.end(), is_array)) {
      return CannotRead("a file of NumPy, which is not read; safetensors.numpy.save_file writes one that is");
    }
    return Bad("a zip archive, but not one of torch.save: it has no description data.pkl");
  }
  folder_ = (*description)->name.substr(0, (*description)->name.size() - kDescription.size());
  is_script_ = records_->Find(absl::StrCat(folder_, "/constants.pkl")) != nullptr;
  return absl::OkStatus();
}

// Archives of PyTorch before 2.1 have no such record and were little-endian wherever anybody wrote them.
absl::Status Archive::CheckByteOrder() const {
  const zip::ZipArchive::Record* const record = records_->Find(absl::StrCat(folder_, "/byteorder"));
  if (record == nullptr) return absl::OkStatus();
  ASSIGN_OR_RETURN(const std::string order, records_->ReadPayload(*record, kMostByteOrder));
  if (order == "little") return absl::OkStatus();
  return order == "big" ? CannotRead("big-endian elements") : Bad("the byte order ", io::Shown(order));
}

absl::StatusOr<std::optional<Storage>> Archive::FindStorage(std::string_view key) const {
  constexpr size_t kLongest = 64;
  if (key.size() > kLongest) return std::nullopt;
  if (!records_) {
    const auto found = storages_.find(status::View(key));
    return found == storages_.end() ? std::nullopt : std::optional(found->second);
  }
  const zip::ZipArchive::Record* const record = records_->Find(absl::StrCat(folder_, "/data/", status::View(key)));
  if (record == nullptr) return std::nullopt;
  Storage storage;
  ASSIGN_OR_RETURN(storage.at, records_->PayloadAt(*record));
  storage.length = record->length;
  if (records_->has_checksums()) storage.crc32 = record->crc32;
  return storage;
}

}  // namespace reshard::torch_save
