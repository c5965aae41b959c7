#include "checkpoint/job/share_records.h"

#include <cstdint>
#include <optional>

#include "absl/strings/match.h"
#include "checkpoint/io/files.h"

namespace reshard {

std::vector<FinishedPiece> LastRecords(const Share& share, const std::vector<FinishedPiece>& records) {
  const auto first = static_cast<uint64_t>(share.first), end = static_cast<uint64_t>(share.end);
  std::vector<std::optional<FinishedPiece>> last(static_cast<size_t>(end - first));
  for (const FinishedPiece& record : records) {
    if (record.piece >= first && record.piece < end) last[static_cast<size_t>(record.piece - first)] = record;
  }
  std::vector<FinishedPiece> found;
  for (const std::optional<FinishedPiece>& record : last) {
    if (record) found.push_back(*record);
  }
  return found;
}

absl::StatusOr<std::vector<FinishedPiece>> RecordsOfOthers(const std::string& stage, const std::string& own,
                                                           std::string_view id) {
  std::vector<FinishedPiece> all;
  const absl::StatusOr<std::vector<std::string>> names = ListDirectory(stage);
  if (!names.ok()) return names.status();
  for (const std::string& name : *names) {
    const std::string path = JoinPath(stage, name);
    if (!absl::StartsWith(name, "journal-") || path == own) continue;
    const absl::StatusOr<std::vector<FinishedPiece>> records = Journal::Look(path, id);
    if (!records.ok()) return records.status();
    all.insert(all.end(), records->begin(), records->end());
  }
  return all;
}

}  // namespace reshard
