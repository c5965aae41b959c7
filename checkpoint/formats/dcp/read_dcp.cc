#include "checkpoint/formats/dcp/read_dcp.h"

#include <algorithm>
#include <cstdint>
#include <memory>
#include <optional>
#include <string_view>
#include <utility>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "checkpoint/catalog/catalog_builder.h"
#include "checkpoint/formats/dcp/format.h"
#include "checkpoint/formats/dcp/read_metadata.h"
#include "checkpoint/io/files.h"
#include "checkpoint/io/show.h"
#include "status/macros.h"
#include "status/view.h"

namespace reshard::dcp {
namespace {

// N of "__N.metadata".
std::optional<int64_t> RankOf(std::string_view name) {
  constexpr std::string_view kBefore = "__";
  constexpr std::string_view kAfter = kMetadataName;
  if (name.size() <= kBefore.size() + kAfter.size() || name.substr(0, 2) != kBefore ||
      name.substr(name.size() - kAfter.size()) != kAfter) {
    return std::nullopt;
  }
  const std::string_view digits = name.substr(2, name.size() - kBefore.size() - kAfter.size());
  int64_t rank = 0;
  if (digits.find_first_not_of("0123456789") != std::string_view::npos) return std::nullopt;
  if (!absl::SimpleAtoi(status::View(digits), &rank)) return std::nullopt;
  return rank;
}

}  // namespace

std::vector<std::string> MetadataFiles(absl::Span<const std::string> names) {
  std::vector<std::pair<int64_t, std::string>> of_ranks;
  for (const std::string& name : names) {
    if (name == kMetadataName) return {name};
    if (const std::optional<int64_t> rank = RankOf(name)) of_ranks.emplace_back(*rank, name);
  }
  std::sort(of_ranks.begin(), of_ranks.end());
  std::vector<std::string> files;
  for (auto& [rank, name] : of_ranks) files.push_back(std::move(name));
  return files;
}

absl::StatusOr<Catalog> ReadDcpCatalog(const std::string& directory, absl::Span<const std::string> metadata,
                                       const CatalogLimits& limits) {
  catalog::CatalogBuilder builder(kFormat, directory);
  for (const std::string& name : metadata) {
    ASSIGN_OR_RETURN(const std::unique_ptr<io::ReadFile> file, io::ReadFile::Open(io::JoinPath(directory, name)));
    RETURN_IF_ERROR(file->CheckSize(limits.metadata_bytes));
    if (const absl::Status read = ReadMetadata(*file, limits, &builder); !read.ok()) {
      return absl::Status(read.code(), absl::StrCat(file->path(), ": ", read.message()));
    }
  }
  return std::move(builder).Build();
}

}  // namespace reshard::dcp
