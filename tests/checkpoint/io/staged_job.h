// A small job that puts a directory in its place, and what is then on the disk.
#ifndef RESHARD_TESTS_CHECKPOINT_IO_STAGED_JOB_H_
#define RESHARD_TESTS_CHECKPOINT_IO_STAGED_JOB_H_

#include <map>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "checkpoint/io/staged_directory.h"

namespace reshard::testing {

// Relative path -> content, of the files below a directory.
using Content = std::map<std::string, std::string>;

// Two files, one of them in a directory, in which `word` stands.
Content ContentOf(const std::string& word);
inline const Content kOld = ContentOf("old");
inline const Content kNew = ContentOf("new");

// What is at `path`: no files for an empty directory, {"": "nothing"} where there is nothing, "link", "no directory".
Content ContentAt(const std::string& path);
void PutContent(const std::string& path, const Content& content);
std::vector<std::string> NamesIn(const std::string& directory);

// Writes the files into what was begun, through the current system.
absl::Status Fill(const io::StagedDirectory& staged, const Content& content);

// Begin, Fill unless it was committed, Commit.
absl::Status RunJob(const std::string& destination, const Content& content, const io::StageOptions& options);

}  // namespace reshard::testing

#endif  // RESHARD_TESTS_CHECKPOINT_IO_STAGED_JOB_H_
