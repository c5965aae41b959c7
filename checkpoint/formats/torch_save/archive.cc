#include "checkpoint/formats/torch_save/archive.h"

#include <algorithm>

#include "checkpoint/io/show.h"
#include "status/macros.h"
#include "status/view.h"

namespace reshard::torch_save {
namespace {

constexpr int64_t kMostByteOrder = 16;

}  // namespace

absl::StatusOr<Archive> Archive::Open(const io::ReadFile& file, int64_t at, int64_t length,
                                      const CatalogLimits& limits) {
  const bool whole = at == 0 && length == file.bytes();
  std::string where = absl::StrCat(file.path(), whole ? "" : absl::StrCat(", stream at ", at, " + ", length), ": ");
  ASSIGN_OR_RETURN(zip::ZipArchive records, zip::ZipArchive::Open(file, at, length, limits.metadata_bytes));
  Archive archive(std::move(records), std::move(where));
  const zip::ZipArchive::Record* description = nullptr;
  RETURN_IF_ERROR(archive.FindFolder(&description));
  RETURN_IF_ERROR(archive.CheckByteOrder());
  ASSIGN_OR_RETURN(const std::string bytes, archive.records_.ReadPayload(*description, limits.metadata_bytes));
  archive.description_bytes_ = static_cast<int64_t>(bytes.size());
  absl::StatusOr<pickle::Pickle> pickle = pickle::Pickle::Read(bytes, limits, /*persistent_ids=*/true);
  if (!pickle.ok()) {
    return absl::Status(pickle.status().code(), absl::StrCat(archive.where_, pickle.status().message()));
  }
  archive.description_ = std::make_unique<pickle::Pickle>(*std::move(pickle));
  return archive;
}

// All records are in one folder, whatever its name, and the description is one of them.
absl::Status Archive::FindFolder(const zip::ZipArchive::Record** description) {
  constexpr std::string_view kDescription = "/data.pkl";
  for (const zip::ZipArchive::Record& record : records_.records()) {
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
    if (!records_.records().empty() && std::all_of(records_.records().begin(), records_.records().end(), is_array)) {
      return CannotRead("a file of NumPy, which is not read; safetensors.numpy.save_file writes what is");
    }
    return Bad("a zip archive, but none of torch.save: it has no description data.pkl");
  }
  folder_ = (*description)->name.substr(0, (*description)->name.size() - kDescription.size());
  if (records_.Find(absl::StrCat(folder_, "/constants.pkl")) != nullptr) {
    return CannotRead("a TorchScript module, which is not read; torch.save(module.state_dict(), ...) writes what is");
  }
  return absl::OkStatus();
}

// Archives of PyTorch before 2.1 have no such record and were little-endian wherever anybody wrote them.
absl::Status Archive::CheckByteOrder() const {
  const zip::ZipArchive::Record* const record = records_.Find(absl::StrCat(folder_, "/byteorder"));
  if (record == nullptr) return absl::OkStatus();
  ASSIGN_OR_RETURN(const std::string order, records_.ReadPayload(*record, kMostByteOrder));
  if (order == "little") return absl::OkStatus();
  return order == "big" ? CannotRead("big-endian elements") : Bad("the byte order ", io::Shown(order));
}

const zip::ZipArchive::Record* Archive::FindStorage(std::string_view key) const {
  constexpr size_t kLongest = 64;
  if (key.size() > kLongest) return nullptr;
  return records_.Find(absl::StrCat(folder_, "/data/", status::View(key)));
}

}  // namespace reshard::torch_save
