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
constexpr Row kRows[] = {
    {kCheckpoint, "Metadata", Known::kMetadata},
    {kCheckpoint, "TensorStorageMetadata", Known::kTensorStorageMetadata},
    {kCheckpoint, "BytesStorageMetadata", Known::kBytesStorageMetadata},
    {kCheckpoint, "ChunkStorageMetadata", Known::kChunkStorageMetadata},
    {kCheckpoint, "TensorProperties", Known::kTensorProperties},
    {kCheckpoint, "MetadataIndex", Known::kMetadataIndex},
    {kCheckpoint, "StorageMeta", Known::kStorageMeta},
    {kCheckpoint, "_MEM_FORMAT_ENCODING", Known::kMemFormat},
    {kSharded, "TensorProperties", Known::kTensorProperties},
    {kSharded, "MEM_FORMAT_ENCODING", Known::kMemFormat},
    {"torch.distributed.checkpoint.filesystem", "_StorageInfo", Known::kStorageInfo},
    {"torch.distributed.checkpoint.planner", "WriteItemType", Known::kWriteItemType},
    {"torch", "Size", Known::kSize},
    {"torch", "device", Known::kDevice},
    {"torch.serialization", "_get_layout", Known::kGetLayout},
    {"torch._utils", "_rebuild_tensor_v2", Known::kRebuildTensorV2},
    {"torch._utils", "_rebuild_tensor_v3", Known::kRebuildTensorV3},
    {"torch._utils", "_rebuild_parameter", Known::kRebuildParameter},
    {"torch._utils", "_rebuild_parameter_with_state", Known::kRebuildParameter},
    {"torch._utils", "_rebuild_wrapper_subclass", Known::kRebuildWrapper},
    {"torch._tensor", "_rebuild_from_type_v2", Known::kRebuildFromType},
    {"collections", "OrderedDict", Known::kOrderedDict},
    {"collections", "defaultdict", Known::kDefaultDict},
    {"__builtin__", "set", Known::kSetOf},
    {"__builtin__", "frozenset", Known::kSetOf},
    {"builtins", "set", Known::kSetOf},
    {"builtins", "frozenset", Known::kSetOf},
    {"_codecs", "encode", Known::kEncode},
    {"__builtin__", "bytearray", Known::kOther},
    {"builtins", "bytearray", Known::kOther},
    {"__builtin__", "complex", Known::kOther},
    {"builtins", "complex", Known::kOther},
    {"datetime", "datetime", Known::kOther},
    {"datetime", "timedelta", Known::kOther},
    {"numpy", "dtype", Known::kOther},
    {"numpy.core.multiarray", "scalar", Known::kOther},
    {"numpy.core.multiarray", "_reconstruct", Known::kOther},
    {"numpy._core.multiarray", "scalar", Known::kOther},
    {"numpy._core.multiarray", "_reconstruct", Known::kOther},
    {"pathlib", "PosixPath", Known::kPath},
    {"pathlib", "WindowsPath", Known::kPath},
    {"pathlib", "PurePosixPath", Known::kPath},
    {"pathlib", "PureWindowsPath", Known::kPath},
    {"pathlib._local", "PosixPath", Known::kPath},
    {"pathlib._local", "WindowsPath", Known::kPath},
    {"pathlib._local", "PurePosixPath", Known::kPath},
    {"pathlib._local", "PureWindowsPath", Known::kPath},
    {"builtins", "getattr", Known::kGetAttr},
    {"__builtin__", "getattr", Known::kGetAttr},
};

}  // namespace

Known Classify(std::string_view module, std::string_view name) {
  for (const Row& row : kRows) {
    if (row.name == name && row.module == module) return row.known;
  }
  return Known::kNo;
}

bool IsEnum(Known known) { return known == Known::kMemFormat || known == Known::kWriteItemType; }

bool MayReduce(Known known) {
  if (IsEnum(known)) return true;
  switch (known) {
    case Known::kSize:
    case Known::kGetLayout:
    case Known::kPath:
    case Known::kOrderedDict:
    case Known::kDefaultDict:
    case Known::kSetOf:
    case Known::kEncode:
    case Known::kOther:
    case Known::kRebuildTensorV2:
    case Known::kRebuildTensorV3:
    case Known::kRebuildParameter:
    case Known::kRebuildFromType:
    case Known::kDevice:
      return true;
    default:
      return false;  // kGetAttr only with an enum of DCP, which the machine sees to
  }
}

}  // namespace reshard::pickle
