// The names of Python classes and functions that PyTorch's pickles mention, and what readers take them for. A name is
// never more than a name here: nothing is imported, nothing is called.
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
  // Containers of Python. The machine makes them the plain containers that they wrap.
  kSize,         // torch.Size: the tuple
  kOrderedDict,  // a dict
  kDefaultDict,
  kCounter,
  kDeque,            // a list
  kRestoreTag,       // torch.jit._pickle.restore_type_tag: its first argument
  kBuildList,        // torch.jit._pickle.build_intlist and the like: its argument
  kNamespace,        // argparse.Namespace, types.SimpleNamespace: an object whose state is all there is to it
  kSetOf,            // builtins.set, frozenset: of a list
  kByteArray,        // builtins.bytearray: of bytes
  kGetAttr,          // builtins.getattr, by which some versions of Python write members of enums: (class, name)
  kEncode,           // _codecs.encode, by which protocol 2 writes bytes: (text, "latin1")
  kNumpyDType,       // numpy.dtype: (name, align, copy), with a state that has the byte order
  kNumpyScalar,      // numpy's multiarray.scalar: (dtype, bytes)
  kNumpyArray,       // numpy's multiarray._reconstruct, with the state (version, shape, dtype, is Fortran, bytes)
  kNumpyFromBuffer,  // numpy's numeric._frombuffer: (bytes, dtype, shape, order)
  kRebuildTensor,
  kRebuildTensorV2,
  kRebuildTensorV3,
  kRebuildParameter,
  kRebuildFromType,  // torch._tensor._rebuild_from_type_v2: (function, class, its arguments, state)
  kRebuildWrapper,   // torch._utils._rebuild_wrapper_subclass
  kRebuildOther,     // another function of PyTorch that makes a tensor: sparse, quantized, nested, without elements
};

Known Classify(std::string_view module, std::string_view name);

}  // namespace reshard::pickle

#endif  // RESHARD_CHECKPOINT_FORMATS_PICKLE_NAMES_H_
