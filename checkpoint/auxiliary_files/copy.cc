#include "checkpoint/auxiliary_files/copy.h"

#include <algorithm>
#include <cstdint>
#include <memory>
#include <string_view>

#include "absl/strings/str_cat.h"
#include "checkpoint/io/files.h"
#include "checkpoint/io/remove_tree.h"
#include "checkpoint/io/show.h"
#include "checkpoint/stores/registry.h"
#include "checkpoint/stores/url.h"
#include "status/macros.h"

namespace reshard::auxiliary_files {
namespace {

constexpr int64_t kAtOnce = int64_t{256} << 10;
constexpr int64_t kUploadMemory = int64_t{16} << 20;

// Calls part(at, bytes) for the file's bytes in turn until it returns an error.
template <typename F>
absl::Status ForEachPart(const io::ReadFile& file, const F& part) {
  std::string buffer;
  for (int64_t at = 0; at < file.bytes(); at += kAtOnce) {
    buffer.resize(std::min(kAtOnce, file.bytes() - at));
    RETURN_IF_ERROR(file.ReadAt(at, absl::MakeSpan(buffer)));
    RETURN_IF_ERROR(part(at, buffer));
  }
  return absl::OkStatus();
}

// Links were looked at when the file was found.
absl::StatusOr<std::unique_ptr<io::ReadFile>> OpenUnchanged(const std::string& from, const AuxiliaryFile& file) {
  absl::StatusOr<std::unique_ptr<io::ReadFile>> open = io::ReadFile::Open(io::JoinPath(from, file.path), true);
  if (open.ok() ? (*open)->bytes() == file.bytes && (*open)->modified() == file.modified
                : !absl::IsNotFound(open.status())) {
    return open;
  }
  return absl::FailedPreconditionError(
      absl::StrCat("the source was written to while it was read: ", io::Shown(file.path)));
}

// An object appears when all of it is there.
absl::Status CopyToStore(const io::ReadFile& source, const std::string& url) {
  ASSIGN_OR_RETURN(const std::shared_ptr<Store> store, stores::StoreOf(url));
  ASSIGN_OR_RETURN(const std::unique_ptr<ObjectUpload> upload, store->Begin(url, source.bytes(), kUploadMemory));
  RETURN_IF_ERROR(ForEachPart(source, [&](int64_t, const std::string& bytes) { return upload->Write(bytes); }));
  return upload->Finish().status();
}

absl::Status CopyOne(const std::string& from, const AuxiliaryFile& file, const std::string& to) {
  ASSIGN_OR_RETURN(const std::unique_ptr<io::ReadFile> source, OpenUnchanged(from, file));
  const std::string path = io::JoinPath(to, file.to);
  if (stores::IsUrl(to)) {
    RETURN_IF_ERROR(CopyToStore(*source, path));
    return OpenUnchanged(from, file).status();
  }
  RETURN_IF_ERROR(io::MakeParents(to, file.to));
  RETURN_IF_ERROR(io::RemoveTree(path));  // an interrupted run may have left one
  ASSIGN_OR_RETURN(const std::unique_ptr<io::WriteFile> copy,
                   io::WriteFile::Create(path, stores::IsUrl(from) ? 0 : file.bytes));
  RETURN_IF_ERROR(ForEachPart(*source, [&](int64_t at, const std::string& bytes) { return copy->WriteAt(at, bytes); }));
  RETURN_IF_ERROR(copy->Sync());
  RETURN_IF_ERROR(copy->Close());
  return OpenUnchanged(from, file).status();
}

absl::StatusOr<bool> IsSame(const io::ReadFile& source, const std::string& path) {
  const absl::StatusOr<std::unique_ptr<io::ReadFile>> copy = io::ReadFile::Open(path, true);
  if (absl::IsNotFound(copy.status())) return false;
  if (!copy.ok()) return copy.status();
  if ((*copy)->bytes() != source.bytes()) return false;
  bool same = true;
  std::string other;
  RETURN_IF_ERROR(ForEachPart(source, [&](int64_t at, const std::string& bytes) {
    other.resize(bytes.size());
    absl::Status read = (*copy)->ReadAt(at, absl::MakeSpan(other));
    same = same && (!read.ok() || other == bytes);
    return read;
  }));
  return same;
}

}  // namespace

absl::Status Copy(const std::string& from, absl::Span<const AuxiliaryFile> files, const std::string& to) {
  for (const AuxiliaryFile& file : files) {
    RETURN_IF_ERROR(CopyOne(from, file, to));
  }
  return absl::OkStatus();
}

absl::StatusOr<size_t> FirstDifferent(const std::string& from, absl::Span<const AuxiliaryFile> files,
                                      const std::string& to) {
  for (size_t i = 0; i < files.size(); ++i) {
    ASSIGN_OR_RETURN(const std::unique_ptr<io::ReadFile> source, OpenUnchanged(from, files[i]));
    ASSIGN_OR_RETURN(const bool same, IsSame(*source, io::JoinPath(to, files[i].to)));
    if (!same) return i;
  }
  return files.size();
}

}  // namespace reshard::auxiliary_files
