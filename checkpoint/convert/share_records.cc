#include "checkpoint/convert/share_records.h"

#include <cstdint>
#include <optional>

#include "absl/strings/match.h"
#include "checkpoint/io/files.h"
#include "status/macros.h"

namespace reshard::convert {

std::vector<output::FinishedPiece> LastRecords(const Share& share, const std::vector<output::FinishedPiece>& records) {
  const auto first = static_cast<uint64_t>(share.first), end = static_cast<uint64_t>(share.end);
  std::vector<std::optional<output::FinishedPiece>> last(static_cast<size_t>(end - first));
  for (const output::FinishedPiece& record : records) {
    if (record.piece >= first && record.piece < end) last[record.piece - first] = record;
  }
  std::vector<output::FinishedPiece> found;
  for (const std::optional<output::FinishedPiece>& record : last) {
    if (record) found.push_back(*record);
  }
  return found;
}

absl::StatusOr<std::vector<output::FinishedPiece>> RecordsOfOthers(const std::string& stage, const std::string& own,
                                                                   std::string_view id) {
  std::vector<output::FinishedPiece> all;
  ASSIGN_OR_RETURN(const std::vector<std::string> names, io::ListDirectory(stage));
  for (const std::string& name : names) {
    const std::string path = io::JoinPath(stage, name);
    if (!absl::StartsWith(name, "journal-") || path == own) continue;
    ASSIGN_OR_RETURN(const std::vector<output::FinishedPiece> records, output::Journal::Look(path, id));
    all.insert(all.end(), records.begin(), records.end());
  }
  return all;
}

}  // namespace reshard::convert
