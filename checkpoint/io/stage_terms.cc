#include "checkpoint/io/stage_terms.h"

#include <memory>
#include <vector>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "checkpoint/io/file_lock.h"
#include "checkpoint/io/files.h"
#include "checkpoint/io/show.h"
#include "checkpoint/io/whole_file.h"
#include "status/macros.h"
#include "status/view.h"

namespace reshard::io {
namespace {

// Empty if there are none, or if they were not written completely.
absl::StatusOr<std::string> TermsIn(const std::string& path) {
  constexpr int64_t kLongest = 4096;
  const absl::StatusOr<std::unique_ptr<ReadFile>> file = ReadFile::Open(path);
  if (absl::IsNotFound(file.status())) return std::string();
  if (!file.ok()) return file.status();
  ASSIGN_OR_RETURN(std::string text, (*file)->ReadAll(kLongest));
  if (!absl::EndsWith(text, "\n")) return std::string();
  text.pop_back();
  return text;
}

}  // namespace

absl::StatusOr<bool> OthersLive(const std::string& stage, const std::string& own) {
  ASSIGN_OR_RETURN(std::vector<std::string> names, ListDirectory(stage));
  for (const std::string& name : names) {
    if (!absl::StartsWith(name, "lock-") || name == own) continue;
    const absl::StatusOr<bool> held = FileLock::IsHeld(JoinPath(stage, name));
    if (!held.ok() || *held) return held;
  }
  return false;
}

absl::Status AgreeOnTerms(const std::string& stage, const std::string& own, std::string_view terms) {
  const std::string path = JoinPath(stage, "terms");
  ASSIGN_OR_RETURN(const std::string found, TermsIn(path));
  if (found == terms) return absl::OkStatus();
  if (!found.empty()) {
    ASSIGN_OR_RETURN(const bool others, OthersLive(stage, own));
    if (others) {
      return absl::FailedPreconditionError(absl::StrCat("running processes have other options: they have ",
                                                        Shown(found), ", this one has ", Shown(terms), ", in ", stage));
    }
  }
  // No other process is in here: a torn file is that of a process that has died.
  return WriteWholeFile(path, absl::StrCat(status::View(terms), "\n"));
}

}  // namespace reshard::io
