// Distributed checkpoints put together by hand: the pickle of `.metadata`, and the streams that hold chunks. What is
// not said is as PyTorch writes it, so that a test names only what it makes wrong.
#ifndef RESHARD_TESTS_CHECKPOINT_FORMATS_DCP_BYTES_H_
#define RESHARD_TESTS_CHECKPOINT_FORMATS_DCP_BYTES_H_

#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include "tests/checkpoint/formats/pickle_bytes.h"
#include "tests/checkpoint/formats/zip_bytes.h"

namespace reshard::testing {

// Values of `.metadata`, as opcodes.
namespace dcp {

using namespace pickled;
using Items = std::vector<std::pair<std::string, std::string>>;

inline std::string Class(std::string_view name) { return Global("torch.distributed.checkpoint.metadata", name); }
inline std::string Size(const std::vector<int64_t>& sizes) { return Call(Global("torch", "Size"), {Ints(sizes)}); }
inline std::string DType(std::string_view name) { return Global("torch", name); }

inline std::string Properties(const std::string& dtype, bool sixth = false) {
  std::vector<std::string> state = {dtype, Call(Global("torch.serialization", "_get_layout"), {Str("torch.strided")}),
                                    "\x89", Call(Class("_MEM_FORMAT_ENCODING"), {Num(0)}), "\x89"};
  if (sixth) state.push_back(None());
  return Object(Class("TensorProperties"), Tuple(state));
}
inline std::string Chunk(const std::vector<int64_t>& offset, const std::vector<int64_t>& size) {
  return Object(Class("ChunkStorageMetadata"), Dict({{Str("offsets"), Size(offset)}, {Str("sizes"), Size(size)}}));
}
inline std::string Tensor(const std::string& properties, const std::vector<int64_t>& shape,
                          const std::vector<std::string>& chunks) {
  return Object(Class("TensorStorageMetadata"),
                Dict({{Str("properties"), properties}, {Str("size"), Size(shape)}, {Str("chunks"), List(chunks)}}));
}
// A float32 tensor of one chunk.
inline std::string Whole(const std::vector<int64_t>& shape, const std::string& dtype = "float32") {
  return Tensor(Properties(DType(dtype)), shape, {Chunk(std::vector<int64_t>(shape.size(), 0), shape)});
}
inline std::string Bytes() { return Object(Class("BytesStorageMetadata")); }

inline std::string Index(const std::string& name, const std::vector<int64_t>& offset, int64_t index = 0) {
  return Object(Class("MetadataIndex"),
                Dict({{Str("fqn"), Str(name)}, {Str("index"), Num(index)}, {Str("offset"), Size(offset)}}));
}
inline std::string ByteIndex(const std::string& name) {
  return Object(Class("MetadataIndex"), Dict({{Str("fqn"), Str(name)}, {Str("index"), None()}}));
}
inline std::string Place(const std::string& file, int64_t at, int64_t length, const Items& more = {}) {
  Items state = {{Str("relative_path"), Str(file)}, {Str("offset"), Num(at)}, {Str("length"), Num(length)}};
  state.insert(state.end(), more.begin(), more.end());
  return Object(Global("torch.distributed.checkpoint.filesystem", "_StorageInfo"), Dict(state));
}

// The value of `.metadata`; names are values too, so that they can be wrong or shared.
inline std::string Metadata(const Items& items, const Items& places, const Items& paths = {},
                            const Items& attributes = {}) {
  Items state = {{Str("state_dict_metadata"), Dict(items)},
                 {Str("planner_data"), Dict(paths)},
                 {Str("storage_data"), Dict(places)},
                 {Str("storage_meta"), None()}};
  state.insert(state.end(), attributes.begin(), attributes.end());
  return Object(Class("Metadata"), Dict(state));
}

}  // namespace dcp

// What the stream of one tensor says; by default two rows of three float32 that are there.
struct StreamText {
  std::string storage_class = pickled::Global("torch", "FloatStorage");
  std::string key = pickled::Str("0");
  int64_t elements = 6;  // as the pickle says
  int64_t offset = 0;
  std::vector<int64_t> shape = {2, 3};
  std::vector<int64_t> strides = {3, 1};
  std::vector<std::string> more = {};  // arguments after the six
  std::string content = pickled::Repeat(std::string_view("\0\0\x80\x3f", 4), 6);
  std::string byteorder = "little";

  std::string Description() const {
    using namespace pickled;
    std::vector<std::string> arguments = {Tuple({Str("storage"), storage_class, key, Str("cpu"), Num(elements)}) + "Q",
                                          Num(offset),
                                          Ints(shape),
                                          Ints(strides),
                                          "\x89",
                                          Call(Global("collections", "OrderedDict"), {})};
    arguments.insert(arguments.end(), more.begin(), more.end());
    return Pickled(Call(Global("torch._utils", "_rebuild_tensor_v2"), arguments));
  }
  std::vector<ZipRecord> Records() const {
    return {{.name = "archive/data.pkl", .content = Description()},
            {.name = "archive/byteorder", .content = byteorder},
            {.name = "archive/data/0", .content = content},
            {.name = "archive/version", .content = "3\n"}};
  }
  std::string Bytes() const { return ZipBytes(Records()); }
};

}  // namespace reshard::testing

#endif  // RESHARD_TESTS_CHECKPOINT_FORMATS_DCP_BYTES_H_
