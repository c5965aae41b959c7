#include "checkpoint/formats/deepspeed/files.h"

#include <algorithm>
#include <cstdint>
#include <map>
#include <string_view>
#include <utility>

#include "absl/status/status.h"
#include "absl/strings/ascii.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "checkpoint/io/files.h"
#include "reshard/checkpoint/filesystem.h"
#include "reshard/checkpoint/pattern.h"
#include "status/macros.h"
#include "status/view.h"

namespace reshard::deepspeed {
namespace {

constexpr std::string_view kRank = "zero_pp_rank_", kModelRank = "mp_rank_";

// The number after `mark` in a name; -1 where there is none.
int64_t NumberAfter(std::string_view name, std::string_view mark) {
  const size_t at = name.find(mark);
  if (at == name.npos) return -1;
  const std::string_view rest = name.substr(at + mark.size());
  int64_t number = 0;
  return absl::SimpleAtoi(status::View(rest.substr(0, rest.find('_'))), &number) ? number : -1;
}

// The files by rank; those of 0 to the last one are there.
absl::StatusOr<std::vector<std::string>> InOrder(const std::map<int64_t, std::string>& by_rank,
                                                 const std::string& within) {
  std::vector<std::string> files;
  for (const auto& [rank, name] : by_rank) {
    if (rank != static_cast<int64_t>(files.size())) {
      return absl::DataLossError(absl::StrCat("the file of rank ", files.size(), " is missing beside ", name));
    }
    files.push_back(within + name);
  }
  return files;
}

absl::StatusOr<Files> FindAmong(absl::Span<const std::string> names, std::string within) {
  std::map<int64_t, std::string> models, optimizers;
  Files files;
  files.within = std::move(within);
  for (const std::string& name : names) {
    files.is_universal |= name == "zero";
    const bool is_optimizer = name.ends_with("_optim_states.pt");
    if (!is_optimizer && !name.ends_with("model_states.pt")) continue;
    if (MatchesPattern("layer_*", name) || MatchesPattern("expp_rank_*", name)) {
      return absl::UnimplementedError(
          absl::StrCat(name,
                       " has a part of a model, a stage of a pipeline or experts, which are not joined; DeepSpeed's "
                       "ds_to_universal.py joins stages of a pipeline"));
    }
    if (NumberAfter(name, kModelRank) > 0) {
      return absl::UnimplementedError(absl::StrCat(
          name,
          " has the part of a model-parallel rank, which are not joined; DeepSpeed's ds_to_universal.py joins them"));
    }
    const int64_t rank = std::max<int64_t>(NumberAfter(name, kRank), 0);
    if (!(is_optimizer ? optimizers : models).emplace(rank, name).second) {
      return absl::InvalidArgumentError(absl::StrCat("two files of rank ", rank, ", one of them ", name));
    }
  }
  ASSIGN_OR_RETURN(files.models, InOrder(models, files.within));
  ASSIGN_OR_RETURN(files.optimizers, InOrder(optimizers, files.within));
  if (files.models.empty() && !files.optimizers.empty()) {
    return absl::DataLossError(absl::StrCat("the file *_model_states.pt is missing beside ", files.optimizers[0]));
  }
  if (files.models.size() > 1 && !files.is_universal && files.models.size() != files.optimizers.size()) {
    return absl::DataLossError(absl::StrCat("there are ", files.models.size(), " files of models and ",
                                            files.optimizers.size(), " of optimizers: some are missing"));
  }
  return files;
}

}  // namespace

absl::StatusOr<Files> FindFiles(const std::string& directory, absl::Span<const std::string> names) {
  ASSIGN_OR_RETURN(Files files, FindAmong(names, ""));
  if (!files.empty()) return files;
  constexpr int64_t kLongestTag = 4096;
  for (const char* const latest : {"latest", "latest_universal"}) {
    if (std::find(names.begin(), names.end(), latest) == names.end()) continue;
    const absl::StatusOr<std::string> text = ReadSmallFile(io::JoinPath(directory, latest), kLongestTag);
    if (!text.ok()) continue;
    const std::string tag(absl::StripAsciiWhitespace(*text));
    if (!io::CheckRelativePath(tag).ok()) continue;
    const absl::StatusOr<std::vector<std::string>> inside = io::ListDirectory(io::JoinPath(directory, tag));
    if (!inside.ok()) continue;
    ASSIGN_OR_RETURN(files, FindAmong(*inside, tag + "/"));
    if (!files.empty()) return files;
  }
  return files;
}

}  // namespace reshard::deepspeed
