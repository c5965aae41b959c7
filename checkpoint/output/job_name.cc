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
  std::vector<const Catalog::File*> files;
  std::vector<std::string> names;
  for (const Catalog::File& file : source.files()) {
    if (file.content != nullptr) continue;
    files.push_back(&file);
    names.push_back(file.path);
  }
  const std::vector<absl::StatusOr<io::FileFacts>> now = io::LookAt(source.root(), names, source.traits().may_be_links);
  for (size_t i = 0; i < files.size(); ++i) {
    if (!now[i].ok() && !absl::IsNotFound(now[i].status())) return now[i].status();
    if (!now[i].ok() || now[i]->bytes != files[i]->bytes || now[i]->modified != files[i]->modified) return names[i];
  }
  return std::string();
}

}  // namespace reshard::output
