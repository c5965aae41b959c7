#include "checkpoint/formats/pickle/names.h"

namespace reshard::pickle {
namespace {

struct Row {
  std::string_view module;
  std::string_view name;
  Known known;
};

constexpr std::string_view kCheckpoint = "torch.distributed.checkpoint.metadata";
// Until PyTorch 2.3 some of the classes lived there.
constexpr std::string_view kSharded = "torch.distributed._shard.sharded_tensor.metadata";
// Python 2 called it otherwise.
constexpr std::string_view kBuiltins[] = {"builtins", "__builtin__"};
constexpr Row kRows[] = {
    {kCheckpoint, "Metadata", Known::kMetadata},
    {kCheckpoint, "TensorStorageMetadata", Known::kTensorStorageMetadata},
    {kCheckpoint, "BytesStorageMetadata", Known::kBytesStorageMetadata},
    {kCheckpoint, "ChunkStorageMetadata", Known::kChunkStorageMetadata},
    {kCheckpoint, "TensorProperties", Known::kTensorProperties},
    {kCheckpoint, "MetadataIndex", Known::kMetadataIndex},
    {kCheckpoint, "StorageMeta", Known::kStorageMeta},
    {kSharded, "TensorProperties", Known::kTensorProperties},
    {"torch.distributed.checkpoint.filesystem", "_StorageInfo", Known::kStorageInfo},
    {"torch", "Size", Known::kSize},
    {"torch._utils", "_rebuild_tensor", Known::kRebuildTensor},
    {"torch._utils", "_rebuild_tensor_v2", Known::kRebuildTensorV2},
    {"torch._utils", "_rebuild_tensor_v3", Known::kRebuildTensorV3},
    {"torch._utils", "_rebuild_parameter", Known::kRebuildParameter},
    {"torch._utils", "_rebuild_parameter_with_state", Known::kRebuildParameter},
    {"torch._utils", "_rebuild_wrapper_subclass", Known::kRebuildWrapper},
    {"torch._utils", "_rebuild_sparse_tensor", Known::kRebuildOther},
    {"torch._utils", "_rebuild_sparse_csr_tensor", Known::kRebuildOther},
    {"torch._utils", "_rebuild_nested_tensor", Known::kRebuildOther},
    {"torch._utils", "_rebuild_qtensor", Known::kRebuildOther},
    {"torch._utils", "_rebuild_meta_tensor_no_storage", Known::kRebuildOther},
    {"torch._utils", "_rebuild_device_tensor_from_numpy", Known::kRebuildOther},
    {"torch._utils", "_rebuild_device_tensor_from_cpu_tensor", Known::kRebuildOther},
    {"torch._tensor", "_rebuild_from_type_v2", Known::kRebuildFromType},
    {"torch.jit._pickle", "restore_type_tag", Known::kRestoreTag},
    {"torch.jit._pickle", "build_intlist", Known::kBuildList},
    {"torch.jit._pickle", "build_doublelist", Known::kBuildList},
    {"torch.jit._pickle", "build_boollist", Known::kBuildList},
    {"torch.jit._pickle", "build_tensorlist", Known::kBuildList},
    {"collections", "OrderedDict", Known::kOrderedDict},
    {"collections", "defaultdict", Known::kDefaultDict},
    {"collections", "Counter", Known::kCounter},
    {"collections", "deque", Known::kDeque},
    {"argparse", "Namespace", Known::kNamespace},
    {"types", "SimpleNamespace", Known::kNamespace},
    {"_codecs", "encode", Known::kEncode},
    {"numpy", "dtype", Known::kNumpyDType},
    {"numpy.core.multiarray", "scalar", Known::kNumpyScalar},
    {"numpy._core.multiarray", "scalar", Known::kNumpyScalar},
    {"numpy.core.multiarray", "_reconstruct", Known::kNumpyArray},
    {"numpy._core.multiarray", "_reconstruct", Known::kNumpyArray},
    {"numpy.core.numeric", "_frombuffer", Known::kNumpyFromBuffer},
    {"numpy._core.numeric", "_frombuffer", Known::kNumpyFromBuffer},
};
constexpr Row kOfBuiltins[] = {
    {"", "set", Known::kSetOf},
    {"", "frozenset", Known::kSetOf},
    {"", "bytearray", Known::kByteArray},
    {"", "getattr", Known::kGetAttr},
};

}  // namespace

Known Classify(std::string_view module, std::string_view name) {
  for (const Row& row : kRows) {
    if (row.name == name && row.module == module) return row.known;
  }
  if (module == kBuiltins[0] || module == kBuiltins[1]) {
    for (const Row& row : kOfBuiltins) {
      if (row.name == name) return row.known;
    }
  }
  return Known::kNo;
}

}  // namespace reshard::pickle
