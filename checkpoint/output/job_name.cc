#include "checkpoint/output/job_name.h"

#include <cstdint>
#include <memory>
#include <string_view>
#include <vector>

#include "checkpoint/catalog/catalog_hash.h"
#include "checkpoint/catalog/format_traits.h"
#include "checkpoint/hash/digest.h"
#include "checkpoint/io/files.h"

namespace reshard::output {

std::string JobName(const Catalog& source, const OutputPlan& plan) {
  hash::Digest digest;
  digest.Add(std::string_view(source.root()));
  digest.Add(std::string_view(catalog::HashOfCatalog(source).ToText()));
  for (const OutputPlan::File& file : plan.files()) {
    digest.Add(std::string_view(file.name));
    digest.Add(file.bytes);
    digest.Add(std::string_view(file.head));
  }
  for (const OutputPlan::OutputPiece& piece : plan.pieces()) {
    digest.Add({piece.tensor, piece.item});
    digest.Add(plan.offset(piece));
    digest.Add(plan.size(piece));
    digest.Add({piece.place.file, piece.payload_at});
  }
  for (const std::string& layout : plan.layouts()) digest.Add(std::string_view(layout));
  return digest.Hash().ToText();
}

std::string SourceState(const Catalog& source) {
  hash::Digest digest;
  for (const Catalog::File& file : source.files()) digest.Add({file.bytes, file.modified});
  return digest.Hash().ToText();
}

absl::StatusOr<std::string> ChangedFile(const Catalog& source) {
  for (const Catalog::File& file : source.files()) {
    if (file.content != nullptr) continue;
    const absl::StatusOr<std::unique_ptr<io::ReadFile>> now =
        io::ReadFile::Open(io::JoinPath(source.root(), file.path), source.traits().may_be_links);
    if (!now.ok() && !absl::IsNotFound(now.status())) return now.status();
    if (!now.ok() || (*now)->bytes() != file.bytes || (*now)->modified() != file.modified) return file.path;
  }
  return std::string();
}

}  // namespace reshard::output
