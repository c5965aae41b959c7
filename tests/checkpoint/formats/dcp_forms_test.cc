// Forms of distributed checkpoints that this PyTorch does not write, but another may: put together by hand, read by
// logical index.
#include <array>
#include <cstring>
#include <memory>

#include "checkpoint/source/source.h"
#include "tests/catch.h"
#include "tests/checkpoint/formats/dcp_bytes.h"
#include "tests/checkpoint/formats/safetensors_file.h"

namespace reshard::testing {
namespace {

using namespace dcp;

// Elements 100, 101, 102 ...
std::string Counted(int64_t elements) {
  std::string bytes;
  for (int64_t i = 0; i < elements; ++i) {
    const auto value = static_cast<float>(100 + i);
    bytes.append(reinterpret_cast<const char*>(&value), sizeof(value));
  }
  return bytes;
}

StreamText Stream(int64_t elements, int64_t offset, std::vector<int64_t> shape, std::vector<int64_t> strides) {
  StreamText stream;
  stream.elements = elements;
  stream.content = Counted(elements);
  stream.offset = offset;
  stream.shape = std::move(shape);
  stream.strides = std::move(strides);
  return stream;
}

// A checkpoint of one tensor "w", whose chunk is the stream.
class One {
 public:
  explicit One(const StreamText& stream, const std::string& dtype = "float32", int protocol = 2) {
    const std::string bytes = stream.Bytes();
    dir_.Write("a.distcp", "junk" + bytes);
    const std::vector<int64_t> zero(stream.shape.size(), 0);
    dir_.Write(".metadata",
               Pickled(Metadata({{Str("w"), Whole(stream.shape, dtype)}},
                                {{Index("w", zero), Place("a.distcp", 4, static_cast<int64_t>(bytes.size()))}}),
                       protocol));
  }

  std::vector<float> Read(const std::vector<int64_t>& offset, const std::vector<int64_t>& size, int64_t floats) const {
    const absl::StatusOr<std::unique_ptr<source::Source>> source = source::Source::Open(dir_.path(), {});
    REQUIRE(source.status().ToString() == "OK");
    std::vector<float> out(static_cast<size_t>(floats));
    const absl::Span<char> bytes(reinterpret_cast<char*>(out.data()), out.size() * sizeof(float));
    REQUIRE((*source)->Read(0, offset, size, bytes).ToString() == "OK");
    return out;
  }

 private:
  TemporaryDirectory dir_;
};

TEST_CASE("Elements are where offset and strides say") {
  struct Form {
    int64_t elements, offset, rows, columns, row_stride, column_stride;
  };
  for (const Form& f : {Form{6, 0, 2, 3, 3, 1}, Form{20, 7, 2, 3, 5, 2}, Form{6, 0, 2, 3, 1, 2}, Form{3, 0, 4, 3, 0, 1},
                        Form{9, 5, 3, 4, 0, 0}, Form{100, 1, 4, 5, 3, 20}, Form{8, 0, 2, 3, 2, 2}}) {
    INFO(f.offset << " strides " << f.row_stride << " " << f.column_stride);
    const One one(Stream(f.elements, f.offset, {f.rows, f.columns}, {f.row_stride, f.column_stride}));
    const auto at = [&](int64_t row, int64_t column) {
      return static_cast<float>(100 + f.offset + row * f.row_stride + column * f.column_stride);
    };
    const std::vector<float> all = one.Read({0, 0}, {f.rows, f.columns}, f.rows * f.columns);
    for (int64_t row = 0; row < f.rows; ++row) {
      for (int64_t column = 0; column < f.columns; ++column) {
        REQUIRE(all[row * f.columns + column] == at(row, column));
        REQUIRE(one.Read({row, column}, {1, 1}, 1)[0] == at(row, column));
      }
    }
  }
}

TEST_CASE("Scalars and tensors without elements") {
  CHECK(One(Stream(1, 0, {}, {})).Read({}, {}, 1)[0] == 100);
  CHECK(One(Stream(5, 3, {}, {})).Read({}, {}, 1)[0] == 103);
  CHECK(One(Stream(0, 0, {0, 3}, {3, 1})).Read({0, 0}, {0, 3}, 0).empty());
  CHECK(One(Stream(0, 0, {3, 0}, {1, 1})).Read({0, 0}, {3, 0}, 0).empty());
}

TEST_CASE("Conjugates and negatives") {
  const auto flagged = [](const std::vector<std::string>& flags, bool is_complex) {
    StreamText stream = Stream(6, 0, {3}, {1});
    if (is_complex) {
      stream.storage_class = Global("torch", "ComplexFloatStorage");
      stream.elements = 3;
    } else {
      stream.shape = {6};
    }
    Items items;
    for (const std::string& flag : flags) items.push_back({Str(flag), "\x88"});
    stream.more = {Dict(items)};
    return One(stream, is_complex ? "complex64" : "float32").Read({0}, {is_complex ? 3 : 6}, 6);
  };
  const auto expect = [](const std::vector<float>& got, float real, float imaginary) {
    for (size_t i = 0; i < 6; ++i) CHECK(got[i] == static_cast<float>(100 + i) * (i % 2 == 0 ? real : imaginary));
  };
  expect(flagged({}, true), 1, 1);
  expect(flagged({"conj"}, true), 1, -1);
  expect(flagged({"neg"}, true), -1, -1);
  expect(flagged({"conj", "neg"}, true), -1, 1);
  expect(flagged({"neg"}, false), -1, -1);
}

TEST_CASE("A dtype that no PyTorch has is refused, one that this library does not have is named") {
  const auto read = [](const std::string& module, const std::string& name) {
    const TemporaryDirectory dir;
    dir.Write("a.distcp", Stream(6, 0, {2, 3}, {3, 1}).Bytes());
    dir.Write(".metadata", Pickled(Metadata({{Str("w"), Tensor(Properties(Global(module, name)), {2, 3}, {})}}, {})));
    const absl::StatusOr<Catalog> catalog = ReadCatalog(dir.path());
    if (!catalog.ok()) return std::string(absl::IsDataLoss(catalog.status()) ? "none" : "another error");
    return std::string(catalog->tensors()[0].stored_dtype);
  };
  for (const char* name : {"complex32", "quint4x2", "float4_e2m1fn_x2", "float8_e8m0fnu", "bits1x8", "int3", "bool"}) {
    CHECK(read("torch", name) == "torch." + std::string(name));
  }
  CHECK(read("os", "float32") == "none");
  CHECK(read("torch", "nn") == "none");
  CHECK(read("torch", "floating") == "none");
  CHECK(read("torch.nn", "int8") == "none");
  CHECK(read("torch", "Size") != "torch.Size");
}

TEST_CASE("Protocols of metadata by hand") {
  for (int protocol = 2; protocol <= 5; ++protocol) {
    CHECK(One(Stream(6, 0, {2, 3}, {3, 1}), "float32", protocol).Read({1, 2}, {1, 1}, 1)[0] == 105);
  }
}

TEST_CASE("Ranks that saved on their own: boxes are put together, replicas are read once") {
  const TemporaryDirectory dir;
  const std::string upper = Stream(3, 0, {1, 3}, {3, 1}).Bytes();
  const std::string lower = Stream(6, 3, {1, 3}, {3, 1}).Bytes();
  dir.Write("__0_0.distcp", upper);
  dir.Write("__1_0.distcp", lower);
  dir.Write("__2_0.distcp", lower);  // a replica of rank 1's
  for (int rank = 0; rank < 3; ++rank) {
    const std::vector<int64_t> offset = {rank == 0 ? 0 : 1, 0};
    const std::string file = "__" + std::to_string(rank) + "_0.distcp";
    const auto length = static_cast<int64_t>(rank == 0 ? upper.size() : lower.size());
    // Properties of five and of six members are the same.
    const std::string tensor = Tensor(Properties(DType("float32"), rank == 1), {2, 3}, {Chunk(offset, {1, 3})});
    dir.Write("__" + std::to_string(rank) + ".metadata",
              Pickled(Metadata({{Str("w"), tensor}}, {{Index("w", offset), Place(file, 0, length)}})));
  }
  const absl::StatusOr<std::unique_ptr<source::Source>> source = source::Source::Open(dir.path(), {});
  REQUIRE(source.status().ToString() == "OK");
  CHECK((*source)->catalog().tensors()[0].num_chunks == 2);
  std::array<float, 6> out;
  REQUIRE((*source)->Read(0, {0, 0}, {2, 3}, {reinterpret_cast<char*>(out.data()), sizeof(out)}).ToString() == "OK");
  for (size_t i = 0; i < out.size(); ++i) CHECK(out[i] == static_cast<float>(100 + i));
}

TEST_CASE("What the metadata says of the whole checkpoint: plain data is kept, what describes files is told apart") {
  const std::string enum_class = Global("torch.distributed.checkpoint.planner", "WriteItemType");
  const std::string by_value = Call(enum_class, {Num(1)});
  const std::string by_name = Call(Global("builtins", "getattr"), {enum_class, Str("SHARD")});
  const std::string by_old_name = Call(Global("__builtin__", "getattr"), {enum_class, Str("SHARD")});
  for (const std::string& type : {by_value, by_name, by_old_name}) {
    const TemporaryDirectory dir;
    const std::string plan = Object(Global("torch.distributed.checkpoint.planner", "SavePlan"),
                                    Dict({{Str("items"), List({Dict({{Str("type"), type}})})}}));
    dir.Write(".metadata", Pickled(Metadata({}, {}, {},
                                            {{Str("version"), Str("1.0.0")},
                                             {Str("all_local_plans"), List({plan})},
                                             {Str("mcore_data"), Dict({{Str("w"), Ints({4, 6})}})},
                                             {Str("nothing"), None()},
                                             {Str("strange"), List({plan})},
                                             {Str("mcore_data"), Num(1)}})));
    const absl::StatusOr<Catalog> catalog = ReadCatalog(dir.path());
    REQUIRE(catalog.status().ToString() == "OK");
    REQUIRE(catalog->attributes().size() == 3);
    CHECK(catalog->attributes()[0].name == "all_local_plans");
    CHECK(catalog->attributes()[0].of_files);
    CHECK(catalog->attributes()[1].Label() == "attribute mcore_data");
    CHECK(catalog->attributes()[1].pickle.ends_with("u."));
    CHECK_FALSE(catalog->attributes()[1].of_files);
    CHECK(catalog->attributes()[2].name == "strange");
    CHECK(catalog->attributes()[2].pickle.empty());
  }
  // Any other call is opaque.
  for (const std::string& call : {Call(Global("torch.distributed.checkpoint.planner", "SavePlan"), {Num(1)}),
                                  Call(Global("builtins", "getattr"), {Global("os", "path"), Str("system")})}) {
    const TemporaryDirectory dir;
    dir.Write(".metadata", Pickled(Metadata({}, {}, {}, {{Str("x"), call}})));
    const absl::StatusOr<Catalog> opaque = ReadCatalog(dir.path());
    REQUIRE(opaque.ok());
    REQUIRE(opaque->attributes().size() == 1);
    CHECK(opaque->attributes()[0].pickle.empty());
  }
  const TemporaryDirectory dir;
  Items many;
  for (int i = 0; i < 100; ++i) many.emplace_back(Str("a" + std::to_string(i)), Num(i));
  dir.Write(".metadata", Pickled(Metadata({}, {}, {}, many)));
  CHECK(ReadCatalog(dir.path()).status().code() == absl::StatusCode::kDataLoss);
}

TEST_CASE("Streams without checksums, and with some that are wrong") {
  StreamText stream = Stream(6, 0, {2, 3}, {3, 1});
  const auto write = [&](const TemporaryDirectory& dir, uint32_t crc, bool all) {
    std::vector<ZipRecord> records = stream.Records();
    for (size_t i = 0; i < records.size(); ++i) {
      if (all || i == 2) records[i].crc = crc;
    }
    const std::string bytes = ZipBytes(records);
    dir.Write("a.distcp", bytes);
    dir.Write(".metadata",
              Pickled(Metadata({{Str("w"), Whole({2, 3})}},
                               {{Index("w", {0, 0}), Place("a.distcp", 0, static_cast<int64_t>(bytes.size()))}})));
  };
  const auto read = [](const TemporaryDirectory& dir) {
    const absl::StatusOr<std::unique_ptr<source::Source>> source = source::Source::Open(dir.path(), {});
    REQUIRE(source.status().ToString() == "OK");
    std::array<char, 24> out;
    return (*source)->Read(0, {0, 0}, {2, 3}, absl::MakeSpan(out));
  };
  const TemporaryDirectory dir;
  write(dir, 0, /*all=*/true);
  CHECK(read(dir).ok());
  write(dir, 0, /*all=*/false);
  CHECK(absl::IsDataLoss(read(dir)));
  write(dir, 1, /*all=*/true);
  CHECK(absl::IsDataLoss(read(dir)));
}

}  // namespace
}  // namespace reshard::testing
