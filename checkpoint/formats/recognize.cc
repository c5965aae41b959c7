#include "checkpoint/formats/recognize.h"

#include <algorithm>
#include <cstddef>
#include <memory>
#include <optional>
#include <string_view>
#include <vector>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "checkpoint/formats/dcp/read_dcp.h"
#include "checkpoint/formats/listing/format.h"
#include "checkpoint/io/files.h"
#include "checkpoint/io/show.h"
#include "reshard/checkpoint/pattern.h"
#include "status/view.h"

namespace reshard::formats {
namespace {

using Names = std::vector<std::string>;

// A kind of file, by its first bytes or, where those are of all kinds of archives, by its name.
struct FileKind {
  std::string_view begin;
  std::string_view what;
  size_t at = 0;                 // where these bytes are
  std::string_view reader = {};  // the scheme of a store that reads it
  std::string_view suffix = {};
};
constexpr FileKind kFiles[] = {
    {"GGUF", "a GGUF file", 0, "gguf"},
    {"\x93NUMPY", "a file of NumPy", 0, "numpy"},
    {"PK", "an archive of NumPy", 0, "numpy", ".npz"},
    {"\x89HDF\r\n", "an HDF5 file", 0, "hdf5"},
    {"PK", "a file of Keras", 0, "hdf5", ".keras"},
    {"{", "a JSON file; name the directory that it is in", 0, "", ".json"},
    {"ustar",
     "a tar file, as the torch.save of before PyTorch 0.1.10 wrote, which is not read; torch.save(torch.load(FILE), "
     "...) "
     "writes one that is, if the file can be trusted",
     257},
};

// A kind of directory, by a name in it.
struct DirectoryKind {
  std::string_view pattern;
  std::string_view what;
  std::string_view reader = {};  // the scheme of a store that reads it
};
constexpr DirectoryKind kDirectories[] = {
    {"_CHECKPOINT_METADATA", "a checkpoint of Orbax", "orbax"},
    {"manifest.ocdbt", "a checkpoint of Orbax", "orbax"},
    {"_METADATA", "a checkpoint of Orbax", "orbax"},
    {".zgroup", "a Zarr group", "orbax"},
    {".zarray", "a Zarr array", "orbax"},
    {"zarr.json", "a Zarr group or array", "orbax"},
    {"pytorch_model-*.bin",
     "a Hugging Face model without its pytorch_model.bin.index.json, which says what is in which of its files"},
    {"consolidated.*.pth",
     "a model of Meta's in parts, one for each model-parallel rank, which are not joined; transformers' "
     "convert_llama_weights_to_hf.py writes safetensors"},
    {"*.pt",
     "a directory with files of torch.save that nothing says to belong together; if one of them is a whole model, name "
     "that file"},
    {"*.pth",
     "a directory with files of torch.save that nothing says to belong together; if one of them is a whole model, name "
     "that file"},
    {"*.ckpt",
     "a directory with files of torch.save that nothing says to belong together; if one of them is a whole model, name "
     "that file"},
    {"*.gguf", "a directory with GGUF files; name the one that is meant, the first of several parts"},
};

bool Has(const Names& names, std::string_view pattern) {
  return std::any_of(names.begin(), names.end(),
                     [&](const std::string& name) { return MatchesPattern(pattern, name); });
}

// The kind of a directory that has those names in it; null if no kind is known.
const DirectoryKind* KindOf(const Names& names) {
  const auto found = std::find_if(std::begin(kDirectories), std::end(kDirectories),
                                  [&](const DirectoryKind& kind) { return Has(names, kind.pattern); });
  return found == std::end(kDirectories) ? nullptr : found;
}

bool IsCheckpoint(const Names& names) {
  return !dcp::MetadataFiles(names).empty() || Has(names, "*.safetensors") || Has(names, listing::kFileName);
}

// The number that a name ends with, such as 100 of "step-100"; -1 where it ends with none.
int64_t NumberOf(std::string_view name) {
  size_t begin = name.size();
  while (begin > 0 && name[begin - 1] >= '0' && name[begin - 1] <= '9') --begin;
  int64_t number = 0;
  return absl::SimpleAtoi(status::View(name.substr(begin)), &number) ? number : -1;
}

// The kind of a file, by its first bytes; null if no kind is known, or the file cannot be read.
const FileKind* KindOfFile(const std::string& path) {
  const auto file = io::ReadFile::Open(path, /*follow_links=*/true);
  if (!file.ok()) return nullptr;
  constexpr int64_t kLongest = 512;
  std::string begin(static_cast<size_t>(std::min(kLongest, (*file)->bytes())), '\0');
  if (!(*file)->ReadAt(0, absl::MakeSpan(begin)).ok()) return nullptr;
  const auto found = std::find_if(std::begin(kFiles), std::end(kFiles), [&](const FileKind& kind) {
    return begin.size() >= kind.at && std::string_view(begin).substr(kind.at).starts_with(kind.begin) &&
           path.ends_with(kind.suffix);
  });
  return found == std::end(kFiles) ? nullptr : found;
}

// The error for a kind of file or directory that is not read here.
absl::Status NotRead(absl::string_view where, std::string_view what, std::string_view reader) {
  if (reader.empty()) return absl::UnimplementedError(absl::StrCat(where, " is ", status::View(what)));
  return absl::UnimplementedError(absl::StrCat(where, " is ", status::View(what),
                                               ", which the Python package reads: pip install 'reshard[",
                                               status::View(reader), "]'"));
}

// The error that offers `inside`, names of directories with a checkpoint each.
absl::Status Offer(const std::string& path, Names inside) {
  const auto later = [](const std::string& a, const std::string& b) {
    return NumberOf(a) != NumberOf(b) ? NumberOf(a) > NumberOf(b) : a < b;
  };
  std::sort(inside.begin(), inside.end(), later);
  constexpr size_t kShown = 5;
  const size_t count = inside.size();
  if (count == 1) {
    return absl::InvalidArgumentError(absl::StrCat(
        io::Shown(path), " is not a checkpoint, but has one in it: ", io::Shown(io::JoinPath(path, inside[0]))));
  }
  const bool numbered = NumberOf(inside[0]) > NumberOf(inside[1]);
  const std::string first = io::Shown(io::JoinPath(path, inside[0]));
  inside.resize(std::min(count, kShown));
  for (std::string& name : inside) name = io::Shown(name);
  return absl::InvalidArgumentError(absl::StrCat(
      io::Shown(path), " is not a checkpoint, but has ", count, " in it: ", absl::StrJoin(inside, ", "),
      count > kShown ? ", ..." : "", numbered ? absl::StrCat("; the latest is ", first) : "; name one of them"));
}

// The error that offers `inside`, names of directories with a model each, in a pipeline of diffusers.
absl::Status OfferModels(const std::string& path, const Names& inside) {
  return absl::InvalidArgumentError(absl::StrCat(
      io::Shown(path), " is a pipeline of diffusers, whose models are converted one by one: ",
      absl::StrJoin(inside, ", "), "; write ", io::Shown(io::JoinPath(path, inside[0])), " to DESTINATION/", inside[0],
      ", the others alike, and copy model_index.json and the folders without tensors"));
}

absl::Status RecognizeDirectory(const std::string& path, const Names& names) {
  if (IsCheckpoint(names)) return absl::OkStatus();  // ours, and what was said of it counts
  if (Has(names, ".reshard-*")) {
    return absl::DataLossError(absl::StrCat(io::Shown(path),
                                            " has what an interrupted conversion has written so far: the same command "
                                            "as then continues it, --clean removes it"));
  }
  if (Has(names, ".metadata.tmp") || Has(names, "*.distcp")) {
    return absl::DataLossError(absl::StrCat(io::Shown(path),
                                            " is a distributed checkpoint of which the save did not finish: "
                                            "there is no .metadata; use the one saved before it"));
  }
  if (const DirectoryKind* const kind = KindOf(names)) {
    return NotRead(io::Shown(path), kind->what, kind->reader);
  }
  const bool is_pipeline = std::find(names.begin(), names.end(), "model_index.json") != names.end();
  Names checkpoints;
  absl::Status inner;
  constexpr size_t kMostLooked = 1000;
  for (size_t i = 0; i < std::min(names.size(), kMostLooked); ++i) {
    const absl::StatusOr<Names> below = io::ListDirectory(io::JoinPath(path, names[i]));
    if (!below.ok()) continue;
    if (IsCheckpoint(*below)) {
      checkpoints.push_back(names[i]);
    } else if (const DirectoryKind* const kind = KindOf(*below); kind != nullptr && inner.ok()) {
      inner = absl::UnimplementedError(absl::StrCat(io::Shown(path), " has in ", io::Shown(names[i]), " ",
                                                    status::View(kind->what),
                                                    kind->reader.empty() ? "" : "; name that directory"));
    }
  }
  if (checkpoints.empty()) return inner;
  return is_pipeline ? OfferModels(path, checkpoints) : Offer(path, std::move(checkpoints));
}

}  // namespace

absl::Status Recognize(const std::string& path) {
  const absl::StatusOr<Names> names = io::ListDirectory(path);
  if (names.ok()) return RecognizeDirectory(path, *names);
  const FileKind* const kind = KindOfFile(path);
  return kind == nullptr ? absl::OkStatus() : NotRead(io::Shown(path), kind->what, kind->reader);
}

std::string_view ReaderOf(const std::string& path) {
  const absl::StatusOr<Names> names = io::ListDirectory(path);
  if (!names.ok()) {
    const FileKind* const kind = KindOfFile(path);
    return kind == nullptr ? "" : kind->reader;
  }
  if (IsCheckpoint(*names)) return "";
  const DirectoryKind* const kind = KindOf(*names);
  return kind == nullptr ? "" : kind->reader;
}

}  // namespace reshard::formats
