#include "checkpoint/formats/dcp/write_metadata.h"

#include <utility>
#include <variant>

#include "checkpoint/formats/pickle/writer.h"
#include "checkpoint/formats/torch_save/torch_dtype.h"

namespace reshard::dcp {
namespace {

constexpr std::string_view kModule = "torch.distributed.checkpoint.metadata";

// Values that come again with every tensor.
enum Slot : int64_t { kStrided, kMemoryFormat };

void Begin(std::string_view module, std::string_view name, pickle::PickleWriter* out) {
  out->Global(module, name);
  out->EmptyTuple();
  out->NewObject();
}

void WriteSize(absl::Span<const int64_t> sizes, pickle::PickleWriter* out) {
  out->Global("torch", "Size");
  out->BeginTuple();
  for (const int64_t size : sizes) out->Int(size);
  out->EndTuple();
  out->WrapInTuple();
  out->Reduce();
}

void WriteProperties(const MetadataTensor& tensor, pickle::PickleWriter* out) {
  Begin(kModule, "TensorProperties", out);
  out->BeginTuple();
  out->Global("torch", torch_save::TorchName(tensor.dtype));
  if (!out->Recall(kStrided)) {
    out->Global("torch.serialization", "_get_layout");
    out->BeginTuple();
    out->Text("torch.strided");
    out->EndTuple();
    out->Reduce();
    out->Remember(kStrided);
  }
  out->Bool(tensor.requires_grad);
  if (!out->Recall(kMemoryFormat)) {
    out->Global(kModule, "_MEM_FORMAT_ENCODING");
    out->BeginTuple();
    out->Int(0);  // torch.contiguous_format
    out->EndTuple();
    out->Reduce();
    out->Remember(kMemoryFormat);
  }
  out->Bool(false);  // not pinned
  out->EndTuple();
  out->Build();
}

void WriteTensor(const MetadataTensor& tensor, pickle::PickleWriter* out) {
  Begin(kModule, "TensorStorageMetadata", out);
  out->BeginDict();
  out->Word("properties");
  WriteProperties(tensor, out);
  out->Word("size");
  WriteSize(tensor.shape, out);
  out->Word("chunks");
  out->BeginList();
  for (const Catalog::Chunk& chunk : tensor.chunks) {
    Begin(kModule, "ChunkStorageMetadata", out);
    out->BeginDict();
    out->Word("offsets");
    WriteSize(chunk.offset, out);
    out->Word("sizes");
    WriteSize(chunk.size, out);
    out->EndDict();
    out->Build();
  }
  out->EndList();
  out->EndDict();
  out->Build();
}

void WritePlace(const Catalog::FileRange& place, absl::Span<const std::string> files, pickle::PickleWriter* out) {
  Begin("torch.distributed.checkpoint.filesystem", "_StorageInfo", out);
  out->BeginDict();
  out->Word("relative_path");
  out->Word(files[place.file]);
  out->Word("offset");
  out->Int(place.at);
  out->Word("length");
  out->Int(place.length);
  out->EndDict();
  out->Build();
}

}  // namespace

std::string WriteMetadata(absl::Span<const MetadataTensor> tensors, absl::Span<const MetadataBytes> byte_items,
                          absl::Span<const MetadataPath> paths, absl::Span<const std::string> files,
                          absl::Span<const Catalog::Attribute> attributes, std::string_view checkpoint_id,
                          std::string_view save_id) {
  pickle::PickleWriter out;
  Begin(kModule, "Metadata", &out);
  out.BeginDict();

  out.Text("state_dict_metadata");
  out.BeginDict();
  for (const MetadataBytes& item : byte_items) {
    out.Word(item.name);
    Begin(kModule, "BytesStorageMetadata", &out);
  }
  for (const MetadataTensor& tensor : tensors) {
    out.Word(tensor.name);
    WriteTensor(tensor, &out);
  }
  out.EndDict();

  out.Text("planner_data");
  out.BeginDict();
  for (const MetadataPath& entry : paths) {
    out.Word(entry.name);
    out.BeginTuple();
    for (const Catalog::PathStep& step : *entry.path) {
      if (const auto* key = std::get_if<std::string>(&step)) {
        out.Word(*key);
      } else {
        out.Int(std::get<int64_t>(step));
      }
    }
    out.EndTuple();
  }
  out.EndDict();

  out.Text("storage_data");
  out.BeginDict();
  // `number`: among the chunks of the tensor. Readers find the chunk by it; what counts is the offset.
  const auto index = [&out](std::string_view name, const absl::Span<const int64_t>* offset, int64_t number) {
    Begin(kModule, "MetadataIndex", &out);
    out.BeginDict();
    out.Word("fqn");
    out.Word(name);
    out.Word("index");
    if (offset == nullptr) {
      out.None();
    } else {
      out.Int(number);
      out.Word("offset");
      WriteSize(*offset, &out);
    }
    out.EndDict();
    out.Build();
  };
  for (const MetadataBytes& item : byte_items) {
    index(item.name, nullptr, 0);
    WritePlace(item.place, files, &out);
  }
  for (const MetadataTensor& tensor : tensors) {
    for (size_t i = 0; i < tensor.chunks.size(); ++i) {
      const Catalog::Chunk& chunk = tensor.chunks[i];
      index(tensor.name, &chunk.offset, static_cast<int64_t>(i));
      WritePlace(chunk.place, files, &out);
    }
  }
  out.EndDict();

  out.Text("storage_meta");
  Begin(kModule, "StorageMeta", &out);
  out.BeginDict();
  out.Text("checkpoint_id");
  out.Text(checkpoint_id);
  out.Text("save_id");
  out.Text(save_id);
  out.Text("load_id");
  out.None();
  out.Text("modules");
  out.BeginList();
  out.EndList();
  out.EndDict();
  out.Build();

  out.Text("version");
  out.Text("1.0.0");
  for (const Catalog::Attribute& attribute : attributes) {
    if (attribute.of_files || attribute.pickle.empty()) continue;
    out.Text(attribute.name);
    out.ValueOf(attribute.pickle);
  }
  out.EndDict();
  out.Build();
  return std::move(out).Finish();
}

}  // namespace reshard::dcp
