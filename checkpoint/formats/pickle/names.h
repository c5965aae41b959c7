// The names of Python classes and functions that PyTorch's pickles mention, and what the machine may do with each. Here
// a name is never more than a name: nothing is imported, nothing is called.
#ifndef RESHARD_CHECKPOINT_FORMATS_PICKLE_NAMES_H_
#define RESHARD_CHECKPOINT_FORMATS_PICKLE_NAMES_H_

#include <cstdint>
#include <string_view>

namespace reshard::pickle {

enum class Known : uint8_t {
  kNo,  // any other name
  kMetadata,
  kTensorStorageMetadata,
  kBytesStorageMetadata,
  kChunkStorageMetadata,
  kTensorProperties,
  kMetadataIndex,
  kStorageMeta,
  kStorageInfo,
  kMemFormat,
  kSize,         // torch.Size: the machine makes it the tuple that it wraps
  kGetLayout,    // torch.serialization._get_layout
  kPath,         // pathlib's classes
  kOrderedDict,  // the machine makes it a dict
  kDefaultDict,  // the same
  kSetOf,        // builtins.set, frozenset: of a list
  kEncode,       // _codecs.encode, by which protocol 2 writes bytes: (text, "latin1")
  kOther,        // of Python and NumPy, no part of any tensor, and harmless in themselves; stays a record
  kRebuildTensorV2,
  kRebuildTensorV3,
  kRebuildParameter,
  kRebuildFromType,  // torch._tensor._rebuild_from_type_v2: (function, class, its arguments, state)
  kRebuildWrapper,   // torch._utils._rebuild_wrapper_subclass
  kDevice,
  kWriteItemType,  // torch.distributed.checkpoint.planner.WriteItemType, an enum
  kGetAttr,        // builtins.getattr, by which some Python versions write members of enums
};

Known Classify(std::string_view module, std::string_view name);

// Whether it is an enum of DCP, of which a pickle may ask for a member: by its value, or with getattr by its name.
bool IsEnum(Known known);

// Whether a pickle may apply this name to arguments (REDUCE). The result is a record of name and arguments.
bool MayReduce(Known known);

}  // namespace reshard::pickle

#endif  // RESHARD_CHECKPOINT_FORMATS_PICKLE_NAMES_H_
