// Distributed checkpoints whose metadata or streams are wrong on purpose.
#include <sys/stat.h>

#include <filesystem>

#include "tests/attacks/dcp_checkpoint.h"
#include "tests/catch.h"

namespace reshard::testing {
namespace {

using namespace dcp;

constexpr int64_t kMost = INT64_MAX;

// A tensor "w" with this description, whose one place is the good stream.
std::string Of(const std::string& tensor, const std::vector<int64_t>& offset = {0, 0}) {
  return Metadata({{Str("w"), tensor}}, {{Index("w", offset), Place("a.distcp", 0, 1)}});
}
std::string Described(const std::vector<int64_t>& shape, const std::vector<std::string>& chunks) {
  return Of(Tensor(Properties(DType("float32")), shape, chunks));
}

TEST_CASE("dcp: shapes") {
  const DcpCheckpoint checkpoint;
  const auto refuses = [&](const std::vector<int64_t>& shape, const std::string& part) {
    checkpoint.RefusesMetadata(Of(Whole(shape), std::vector<int64_t>(shape.size(), 0)), part);
  };
  refuses({kMost, 2}, "the bytes of [9223372036854775807, 2] overflow");
  refuses({kMost}, "overflow");
  refuses({4194305, 4194305, 211106198978564}, "overflow");
  refuses({0, kMost, kMost}, "overflow");
  refuses({-1, 3}, "a negative size in [-1, 3]");
  refuses({INT64_MIN, 3}, "a negative size");
  refuses({3, -1, 0}, "a negative size");
  refuses(std::vector<int64_t>(65, 1), "65 dimensions");
  refuses(std::vector<int64_t>(10'000, 1), "10000 dimensions");
  const auto size = [&](const std::string& value) {
    checkpoint.RefusesMetadata(
        Of(Object(Class("TensorStorageMetadata"), Dict({{Str("properties"), Properties(DType("float32"))},
                                                        {Str("size"), value},
                                                        {Str("chunks"), List({})}}))),
        "a shape of \"w\" that is not one");
  };
  size(None());
  size(Str("2"));
  size(Tuple({None()}));
  size(Tuple({Str("2")}));
  size(Tuple({"\x8a\x09" + std::string(8, '\0') + "\x01"}));  // 2^64
  size(Tuple({"G" + std::string(8, '\0')}));
}

TEST_CASE("dcp: chunks") {
  const DcpCheckpoint checkpoint;
  const auto refuses = [&](const std::vector<std::string>& chunks, const std::string& part) {
    checkpoint.RefusesMetadata(Described({2, 3}, chunks), part);
  };
  refuses({Chunk({0, 0}, {3, 3})}, "is not part of [2, 3]");
  refuses({Chunk({1, 0}, {2, 3})}, "has no place for the chunk");
  refuses({Chunk({-1, 0}, {2, 3})}, "has no place for the chunk");
  refuses({Chunk({0, 0}, {-2, 3})}, "is not part of [2, 3]");
  refuses({Chunk({0, 0}, {kMost, kMost})}, "is not part of [2, 3]");
  refuses({Chunk({kMost, 0}, {kMost, 3})}, "has no place for the chunk");
  refuses({Chunk({0, 0}, {2})}, "is not part of [2, 3]");
  refuses({Chunk({0}, {2})}, "has no place for the chunk");
  refuses({Chunk({0, 0}, {2, 3, 1})}, "is not part of [2, 3]");
  refuses({None()}, "without offsets or sizes");
  refuses({Object(Class("ChunkStorageMetadata"))}, "without offsets or sizes");
  refuses({Object(Class("ChunkStorageMetadata"), Dict({{Str("offsets"), None()}, {Str("sizes"), None()}}))},
          "that is not a box");

  // Geometry that only whoever needs the elements looks at.
  const auto fails = [&](const std::string& metadata, const std::string& part) {
    checkpoint.Write("bad", metadata);
    checkpoint.dir().Write("bad/a.distcp", StreamText().Bytes());
    checkpoint.RefusesElements(part);
  };
  const auto of_two = [&](const std::vector<int64_t>& offset, const std::vector<std::string>& chunks) {
    return Metadata(
        {{Str("w"), Tensor(Properties(DType("float32")), {2, 3}, chunks)}},
        {{Index("w", {0, 0}, 0), Place("a.distcp", 0, 1)}, {Index("w", offset, 1), Place("a.distcp", 0, 1)}});
  };
  fails(Described({2, 3}, {}), "element [0, 0] is in no chunk");
  fails(Described({2, 3}, {Chunk({0, 0}, {1, 3})}), "element [1, 0] is in no chunk");
  fails(of_two({1, 1}, {Chunk({0, 0}, {1, 3}), Chunk({1, 1}, {1, 2})}), "element [1, 0] is in no chunk");
  fails(of_two({1, 0}, {Chunk({0, 0}, {2, 3}), Chunk({1, 0}, {1, 3})}), "element [1, 0] is in more than one chunk");
  fails(of_two({0, 1}, {Chunk({0, 0}, {2, 2}), Chunk({0, 1}, {2, 1})}), "element [0, 2] is in no chunk");
  fails(of_two({0, 0}, {Chunk({0, 0}, {2, 3}), Chunk({0, 0}, {2, 3})}), "element [0, 0] is in more than one chunk");
}

TEST_CASE("dcp: places") {
  const DcpCheckpoint checkpoint;
  const auto refuses = [&](const std::string& place, const std::string& part) {
    checkpoint.RefusesMetadata(Metadata({{Str("w"), Whole({2, 3})}}, {{Index("w", {0, 0}), place}}), part);
    checkpoint.RefusesMetadata(Metadata({{Str("w"), Bytes()}}, {{ByteIndex("w"), place}}), part);
  };
  refuses(Place("a.distcp", 0, 100'000), "is at bytes 0 + 100000 of \"a.distcp\", which has");
  refuses(Place("a.distcp", 100'000, 1), "is at bytes");
  refuses(Place("a.distcp", -1, 1), "is at bytes -1 + 1");
  refuses(Place("a.distcp", 0, -1), "is at bytes 0 + -1");
  refuses(Place("a.distcp", kMost, kMost), "is at bytes");
  refuses(Place("a.distcp", INT64_MIN, INT64_MIN), "is at bytes");
  refuses(None(), "without file, offset and length");
  refuses(Dict({{Str("offset"), Num(0)}, {Str("length"), Num(1)}}), "without file, offset and length");
  refuses(Dict({{Str("relative_path"), Num(0)}, {Str("offset"), Num(0)}, {Str("length"), Num(1)}}),
          "without file, offset and length");
  refuses(Place("a.distcp", 0, 1, {{Str("transform_descriptors"), List({Str("stream.zstd/1")})}}),
          "was encoded by \"stream.zstd/1\"");
  refuses(Place("a.distcp", 0, 1, {{Str("transform_descriptors"), Tuple({Num(7)})}}), "was encoded by an extension");
  refuses(Place("a.distcp", 0, 1, {{Str("transform_descriptors"), Str("zstd")}}),
          "transforms of \"w\" that are not a list");
  checkpoint.RefusesMetadata(Metadata({{Str("w"), Whole({2, 3})}}, {}), "no place for the chunk of \"w\" at [0, 0]");
  checkpoint.RefusesMetadata(Metadata({{Str("w"), Bytes()}}, {}), "no place for \"w\"");
  checkpoint.RefusesMetadata(Metadata({{Str("w"), Whole({2, 3})}}, {{Index("w", {1, 0}), Place("a.distcp", 0, 1)}}),
                             "no place for the chunk");
}

TEST_CASE("dcp: files outside of the directory") {
  const DcpCheckpoint checkpoint;
  checkpoint.dir().Write("secret.distcp", StreamText().Bytes());
  const std::string secret = checkpoint.dir().path("secret.distcp");
  const auto refuses = [&](const std::string& path, const std::string& part) {
    INFO(path.substr(0, 100));
    const std::string place = Place(path, 0, 1);
    checkpoint.RefusesMetadata(Metadata({{Str("w"), Whole({2, 3})}}, {{Index("w", {0, 0}), place}}), part);
    checkpoint.RefusesMetadata(Metadata({{Str("w"), Bytes()}}, {{ByteIndex("w"), place}}), part);
  };
  refuses("../secret.distcp", "leaves its directory");
  refuses("x/../../secret.distcp", "leaves its directory");
  refuses("a/../a.distcp", "leaves its directory");
  refuses("..", "leaves its directory");
  refuses(secret, "is absolute");
  refuses("/", "is absolute");
  refuses("", "is empty");
  refuses(".", "has an empty part");
  refuses("./a.distcp", "has an empty part");
  refuses("a//b", "has an empty part");
  refuses("a.distcp/", "has an empty part");
  refuses(std::string("a.distcp\0.txt", 13), "has a NUL byte");
  refuses("gone.distcp", "the file \"gone.distcp\" is missing");
  refuses("gone/\x1b[2J", "is missing");
  refuses("a.distcp/b", "is missing");
  refuses(std::string(300, 'x'), "is missing");
  refuses(std::string(1'000'000, 'x'), "has 1000000 bytes");
  refuses("a" + Repeat("/a", 500'000), "has 1000001 bytes");
  refuses(Repeat("a/", 511) + "b", "is missing");

  std::filesystem::create_directories(checkpoint.bad());
  const std::filesystem::path bad = checkpoint.bad();
  std::filesystem::create_symlink(secret, bad / "link");
  std::filesystem::create_symlink("a.distcp", bad / "inside");
  std::filesystem::create_directory_symlink("..", bad / "up");
  std::filesystem::create_directory_symlink("/", bad / "root");
  std::filesystem::create_symlink("loop", bad / "loop");
  std::filesystem::create_directories(bad / "folder");
  refuses("link", "is a symbolic link");
  refuses("inside", "is a symbolic link");
  refuses("up/secret.distcp", "is a symbolic link");
  refuses("root" + secret, "is a symbolic link");
  refuses("root/dev/zero", "is a symbolic link");
  refuses("loop", "is a symbolic link");
  refuses("loop/x", "is a symbolic link");
  refuses("folder", "is not a regular file");
  REQUIRE(mkfifo((bad / "pipe").c_str(), 0600) == 0);
  refuses("pipe", "is not a regular file");

  std::filesystem::remove(bad / ".metadata");
  std::filesystem::create_symlink(checkpoint.good() + "/.metadata", bad / ".metadata");
  CommandRefuses({"inspect", checkpoint.bad()}, "is a symbolic link");
  std::filesystem::remove(bad / ".metadata");
  std::filesystem::create_directories(bad / ".metadata");
  CommandRefuses({"inspect", checkpoint.bad()}, "is not a regular file");
  std::filesystem::remove(bad / ".metadata");
  REQUIRE(mkfifo((bad / ".metadata").c_str(), 0600) == 0);
  CommandRefuses({"inspect", checkpoint.bad()}, "is not a regular file");
}

TEST_CASE("dcp: items") {
  const DcpCheckpoint checkpoint;
  const auto refuses = [&](const Items& items, const std::string& part) {
    checkpoint.RefusesMetadata(Metadata(items, {{Index("w", {0, 0}), Place("a.distcp", 0, 1)}}), part);
  };
  refuses({{Str("w"), Whole({2, 3})}, {Str("w"), Whole({2, 3})}}, "the item \"w\" twice");
  refuses({{Str("w"), Whole({2, 3})}, {Str("w"), Bytes()}}, "the item \"w\" twice");
  refuses({{Str("w"), Bytes()}, {Str("w"), Bytes()}}, "the item \"w\" twice");
  refuses({{Str("w"), None()}}, "no description of \"w\"");
  refuses({{None(), Whole({2, 3})}}, "whose name is not text");
  refuses({{Num(1), Whole({2, 3})}}, "whose name is not text");
  refuses({{Str("w"), Object(Class("TensorStorageMetadata"))}}, "no shape or no chunks of \"w\"");
  refuses({{Str("w"), Object(Global("evil", "Class"), Dict({}))}},
          "neither a tensor nor bytes, but of class \"Class\"");
  refuses({{Str("w"), Tensor(None(), {2, 3}, {})}}, "no dtype of \"w\"");
  refuses({{Str("w"), Tensor(Properties(None()), {2, 3}, {})}}, "no dtype of \"w\"");
  refuses({{Str("w"), Tensor(Properties(Str("float32")), {2, 3}, {})}}, "no dtype of \"w\"");
  refuses({{Str("w"), Tensor(Properties(Global("torch", std::string(100, 'f'))), {2, 3}, {})}}, "too long a name");
  refuses({{Str("w"), Tensor(Object(Class("TensorProperties"), Tuple({DType("float32")})), {2, 3}, {})}}, "no dtype");
  checkpoint.RefusesMetadata(Object(Class("Metadata"), Dict({{Str("state_dict_metadata"), None()}})),
                             "not the Metadata");
  checkpoint.RefusesMetadata(Metadata({}, {{None(), None()}}), "without saying of what");

  // Ranks that contradict each other.
  const auto ranks = [&](const std::string& zero, const std::string& one, const std::string& part) {
    const TemporaryDirectory dir;
    dir.Write("c/__0.metadata", Pickled(zero));
    dir.Write("c/__1.metadata", Pickled(one));
    dir.Write("c/a.distcp", StreamText().Bytes());
    CommandRefuses({"inspect", dir.path("c")}, part);
  };
  const Items place = {{Index("w", {0, 0}), Place("a.distcp", 0, 1)}};
  const std::string good = Metadata({{Str("w"), Whole({2, 3})}}, place);
  ranks(good, Metadata({{Str("w"), Whole({3, 2})}}, place), "of [2, 3] in one place");
  ranks(good, Metadata({{Str("w"), Whole({2, 3}, "float64")}}, place), "\"torch.float32\" of [2, 3] in one place");
  ranks(good, Metadata({{Str("w"), Bytes()}}, {{ByteIndex("w"), Place("a.distcp", 0, 1)}}), "\"w\" appears twice");
  ranks(Metadata({{Str("w"), Bytes()}}, {{ByteIndex("w"), Place("a.distcp", 0, 1)}}), good, "that of a byte item");
  ranks(good, "", "__1.metadata: pickle");
}

TEST_CASE("dcp: streams that are of another tensor") {
  const DcpCheckpoint checkpoint;
  checkpoint.Refuses({.shape = {3, 2}}, "a tensor of shape [3, 2], not [2, 3]");
  checkpoint.Refuses({.shape = {6}, .strides = {1}}, "a tensor of shape [6], not [2, 3]");
  checkpoint.Refuses({.shape = {}, .strides = {}}, "a tensor of shape []");
  checkpoint.Refuses({.storage_class = Global("torch", "IntStorage")}, "where the metadata says f32");
  checkpoint.Refuses({.storage_class = Global("torch", "DoubleStorage")}, "where the metadata says f32");
  checkpoint.Refuses({.storage_class = Global("torch", "QInt8Storage")}, "elements of \"torch.QInt8Storage\"");
  checkpoint.Refuses({.storage_class = Global("os", "FloatStorage")}, "elements of \"os.FloatStorage\"");
  checkpoint.Refuses({.storage_class = Str("FloatStorage")}, "a tensor without a storage");
  checkpoint.Refuses({.byteorder = "big"}, "big-endian");
  checkpoint.Refuses({.byteorder = "middle"}, "the byte order \"middle\"");
  checkpoint.Refuses({.byteorder = std::string(17, 'x')}, "at most 16 are allowed");
}

TEST_CASE("dcp: storages and what lies in them") {
  const DcpCheckpoint checkpoint;
  const std::string leaves = "leave a storage of 6";
  checkpoint.Refuses({.elements = 7}, "a storage of 7 elements in a record of 24 bytes");
  checkpoint.Refuses({.elements = 5}, "a storage of 5 elements in a record of 24 bytes");
  checkpoint.Refuses({.elements = -6}, "a storage of -6 elements");
  checkpoint.Refuses({.elements = kMost}, "in a record of 24 bytes");
  checkpoint.Refuses({.elements = (int64_t{1} << 62) + 6}, "in a record of 24 bytes");
  checkpoint.Refuses({.elements = 5, .content = std::string(20, 'x')}, "leave a storage of 5");
  checkpoint.Refuses({.elements = 0, .content = {}}, "leave a storage of 0");
  checkpoint.Refuses({.offset = 1}, leaves);
  checkpoint.Refuses({.offset = -1}, leaves);
  checkpoint.Refuses({.offset = kMost}, leaves);
  checkpoint.Refuses({.strides = {4, 1}}, leaves);
  checkpoint.Refuses({.strides = {3, -1}}, leaves);
  checkpoint.Refuses({.offset = 5, .strides = {-3, -1}}, leaves);
  checkpoint.Refuses({.strides = {kMost, 1}}, leaves);
  checkpoint.Refuses({.strides = {3, kMost}}, leaves);
  checkpoint.Refuses({.strides = {INT64_MIN, 1}}, leaves);
  checkpoint.Refuses({.strides = {3}}, leaves);
  checkpoint.Refuses({.strides = {3, 1, 1}}, leaves);
  checkpoint.Refuses({.strides = {}}, leaves);
  checkpoint.Refuses({.key = Str("1")}, "no record of the elements");
  checkpoint.Refuses({.key = Str("../data/0")}, "no record of the elements");
  checkpoint.Refuses({.key = Str(std::string(1000, '0'))}, "no record of the elements");
  checkpoint.Refuses({.key = None()}, "a tensor without a storage");
  checkpoint.Refuses({.more = {None(), None()}}, "a tensor of 8 arguments");
  checkpoint.Refuses({.more = {Num(1)}}, "flags that are not a dict");
  checkpoint.Refuses({.more = {Dict({{Str("conj"), "\x88"}})}}, "the flag \"conj\"");
  checkpoint.Refuses({.more = {Dict({{Str("zero"), "\x88"}})}}, "the flag \"zero\"");
  checkpoint.Refuses({.more = {Dict({{None(), "\x88"}})}}, "the flag ?");

  const auto described = [&](const std::string& value, const std::string& part) {
    auto records = StreamText().Records();
    records[0].content = Pickled(value);
    checkpoint.RefusesStream(ZipBytes(records), part);
  };
  described("N", "not a plain tensor");
  described(Global("torch._utils", "_rebuild_tensor_v2"), "not a plain tensor");
  described(Call(Global("torch._utils", "_rebuild_tensor_v2"), {}), "a tensor of 0 arguments");
  described(Call(Global("torch._utils", "_rebuild_tensor_v3"), {}), "a tensor of 0 arguments");
  described(Call(Global("torch._utils", "_rebuild_qtensor"), {}), "a quantized tensor");
  described(Call(Global("torch._utils", "_rebuild_tensor_v2"), {"N", "N", "N", "N", "N", "N"}), "without a storage");
  described(Repeat("](", 1000), "nested more than 64 deep");
  auto records = StreamText().Records();
  records[0].content = std::string((1 << 20) + 1, 'x');
  checkpoint.RefusesStream(ZipBytes(records), "at most 1048576 are allowed");
}

TEST_CASE("dcp: strides that nothing is multiplied by may be anything") {
  const TemporaryDirectory dir;
  const auto write = [&](const std::string& name, const StreamText& stream) {
    const std::string bytes = stream.Bytes();
    dir.Write(name + "/a.distcp", bytes);
    dir.Write(name + "/.metadata", Pickled(Metadata({{Str("w"), Whole(stream.shape)}},
                                                    {{Index("w", std::vector<int64_t>(stream.shape.size(), 0)),
                                                      Place("a.distcp", 0, static_cast<int64_t>(bytes.size()))}})));
    return dir.path(name);
  };
  const std::string a = write("a", {.shape = {1, 6, 1}, .strides = {6, 1, 1}});
  const std::string b = write("b", {.shape = {1, 6, 1}, .strides = {kMost, 1, kMost}});
  CHECK(RunReshard({"verify", a, b}).code == 0);
  const std::string c = write("c", {.shape = {1, 0, 1}, .strides = {6, 1, 1}});
  const std::string d = write("d", {.shape = {1, 0, 1}, .strides = {kMost, kMost, kMost}});
  CHECK(RunReshard({"verify", c, d}).code == 0);
}

}  // namespace
}  // namespace reshard::testing
