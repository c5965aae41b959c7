// What kind of checkpoint a path is, and the formats there are.
#include <algorithm>
#include <filesystem>
#include <optional>
#include <string>
#include <string_view>
#include <system_error>
#include <vector>

#include "absl/strings/str_cat.h"
#include "checkpoint/catalog/format_traits.h"
#include "checkpoint/formats/dcp/format.h"
#include "checkpoint/formats/dcp/read_dcp.h"
#include "checkpoint/formats/deepspeed/files.h"
#include "checkpoint/formats/deepspeed/read.h"
#include "checkpoint/formats/listing/format.h"
#include "checkpoint/formats/listing/read.h"
#include "checkpoint/formats/megatron/files.h"
#include "checkpoint/formats/megatron/read.h"
#include "checkpoint/formats/orbax/format.h"
#include "checkpoint/formats/recognize.h"
#include "checkpoint/formats/resolve_path.h"
#include "checkpoint/formats/safetensors/format.h"
#include "checkpoint/formats/safetensors/read.h"
#include "checkpoint/formats/torch_save/format.h"
#include "checkpoint/formats/torch_save/read.h"
#include "checkpoint/io/files.h"
#include "checkpoint/stores/registry.h"
#include "checkpoint/stores/url.h"
#include "reshard/checkpoint/catalog.h"
#include "reshard/checkpoint/store.h"
#include "status/macros.h"
#include "status/no_throw.h"
#include "status/view.h"

namespace reshard {
namespace {

// The URL of what is at a path, for the store that reads such things. Empty: there is no such store.
absl::StatusOr<std::string> AtReader(const std::string& path) {
  const std::string_view scheme = formats::ReaderOf(path);
  if (scheme.empty() || !stores::StoreOf(absl::StrCat(status::View(scheme), "://")).ok()) return std::string();
  std::error_code error;
  const std::string whole = stores::IsUrl(path) ? path : std::filesystem::canonical(path, error).string();
  if (error) return absl::UnavailableError(absl::StrCat(path, ": ", error.message()));
  return absl::StrCat(status::View(scheme), "://", whole);
}

// The catalog; or, if it could not be read as safetensors, the catalog or the error of what is there.
absl::StatusOr<Catalog> OrSayWhatItIs(absl::StatusOr<Catalog> catalog, const std::string& path,
                                      const CatalogLimits& limits) {
  // What is wrong with a file of another format says less than what it is.
  if (absl::IsNotFound(catalog.status()) || absl::IsDataLoss(catalog.status())) {
    ASSIGN_OR_RETURN(const std::string at_reader, AtReader(path));
    if (!at_reader.empty()) return listing::ReadListing(at_reader, limits);
    RETURN_IF_ERROR(formats::Recognize(path));
  }
  return catalog;
}

absl::StatusOr<Catalog> ReadOneFile(const std::string& path, const CatalogLimits& limits) {
  ASSIGN_OR_RETURN(bool archive, torch_save::IsArchive(path));
  if (archive && !formats::ReaderOf(path).empty()) archive = false;  // one of NumPy, or of Keras
  if (archive) return torch_save::ReadFile(path, limits);
  const size_t slash = path.rfind('/');
  const std::string root = slash == path.npos ? "." : slash == 0 ? "/" : path.substr(0, slash);
  const std::string name = slash == path.npos ? path : path.substr(slash + 1);
  return OrSayWhatItIs(safetensors::ReadSafetensorsFiles(root, {&name, 1}, limits), path, limits);
}

// Weights of a Hugging Face model, or their index.
bool IsOfHuggingFace(std::string_view name) {
  return name.ends_with(".safetensors") || name.ends_with(".safetensors.index.json") ||
         name.ends_with(".bin.index.json") || name == "pytorch_model.bin";
}

bool HasSafetensors(const std::vector<std::string>& names) {
  return std::any_of(names.begin(), names.end(), [](const std::string& name) {
    return name.ends_with(".safetensors") || name.ends_with(".safetensors.index.json");
  });
}

// Adds the directory to an error about the names in it.
template <typename Found>
absl::StatusOr<Found> In(const std::string& path, absl::StatusOr<Found> found) {
  if (found.ok()) return found;
  return absl::Status(found.status().code(), absl::StrCat(path, ": ", found.status().message()));
}

absl::StatusOr<Catalog> ReadDirectory(const std::string& path, const std::vector<std::string>& names,
                                      const CatalogLimits& limits) {
  const std::vector<std::string> metadata = dcp::MetadataFiles(names);
  if (!metadata.empty()) {
    const auto model = std::find_if(names.begin(), names.end(), IsOfHuggingFace);
    if (model == names.end()) return dcp::ReadDcpCatalog(path, metadata, limits);
    return absl::InvalidArgumentError(
        absl::StrCat(path, " has two checkpoints: a distributed one (", metadata[0], ") and a Hugging Face model (",
                     *model, "); name the file of the one that is meant, ", io::JoinPath(path, metadata[0]), " or ",
                     io::JoinPath(path, *model)));
  }
  const auto read_rest = [&] {
    return OrSayWhatItIs(safetensors::ReadSafetensorsDirectory(path, names, limits), path, limits);
  };
  if (HasSafetensors(names)) return read_rest();
  const auto has = [&](std::string_view name) { return std::find(names.begin(), names.end(), name) != names.end(); };
  if (has(listing::kFileName)) {
    return listing::ReadListing(path, limits, has(orbax::kTreeName) ? orbax::kFormat : listing::kFormat);
  }
  ASSIGN_OR_RETURN(const deepspeed::Files of_deepspeed, In(path, deepspeed::FindFiles(path, names)));
  if (!of_deepspeed.empty()) return deepspeed::ReadDeepSpeed(path, of_deepspeed, limits);
  ASSIGN_OR_RETURN(const std::vector<megatron::RankFile> of_megatron, In(path, megatron::FindFiles(path, names)));
  if (!of_megatron.empty()) return megatron::ReadMegatron(path, of_megatron, limits);
  if (const std::string bins = torch_save::BinSetOf(names); !bins.empty()) {
    return torch_save::ReadBinSet(path, bins, limits);
  }
  ASSIGN_OR_RETURN(const std::vector<torch_save::RankFile> of_ranks, In(path, torch_save::RankFilesOf(names)));
  if (!of_ranks.empty()) return torch_save::ReadRankFiles(path, of_ranks, limits);
  return read_rest();
}

absl::StatusOr<Catalog> ReadItself(const std::string& path, const CatalogLimits& limits) {
  std::optional<std::vector<std::string>> known;
  ASSIGN_OR_RETURN(const io::FileKind kind, io::KindOf(path, &known));
  if (kind == io::FileKind::kNothing) return absl::NotFoundError(absl::StrCat(path, ": no such file or directory"));
  if (kind == io::FileKind::kFile) return ReadOneFile(path, limits);
  if (known) return ReadDirectory(path, *known, limits);
  const absl::StatusOr<std::vector<std::string>> names = io::ListDirectory(path);
  if (names.ok()) return ReadDirectory(path, *names, limits);
  if (kind == io::FileKind::kDirectory) return names.status();
  return ReadOneFile(path, limits);  // a link to a file
}

absl::StatusOr<Catalog> Read(const std::string& path, const CatalogLimits& limits) {
  using As = formats::Meant::As;
  ASSIGN_OR_RETURN(const formats::Meant meant, formats::FindMeant(path));
  switch (meant.as) {
    case As::kItself:
      return ReadItself(path, limits);
    case As::kDirectory:
      return ReadItself(meant.directory, limits);
    case As::kDcp: {
      ASSIGN_OR_RETURN(const std::vector<std::string> names, io::ListDirectory(meant.directory));
      return dcp::ReadDcpCatalog(meant.directory, dcp::MetadataFiles(names), limits);
    }
    case As::kIndex:
      return safetensors::ReadSafetensorsIndex(meant.directory, meant.files[0], limits);
    case As::kFiles:
      return safetensors::ReadSafetensorsFiles(meant.directory, meant.files, limits);
    case As::kListing:
      return listing::ReadListing(meant.directory, limits);
    case As::kBinIndex:
      return torch_save::ReadBinSet(meant.directory, meant.files[0], limits);
  }
  return absl::InternalError("an unknown meaning of a path");
}

constexpr const catalog::FormatTraits* kFormats[] = {&dcp::kFormat, &safetensors::kFormat, &torch_save::kFormat,
                                                     &listing::kFormat, &orbax::kFormat};

}  // namespace

std::string_view Name(CheckpointFormat format) {
  for (const catalog::FormatTraits* traits : kFormats) {
    if (traits->format == format) return traits->name;
  }
  return "unknown";
}

std::optional<CheckpointFormat> FindCheckpointFormat(std::string_view name) {
  for (const catalog::FormatTraits* traits : kFormats) {
    if (traits->name == name) return traits->format;
  }
  return std::nullopt;
}

std::string StoreNeededFor(const std::string& path) {
  return stores::IsUrl(path) ? StoreSchemeOf(path) : std::string(formats::ReaderOf(path));
}

std::string DirectoryMeantBy(const std::string& path) {
  std::string admitted = path;
  if (stores::IsUrl(path)) {
    absl::StatusOr<std::string> url = stores::Admit(path);
    if (!url.ok()) return "";
    admitted = *std::move(url);
  }
  absl::StatusOr<formats::Meant> meant = formats::FindMeant(admitted);
  return meant.ok() ? std::move(meant->directory) : "";
}

absl::StatusOr<Catalog> ReadCatalog(const std::string& path, const CatalogLimits& limits) {
  return status::NoThrow("reading a checkpoint", [&]() -> absl::StatusOr<Catalog> {
    if (!stores::IsUrl(path)) return Read(path, limits);
    ASSIGN_OR_RETURN(const std::string admitted, stores::Admit(path));
    return Read(admitted, limits);
  });
}

}  // namespace reshard
