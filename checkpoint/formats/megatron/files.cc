#include "checkpoint/formats/megatron/files.h"

#include <algorithm>
#include <iterator>
#include <optional>
#include <string_view>

#include "absl/status/status.h"
#include "absl/strings/ascii.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_split.h"
#include "checkpoint/io/files.h"
#include "checkpoint/io/show.h"
#include "reshard/checkpoint/filesystem.h"
#include "reshard/checkpoint/pattern.h"
#include "status/macros.h"
#include "status/view.h"

namespace reshard::megatron {
namespace {

constexpr int64_t kMostRanks = 1 << 20;  // along an axis
constexpr std::string_view kDirectoryOfRank = "mp_rank_";
constexpr std::string_view kLatest = "latest_checkpointed_iteration.txt";
constexpr const char* kFileNames[] = {"model_optim_rng.pt", "model_rng.pt"};

// {1, 2} of "mp_rank_01_002"; nothing of anything else.
std::optional<std::vector<int64_t>> NumbersOf(std::string_view name) {
  if (!name.starts_with(kDirectoryOfRank)) return std::nullopt;
  std::vector<int64_t> numbers;
  for (const absl::string_view text : absl::StrSplit(status::View(name.substr(kDirectoryOfRank.size())), '_')) {
    int64_t number = 0;
    const bool is_number = !text.empty() && std::all_of(text.begin(), text.end(), absl::ascii_isdigit);
    if (!is_number || !absl::SimpleAtoi(text, &number) || number >= kMostRanks) return std::nullopt;
    numbers.push_back(number);
  }
  return numbers;
}

absl::StatusOr<std::string> FileIn(const std::string& directory, const std::string& of_rank) {
  for (const char* const name : kFileNames) {
    const std::string inside = io::JoinPath(of_rank, name);
    ASSIGN_OR_RETURN(const io::FileKind kind, io::KindOf(io::JoinPath(directory, inside)));
    if (kind == io::FileKind::kFile || kind == io::FileKind::kLink) return inside;
  }
  return absl::DataLossError(absl::StrCat(io::Shown(of_rank), " has no file ", kFileNames[0]));
}

absl::StatusOr<std::vector<RankFile>> FindAmong(const std::string& directory, absl::Span<const std::string> names,
                                                const std::string& within) {
  std::vector<RankFile> files;
  for (const std::string& name : names) {
    std::optional<std::vector<int64_t>> numbers = NumbersOf(name);
    // A file with such a name is one of DeepSpeed, or something else.
    if (!numbers || !io::ListDirectory(io::JoinPath(directory, within + name)).ok()) continue;
    ASSIGN_OR_RETURN(std::string file, FileIn(directory, within + name));
    files.push_back({std::move(file), *std::move(numbers)});
  }
  std::sort(files.begin(), files.end(), [](const RankFile& a, const RankFile& b) { return a.numbers < b.numbers; });
  for (const RankFile& file : files) {
    if (file.numbers.size() == files[0].numbers.size()) continue;
    return absl::DataLossError(absl::StrCat(io::Shown(files[0].name), " and ", io::Shown(file.name),
                                            " are of jobs with different parallelism: remove what is not of this one"));
  }
  return files;
}

}  // namespace

absl::StatusOr<std::vector<RankFile>> FindFiles(const std::string& directory, absl::Span<const std::string> names) {
  ASSIGN_OR_RETURN(std::vector<RankFile> files, FindAmong(directory, names, ""));
  if (!files.empty() || std::find(names.begin(), names.end(), kLatest) == names.end()) return files;
  constexpr int64_t kLongest = 64;
  const absl::StatusOr<std::string> text = ReadSmallFile(io::JoinPath(directory, std::string(kLatest)), kLongest);
  if (!text.ok()) return files;
  const std::string said(absl::StripAsciiWhitespace(*text));
  int64_t iteration = 0;
  if (said != "release" && (!absl::SimpleAtoi(said, &iteration) || iteration < 0)) return files;
  const std::string within = said == "release" ? said : absl::StrFormat("iter_%07d", iteration);
  const absl::StatusOr<std::vector<std::string>> inside = io::ListDirectory(io::JoinPath(directory, within));
  if (!inside.ok()) return files;
  return FindAmong(directory, *inside, within + "/");
}

bool IsFileOfRank(std::string_view path) {
  return std::any_of(std::begin(kFileNames), std::end(kFileNames),
                     [&](const char* name) { return MatchesPattern(absl::StrCat("*mp_rank_*/", name), path); });
}

std::string DirectoryOfRanks(const std::string& path) {
  const std::string directory = path.substr(0, path.rfind('/'));
  const size_t slash = directory.rfind('/');
  std::string above = slash == directory.npos ? "." : slash == 0 ? "/" : directory.substr(0, slash);
  const absl::StatusOr<std::vector<std::string>> names = io::ListDirectory(above);
  const auto is_rank = [](const std::string& name) { return NumbersOf(name).has_value(); };
  const bool several = names.ok() && std::count_if(names->begin(), names->end(), is_rank) > 1;
  return several ? std::move(above) : "";
}

}  // namespace reshard::megatron
