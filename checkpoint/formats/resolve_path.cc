#include "checkpoint/formats/resolve_path.h"

#include <algorithm>
#include <cstdint>
#include <optional>
#include <string_view>
#include <utility>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_join.h"
#include "checkpoint/formats/dcp/read_dcp.h"
#include "checkpoint/formats/recognize.h"
#include "checkpoint/io/files.h"
#include "checkpoint/io/show.h"
#include "reshard/checkpoint/pattern.h"
#include "status/view.h"

namespace reshard::formats {
namespace {

using Names = std::vector<std::string>;

bool Has(const Names& names, std::string_view name) {
  return std::find(names.begin(), names.end(), name) != names.end();
}

// "model-00002-of-00011.safetensors": the second of 11.
struct Shard {
  std::string_view stem;    // "model"
  std::string_view ending;  // ".safetensors", ".bin"
  int64_t count = 0;
  size_t digits = 0;  // of the number of the shard, and of the count
  size_t count_digits = 0;

  std::string NameOf(int64_t number) const {
    return absl::StrFormat("%s-%0*d-of-%0*d%s", status::View(stem), static_cast<int>(digits), number,
                           static_cast<int>(count_digits), count, status::View(ending));
  }
};

std::optional<Shard> ShardOf(std::string_view name) {
  constexpr std::string_view kOf = "-of-", kDigits = "0123456789";
  Shard shard;
  for (const std::string_view ending : {".safetensors", ".bin"}) {
    if (name.ends_with(ending)) shard.ending = ending;
  }
  if (shard.ending.empty()) return std::nullopt;
  const std::string_view before = name.substr(0, name.size() - shard.ending.size());
  const size_t of = before.rfind(kOf);
  if (of == std::string_view::npos) return std::nullopt;
  const std::string_view count = before.substr(of + kOf.size());
  const size_t dash = before.substr(0, of).rfind('-');
  if (dash == std::string_view::npos) return std::nullopt;
  const std::string_view number = before.substr(dash + 1, of - dash - 1);
  const auto is_number = [&](std::string_view text) {
    return !text.empty() && text.size() <= 9 && text.find_first_not_of(kDigits) == std::string_view::npos;
  };
  int64_t own = 0;
  if (!is_number(count) || !is_number(number) || !absl::SimpleAtoi(status::View(count), &shard.count) ||
      !absl::SimpleAtoi(status::View(number), &own) || own < 1 || own > shard.count || shard.count < 2) {
    return std::nullopt;
  }
  shard.stem = before.substr(0, dash);
  shard.digits = number.size();
  shard.count_digits = count.size();
  return shard;
}

// The model that a shard is a part of.
absl::StatusOr<Meant> ModelOf(const Shard& shard, const std::string& name, const std::string& directory,
                              const Names& names) {
  const bool safetensors = shard.ending == ".safetensors";
  std::string index = absl::StrCat(status::View(shard.stem), status::View(shard.ending), ".index.json");
  if (Has(names, index)) {
    return Meant{safetensors ? Meant::As::kIndex : Meant::As::kBinIndex, directory, {std::move(index)}};
  }
  if (!safetensors) return Meant{Meant::As::kDirectory, directory};
  constexpr int64_t kMostShards = 100'000;
  Names files, missing;
  for (int64_t i = 1; i <= std::min(shard.count, kMostShards); ++i) {
    std::string file = shard.NameOf(i);
    (Has(names, file) ? files : missing).push_back(std::move(file));
  }
  if (missing.empty()) return Meant{Meant::As::kFiles, directory, std::move(files)};
  constexpr size_t kShown = 5;
  const size_t count = missing.size();
  missing.resize(std::min(count, kShown));
  return absl::DataLossError(absl::StrCat(io::Shown(name), " is one of ", shard.count, " parts of a model, of which ",
                                          count, " are missing in ", io::Shown(directory), ": ",
                                          absl::StrJoin(missing, ", "), count > kShown ? ", ..." : "",
                                          "; put all parts of it into one folder"));
}

}  // namespace

absl::StatusOr<Meant> FindMeant(const std::string& path) {
  const size_t slash = path.rfind('/');
  const std::string name = path.substr(slash == path.npos ? 0 : slash + 1);
  const std::string directory = slash == path.npos ? "." : slash == 0 ? "/" : path.substr(0, slash);
  const bool is_metadata = name == ".metadata" || MatchesPattern("__*.metadata", name) || name.ends_with(".distcp");
  const std::optional<Shard> shard = ShardOf(name);
  const bool is_rank = MatchesPattern("model_world_size_*_rank_*.pt", name) && !name.starts_with("model_world_size_1_");
  const bool is_megatron = IsFileOfMegatron(path);
  if (!is_metadata && !shard && !is_rank && !is_megatron && name != "reshard.json" && !name.ends_with(".index.json")) {
    return Meant{};
  }
  // Links are how hubs keep their files.
  const absl::StatusOr<io::FileKind> kind = io::KindOf(path);
  if (!kind.ok() || (*kind != io::FileKind::kFile && *kind != io::FileKind::kLink)) return Meant{};
  if (is_megatron) {
    if (absl::Status alone = CheckAlone(path); !alone.ok()) return alone;
    return Meant{};
  }
  if (name == "reshard.json") return Meant{Meant::As::kDirectory, directory};
  if (name.ends_with(".safetensors.index.json")) return Meant{Meant::As::kIndex, directory, {name}};
  if (name.ends_with(".bin.index.json")) return Meant{Meant::As::kBinIndex, directory, {name}};
  const absl::StatusOr<Names> names = io::ListDirectory(directory);
  if (!names.ok()) return Meant{};
  if (is_metadata && !dcp::MetadataFiles(*names).empty()) return Meant{Meant::As::kDcp, directory};
  if (shard) return ModelOf(*shard, name, directory, *names);
  if (is_rank) return Meant{Meant::As::kDirectory, directory};
  return Meant{};
}

}  // namespace reshard::formats
