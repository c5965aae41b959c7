#include "checkpoint/auxiliary_files/find.h"

#include <algorithm>
#include <memory>
#include <optional>
#include <string_view>
#include <utility>

#include "absl/container/flat_hash_set.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "checkpoint/auxiliary_files/kinds.h"
#include "checkpoint/catalog/format_traits.h"
#include "checkpoint/catalog/nearest.h"
#include "checkpoint/io/files.h"
#include "checkpoint/io/show.h"
#include "checkpoint/source/sidecar.h"
#include "checkpoint/stores/url.h"
#include "reshard/checkpoint/pattern.h"
#include "status/macros.h"
#include "status/no_throw.h"

namespace reshard::auxiliary_files {
namespace {

constexpr size_t kMostEntries = 10'000;
constexpr int kDeepest = 8;

class Walk {
 public:
  Walk(const Catalog& catalog, const AuxiliaryFileTerms& terms) : catalog_(catalog), terms_(terms) {
    for (const Catalog::File& file : catalog.files()) own_.insert(file.path);
    own_.insert(source::kSidecarName);
  }

  // `within` is empty or ends with '/'. `entries` are those in it.
  absl::Status Enter(const std::string& within, const std::vector<io::DirectoryEntry>& entries, int depth) {
    entries_ += entries.size();
    for (const io::DirectoryEntry& entry : entries) {
      const std::string path = within + entry.name;
      if (own_.contains(path)) continue;
      std::optional<io::FileKind> kind = entry.kind;
      if (!kind) {
        ASSIGN_OR_RETURN(kind, io::KindOf(io::JoinPath(catalog_.root(), path)));
      }
      if (kind == io::FileKind::kDirectory) {
        RETURN_IF_ERROR(MayEnter(path + "/", entry.name, depth));
      } else if (!catalog_.traits().is_header(entry.name)) {
        RETURN_IF_ERROR(Add(path, *kind, depth));
      }
    }
    return absl::OkStatus();
  }

  // Of the names in the directory of a single file, those that are looked for.
  absl::Status EnterBesideFile(const std::vector<std::string>& names) {
    const auto has = [&](std::string_view name) { return std::find(names.begin(), names.end(), name) != names.end(); };
    if (!has("config.json") && !has("adapter_config.json")) return absl::OkStatus();
    for (const std::string& name : names) {
      if (own_.contains(name) || !(IsLookedFor(name, /*beside_dcp=*/false) || IsAsked(name))) continue;
      ASSIGN_OR_RETURN(const io::FileKind kind, io::KindOf(io::JoinPath(catalog_.root(), name)));
      if (kind != io::FileKind::kDirectory) RETURN_IF_ERROR(Add(name, kind, 0));
    }
    found_.left.clear();
    return absl::OkStatus();
  }

  AuxiliaryFiles Take() && {
    const auto by_path = [](const AuxiliaryFile& a, const AuxiliaryFile& b) { return a.path < b.path; };
    std::sort(found_.carried.begin(), found_.carried.end(), by_path);
    std::sort(found_.left.begin(), found_.left.end());
    if (catalog_.format() == CheckpointFormat::kTorchSave) MoveUp();
    return std::move(found_);
  }

 private:
  absl::Status MayEnter(const std::string& path, const std::string& name, int depth) {
    const bool closed = name.starts_with('.') || depth == kDeepest || entries_ > kMostEntries || !MayBeWanted(path);
    if (closed && !HoldsOwn(path)) {
      found_.left.push_back(path);
      return absl::OkStatus();
    }
    ASSIGN_OR_RETURN(const std::vector<io::DirectoryEntry> entries,
                     io::ListEntries(io::JoinPath(catalog_.root(), path)));
    const auto has_tensors = [](const io::DirectoryEntry& entry) { return HasTensors(entry.name); };
    if (!HoldsOwn(path) && std::any_of(entries.begin(), entries.end(), has_tensors)) {  // another checkpoint
      found_.left.push_back(path);
      return absl::OkStatus();
    }
    return Enter(path, entries, depth + 1);
  }

  // Whether anything below the directory may be carried: others need not be open to us.
  bool MayBeWanted(std::string_view directory) const {
    if (terms_.none) return false;
    return IsLookedInto(directory) ||
           std::any_of(terms_.also.begin(), terms_.also.end(), [&](std::string_view pattern) {
             const std::string_view begin = pattern.substr(0, pattern.find_first_of("*?"));
             return begin.starts_with(directory) || directory.starts_with(begin);
           });
  }

  // Whether a file of the checkpoint is in it.
  bool HoldsOwn(std::string_view directory) const {
    for (const Catalog::File& file : catalog_.files()) {
      if (file.path.starts_with(directory)) return true;
    }
    return false;
  }

  absl::Status Add(const std::string& path, io::FileKind kind, int depth) {
    const bool wanted =
        !terms_.none && (IsLookedFor(path, catalog_.format() == CheckpointFormat::kDcp) || IsAsked(path));
    bool link = false;
    if (wanted && kind == io::FileKind::kLink) {
      ASSIGN_OR_RETURN(link, LeadsToBlob(path, depth));
    }
    if (!wanted || HasTensors(path) || (kind != io::FileKind::kFile && !link)) {
      found_.left.push_back(path);
      return absl::OkStatus();
    }
    ASSIGN_OR_RETURN(const std::unique_ptr<io::ReadFile> file,
                     io::ReadFile::Open(io::JoinPath(catalog_.root(), path), link));
    found_.carried.push_back({path, file->bytes(), file->modified(), path, MayRun(path)});
    return absl::OkStatus();
  }

  // What is in `huggingface/` goes beside the model, unless something of that name is there.
  void MoveUp() {
    constexpr std::string_view kDirectory = "huggingface/";
    absl::flat_hash_set<std::string> there;
    for (const AuxiliaryFile& file : found_.carried) there.insert(file.path);
    for (AuxiliaryFile& file : found_.carried) {
      if (!file.path.starts_with(kDirectory)) continue;
      const std::string above = file.path.substr(kDirectory.size());
      // A name that is there, or that would be a directory in one place and a file in the other, stays where it is.
      const auto collides = [&](const std::string& other) {
        return other == above || other.starts_with(above + "/") || above.starts_with(other + "/");
      };
      if (std::none_of(there.begin(), there.end(), collides)) {
        there.insert(above);
        file.to = above;
      }
    }
  }

  bool IsAsked(std::string_view path) const { return MatchesAny(terms_.also, path); }

  // A hub's cache is `blobs` with the files and `snapshots/REVISION` with links to them.
  absl::StatusOr<bool> LeadsToBlob(const std::string& path, int depth) const {
    ASSIGN_OR_RETURN(const std::string target, io::TargetOf(io::JoinPath(catalog_.root(), path)));
    std::string up;
    for (int i = 0; i < depth + 2; ++i) up += "../";
    up += "blobs/";
    const bool below = absl::StartsWith(target, up) && target.size() > up.size();
    return below && target.find('/', up.size()) == std::string::npos;
  }

  const Catalog& catalog_;
  const AuxiliaryFileTerms& terms_;
  absl::flat_hash_set<std::string_view> own_;
  size_t entries_ = 0;
  AuxiliaryFiles found_;
};

}  // namespace

namespace {

absl::Status CheckAsked(const AuxiliaryFileTerms& terms, const AuxiliaryFiles& found) {
  std::vector<std::string> paths = found.left;
  for (const AuxiliaryFile& file : found.carried) paths.push_back(file.path);
  for (const std::string& pattern : terms.also) {
    if (terms.may_match_nothing || terms.none) break;
    const auto fits = [&](const std::string& path) { return MatchesPattern(pattern, path); };
    if (std::any_of(paths.begin(), paths.end(), fits)) continue;
    const std::optional<std::string> near = catalog::NearestToPattern(pattern, paths);
    return absl::InvalidArgumentError(absl::StrCat("auxiliary file ", io::Shown(pattern), " matches none of the ",
                                                   paths.size(), " files and folders beside the tensors",
                                                   near ? absl::StrCat("; the nearest is ", io::Shown(*near)) : "",
                                                   "; allow unmatched patterns if this is meant"));
  }
  return absl::OkStatus();
}

}  // namespace

absl::StatusOr<AuxiliaryFiles> Find(const std::string& path, const Catalog& catalog, const AuxiliaryFileTerms& terms) {
  std::string directory = path;
  if (stores::IsUrl(path)) {
    ASSIGN_OR_RETURN(directory, stores::Admit(path));
  } else if (stores::IsUrl(catalog.root())) {
    directory = catalog.root();  // of a reader that knows which files are the checkpoint's own, all of them
  }
  if (std::string meant = DirectoryMeantBy(path); !meant.empty()) directory = std::move(meant);
  const absl::StatusOr<std::vector<io::DirectoryEntry>> entries = io::ListEntries(directory);
  Walk walk(catalog, terms);
  if (absl::IsNotFound(entries.status())) {  // a file
    if (terms.beside_file && !stores::IsUrl(path)) {
      // A directory that may not be listed has nothing to offer.
      const absl::StatusOr<std::vector<std::string>> beside = io::ListDirectory(catalog.root());
      if (beside.ok()) RETURN_IF_ERROR(walk.EnterBesideFile(*beside));
    }
  } else {
    if (!entries.ok()) return entries.status();
    RETURN_IF_ERROR(walk.Enter("", *entries, 0));
  }
  AuxiliaryFiles found = std::move(walk).Take();
  RETURN_IF_ERROR(CheckAsked(terms, found));
  return found;
}

}  // namespace reshard::auxiliary_files

namespace reshard {

absl::StatusOr<AuxiliaryFiles> FindAuxiliaryFiles(const std::string& path, const Catalog& catalog,
                                                  const AuxiliaryFileTerms& terms) {
  return status::NoThrow("looking beside a checkpoint", [&] { return auxiliary_files::Find(path, catalog, terms); });
}

}  // namespace reshard
