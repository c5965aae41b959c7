#include "checkpoint/job/job_name.h"

#include <cstdint>
#include <memory>
#include <string_view>
#include <vector>

#include "checkpoint/io/files.h"
#include "checkpoint/job/hash.h"

namespace reshard {
namespace {

class Digest {
 public:
  void Add(int64_t value) { hasher_.Add({reinterpret_cast<const char*>(&value), sizeof(value)}); }
  void Add(absl::Span<const int64_t> values) {
    for (const int64_t value : values) Add(value);
  }
  void Add(std::string_view text) {
    Add(static_cast<int64_t>(text.size()));
    hasher_.Add(text);
  }
  std::string Text() const { return hasher_.Finish().ToText(); }

 private:
  ContentHasher hasher_;
};

void AddSource(const Catalog& source, Digest* digest) {
  digest->Add(std::string_view(source.root()));
  for (const Catalog::File& file : source.files()) {
    digest->Add(std::string_view(file.path));
    digest->Add(file.bytes);
  }
  for (const Catalog::ByteItem& item : source.byte_items()) {
    digest->Add(item.name);
    digest->Add({item.place.file, item.place.at, item.place.length});
  }
  for (const Catalog::Tensor& tensor : source.tensors()) {
    digest->Add(tensor.name);
    digest->Add(tensor.stored_dtype);
    digest->Add(int64_t{tensor.requires_grad});
    for (int64_t i = 0; i < tensor.num_chunks; ++i) {
      const Catalog::Chunk chunk = source.chunk(tensor, i);
      digest->Add(chunk.offset);
      digest->Add(chunk.size);
      digest->Add({chunk.place.file, chunk.place.at});
    }
  }
}

}  // namespace

std::string JobName(const Catalog& source, const OutputPlan& plan) {
  Digest digest;
  AddSource(source, &digest);
  for (const OutputPlan::File& file : plan.files()) {
    digest.Add(std::string_view(file.name));
    digest.Add(file.bytes);
    digest.Add(std::string_view(file.head));
  }
  for (const OutputPlan::Piece& piece : plan.pieces()) {
    digest.Add({piece.tensor, piece.item});
    digest.Add(plan.offset(piece));
    digest.Add(plan.size(piece));
    digest.Add({piece.place.file, piece.payload_at});
  }
  for (const std::string& layout : plan.layouts()) digest.Add(std::string_view(layout));
  return digest.Text();
}

std::string SourceState(const Catalog& source) {
  Digest digest;
  for (const Catalog::File& file : source.files()) digest.Add({file.bytes, file.modified});
  return digest.Text();
}

absl::StatusOr<std::string> ChangedFile(const Catalog& source) {
  const bool follow_links = source.format() == CheckpointFormat::kSafetensors;
  for (const Catalog::File& file : source.files()) {
    const absl::StatusOr<std::unique_ptr<ReadFile>> now =
        ReadFile::Open(JoinPath(source.root(), file.path), follow_links);
    if (!now.ok() && !absl::IsNotFound(now.status())) return now.status();
    if (!now.ok() || (*now)->bytes() != file.bytes || (*now)->modified() != file.modified) return file.path;
  }
  return std::string();
}

}  // namespace reshard
