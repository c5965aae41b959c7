// Files of torch.save that are put together by hand: what they hold, what is refused, and every call that can fail.
#include <cerrno>
#include <string>
#include <vector>

#include "absl/strings/match.h"
#include "checkpoint/formats/torch_save/flatten.h"
#include "checkpoint/formats/torch_save/read.h"
#include "reshard/checkpoint/catalog.h"
#include "reshard/checkpoint/selection.h"
#include "tests/catch.h"
#include "tests/checkpoint/formats/zip_bytes.h"
#include "tests/checkpoint/io/faults.h"
#include "tests/checkpoint/io/staged_job.h"
#include "tests/checkpoint/io/temp_directory.h"

namespace reshard {
namespace {

using namespace testing::pickled;  // NOLINT(google-build-using-namespace): the words of a pickle
using testing::PutContent;
using testing::TempDirectory;
using testing::ZipBytes;
using testing::ZipRecord;
using Names = std::vector<std::string>;

std::string File(const std::string& description, const std::vector<ZipRecord>& storages = {}) {
  std::vector<ZipRecord> records = {{.name = "a/data.pkl", .content = Pickled(description)}};
  records.insert(records.end(), storages.begin(), storages.end());
  return ZipBytes(records);
}

std::string Storage(const std::string& key, int64_t elements) {
  return Tuple({Str("storage"), Global("torch", "FloatStorage"), Str(key), Str("cpu"), Num(elements)}) + "Q";
}
std::string Tensor(const std::string& key, int64_t elements, const std::vector<int64_t>& shape,
                   const std::vector<int64_t>& strides, int64_t offset = 0) {
  return Call(Global("torch._utils", "_rebuild_tensor_v2"),
              {Storage(key, elements), Num(offset), Ints(shape), Ints(strides), "\x89", None()});
}

struct Placed {
  std::string name;
  std::vector<std::pair<std::string, std::string>> state = {};
};
std::string Placement(const Placed& placed) {
  std::vector<std::pair<std::string, std::string>> items;
  for (const auto& [key, value] : placed.state) items.emplace_back(Str(key), value);
  return Object(Global("torch.distributed.tensor.placement_types", placed.name), Dict(items));
}
std::string Shard(int64_t dim) { return Placement({"Shard", {{"dim", Num(dim)}}}); }

struct MeshForm {
  std::string shape = Ints({2});
  std::string place = Ints({0});
};
std::string DTensor(const std::string& local, const std::vector<int64_t>& shape,
                    const std::vector<std::string>& placements, const MeshForm& mesh,
                    const std::vector<std::pair<std::string, std::string>>& more_of_spec = {}) {
  const std::string layout =
      Object(Global("torch.distributed._mesh_layout", "_MeshLayout"), Dict({{Str("shape"), mesh.shape}}));
  const std::string device_mesh = Object(Global("torch.distributed.device_mesh", "DeviceMesh"),
                                         Dict({{Str("_layout"), layout}, {Str("_coordinate_on_dim"), mesh.place}}));
  std::vector<std::pair<std::string, std::string>> attributes = {{Str("mesh"), device_mesh},
                                                                 {Str("placements"), Tuple(placements)}};
  attributes.insert(attributes.end(), more_of_spec.begin(), more_of_spec.end());
  const std::string spec = Object(Global("torch.distributed.tensor._dtensor_spec", "DTensorSpec"), Dict(attributes));
  const std::string type = Global("torch.distributed.tensor", "DTensor");
  return Call(Global("torch._tensor", "_rebuild_from_type_v2"),
              {Global("torch._utils", "_rebuild_wrapper_subclass"), type,
               Tuple({type, Global("torch", "float32"), Ints(shape)}),
               Dict({{Str("_local_tensor"), local}, {Str("_spec"), spec}})});
}

ZipRecord Floats(const std::string& key, size_t elements) {
  return {.name = "a/data/" + key, .content = std::string(4 * elements, 'x')};
}

absl::StatusOr<Catalog> ReadOne(const std::string& bytes) {
  const TempDirectory directory;
  PutContent(directory.path(), {{"state.pt", bytes}});
  return ReadCatalog(directory / "state.pt");
}

// What is said of a file that is refused.
std::string SaidOf(const std::string& bytes, absl::StatusCode code = absl::StatusCode::kDataLoss) {
  const absl::Status status = ReadOne(bytes).status();
  INFO(status.ToString());
  CHECK(status.code() == code);
  return std::string(status.message());
}
bool Has(const std::string& message, const std::string& part) {
  INFO(message);
  CHECK(message.find(part) != std::string::npos);
  return message.find(part) != std::string::npos;
}

Names TensorsOf(const Catalog& catalog) {
  Names names;
  for (const Catalog::Tensor& tensor : catalog.tensors()) names.emplace_back(tensor.name);
  return names;
}

// What is said of two ranks' files with that DTensor each.
std::string SaidOfRanks(const std::string& dtensor, absl::StatusCode code = absl::StatusCode::kDataLoss) {
  const TempDirectory directory;
  const std::string bytes = File(Dict({{Str("w"), dtensor}}), {Floats("0", 8)});
  PutContent(directory.path(), {{"model_world_size_2_rank_0.pt", bytes}, {"model_world_size_2_rank_1.pt", bytes}});
  const absl::Status status = ReadCatalog(directory.path()).status();
  INFO(status.ToString());
  CHECK(status.code() == code);
  return std::string(status.message());
}

}  // namespace

TEST_CASE("tensors lie where their storages, offsets and strides say") {
  const std::string bytes = File(Dict({{Str("a"), Dict({{Num(0), Tensor("0", 12, {3, 2}, {4, 1}, 1)}})},
                                       {Str("t"), Tensor("0", 12, {4, 3}, {1, 4})},
                                       {Str("n"), List({Num(1), Num(2)})}}),
                                 {Floats("0", 12)});
  const absl::StatusOr<Catalog> catalog = ReadOne(bytes);
  REQUIRE(catalog.ok());
  CHECK(catalog->format() == CheckpointFormat::kTorchSave);
  CHECK(TensorsOf(*catalog) == Names{"a.0", "t"});
  const Catalog::FileRange whole = catalog->chunk(catalog->tensors()[1], 0).place;
  const Catalog::FileRange part = catalog->chunk(catalog->tensors()[0], 0).place;
  CHECK(whole.length == 48);
  CHECK(part.at == whole.at + 4);
  CHECK(part.length == 4 * (2 * 4 + 1 + 1));
  REQUIRE(catalog->byte_items().size() == 1);
  CHECK(catalog->byte_items()[0].name == "n");
  CHECK(*catalog->PathOf("a.0") == std::vector<Catalog::PathStep>{std::string("a"), std::string("0")});
}

TEST_CASE("an OrderedDict of Python 2 is a list of its pairs") {
  const auto ordered = [](const std::vector<std::string>& pairs) {
    return Call(Global("collections", "OrderedDict"), {List(pairs)});
  };
  const absl::StatusOr<Catalog> catalog =
      ReadOne(File(ordered({List({Str("w"), Tensor("0", 3, {3}, {1})}), Tuple({Str("v"), Num(1)})}), {Floats("0", 3)}));
  INFO(catalog.status());
  REQUIRE(catalog.ok());
  CHECK(TensorsOf(*catalog) == Names{"w"});
  CHECK(catalog->FindByteItem("v") != nullptr);
  Has(SaidOf(File(ordered({List({Str("w")})}))), "not pairs");
  Has(SaidOf(File(ordered({List({Str("w"), Num(1), Num(2)})}))), "not pairs");
}

TEST_CASE("descriptions that contradict the archive, or themselves") {
  Has(SaidOf(File(Dict({{Str("w"), Tensor("0", 3, {3}, {1})}}))), "no record of the elements, data/\"0\"");
  Has(SaidOf(File(Dict({{Str("w"), Tensor("0", 3, {3}, {1})}}), {Floats("0", 4)})), "a storage of 3 elements");
  Has(SaidOf(File(Dict({{Str("w"), Tensor("0", 4, {3}, {2})}}), {Floats("0", 4)})), "leave a storage of 4");
  Has(SaidOf(File(Dict({{Str("w"), Tensor("0", 4, {3}, {-1}, 3)}}), {Floats("0", 4)})), "leave a storage of 4");
  Has(SaidOf(File(Dict({{Str("a.b"), Num(1)}, {Str("a"), Dict({{Str("b"), Num(2)}})}}))), "two values");
  Has(SaidOf(File(Dict({{Num(1), Num(1)}, {Str("1"), Num(2)}}))), "both be called \"1\"");
  Has(SaidOf(File(Dict({{Str("w"), Tensor(std::string(65, '0'), 3, {3}, {1})}}))), "no record");
  Has(SaidOf(File(Object(Global("m", "Model"))), absl::StatusCode::kUnimplemented), "an object of m.Model");
  Has(SaidOf(File(Call(Global("os", "system"), {Str("true")})), absl::StatusCode::kUnimplemented), "\"os.system\"");
  Has(SaidOf(ZipBytes({{.name = "a/other", .content = "x"}})), "no description");
  Has(SaidOf(ZipBytes({{.name = "weights.npy", .content = "x"}}), absl::StatusCode::kUnimplemented), "NumPy");
}

TEST_CASE("what is in itself again and again is refused in no time") {
  // A dict of two of a dict of two of ..., thirty deep.
  std::string nested = Dict({{Str("x"), Num(1)}}) + Put(0);
  for (uint64_t i = 0; i < 30; ++i) {
    nested = nested + "0" + Dict({{Str("a"), Get(i)}, {Str("b"), Get(i)}}) + Put(i + 1);
  }
  Has(SaidOf(File(nested)), "nested in one another without end");
  std::string lists = List({Num(1)}) + Put(0);
  for (uint64_t i = 0; i < 30; ++i) lists = lists + "0" + List({Get(i), Get(i)}) + Put(i + 1);
  Has(SaidOf(File(Dict({{Str("x"), lists}}))), "nested in one another without end");
  // A dict that contains itself, and a name that would grow with every turn.
  const std::string inside = "}" + Put(0) + "(" + Str(std::string(32, 'x')) + Get(0) + "u";
  Has(SaidOf(File(Dict({{Str("padding"), Str(std::string(100'000, 'p'))}, {Str("x"), inside}}))), "contains itself");
  // A long shape that many tensors share.
  const std::vector<int64_t> many(1000, 1);
  Has(SaidOf(File(Dict({{Str("w"), Tensor("0", 1, many, many)}}), {Floats("0", 1)})), "offset, shape and strides");
}

TEST_CASE("DTensors that no mesh explains") {
  const std::string local = Tensor("0", 8, {2, 4}, {4, 1});
  const auto said = [&](const std::vector<std::string>& placements, const MeshForm& mesh = {}) {
    return SaidOfRanks(DTensor(local, {4, 4}, placements, mesh));
  };
  const auto not_read = [&](const std::vector<std::string>& placements, const MeshForm& mesh = {}) {
    return SaidOfRanks(DTensor(local, {4, 4}, placements, mesh), absl::StatusCode::kUnimplemented);
  };
  Has(said({Shard(1)}), "the rank has [2, 4] where its placements give it [4, 2] of [4, 4]");
  Has(said({Placement({"Replicate"})}), "give it [4, 4]");
  Has(said({}), "placements that are not one for each dimension");
  Has(said({Shard(0), Shard(0)}), "placements that are not one for each dimension");
  Has(said({Shard(2)}), "does not have");
  Has(said({Shard(-1)}), "does not have");
  Has(said({Num(3)}), "tensor \"w\": a placement that is not an object");
  Has(said({Placement({"_StridedShard", {{"dim", Num(0)}}})}), "without a split factor");
  Has(said({Shard(0)}, {.place = Ints({2})}), "a rank at [2] of a mesh of [2]");
  Has(said({Shard(0)}, {.shape = Ints({0})}), "of a mesh of [0]");
  Has(said({Shard(0)}, {.place = Ints({0, 0})}), "a rank at [0, 0]");
  Has(not_read({Placement({"Partial", {{"reduce_op", Str("sum")}}})}), "Partial");
  Has(not_read({Placement({"_StridedShard", {{"dim", Num(0)}, {"split_factor", Num(3)}}})}),
      "tensor \"w\": its placements, [2<3,d0>4, 4], give a rank several blocks of dimension 0");
  // Strided shards behind which something is split that they do not explain.
  const std::string strided = Placement({"_StridedShard", {{"dim", Num(0)}, {"split_factor", Num(3)}}});
  Has(not_read({strided, Shard(0)}, {.shape = Ints({2, 2}), .place = Ints({0, 0})}),
      "tensor \"w\": Shard(dim=0) over mesh axis d1 does not fit the blocks");
  Has(not_read({Shard(0)}, {.shape = Tuple({Ints({2})})}), "does not say its shape");
  const int64_t huge = int64_t{1} << 40;
  Has(not_read({Placement({"_StridedShard", {{"dim", Num(0)}, {"split_factor", Num(int64_t{1} << 62)}}}), Shard(0),
                Shard(0)},
               {.shape = Ints({2, huge, huge}), .place = Ints({0, 0, 0})}),
      "a mesh of [2, 1099511627776, 1099511627776]: the mesh has more than 4194304 devices");
  Has(SaidOf(File(Dict({{Str("w"), DTensor(local, {4, 4}, {Shard(0)}, {})}}), {Floats("0", 8)})),
      "name the directory with the files of all ranks");
}

TEST_CASE("FSDP2 over tensor parallelism, of rows that do not divide") {
  const std::vector<std::string> placements = {
      Placement({"_StridedShard", {{"dim", Num(0)}, {"split_factor", Num(2)}}}), Shard(0)};
  const auto part = [&](int64_t rank, int64_t rows, const std::vector<std::pair<std::string, std::string>>& more) {
    const MeshForm mesh = {.shape = Ints({2, 2}), .place = Ints({rank / 2, rank % 2})};
    const std::string dtensor = DTensor(Tensor("0", 4 * rows, {rows, 4}, {4, 1}), {10, 4}, placements, mesh, more);
    return File(Dict({{Str("w"), dtensor}}), {Floats("0", static_cast<size_t>(4 * rows))});
  };
  const auto files = [&](const std::vector<std::pair<std::string, std::string>>& more) {
    const TempDirectory directory;
    PutContent(directory.path(), {{"model_world_size_4_rank_0.pt", part(0, 3, more)},
                                  {"model_world_size_4_rank_1.pt", part(1, 3, more)},
                                  {"model_world_size_4_rank_2.pt", part(2, 2, more)},
                                  {"model_world_size_4_rank_3.pt", part(3, 2, more)}});
    return ReadCatalog(directory.path());
  };
  // As PyTorch 2.11 writes them, and as others do.
  const std::string order = Tuple(
      {Global("torch.distributed.tensor._dtensor_spec", "ShardOrderEntry") + Tuple({Num(0), Ints({1, 0})}) + "\x81"});
  for (const auto& more : std::vector<std::vector<std::pair<std::string, std::string>>>{
           {},
           {{Str("shard_order"), None()}, {Str("use_strided_shard_as_shard_order"), "\x88"}},
           {{Str("shard_order"), order}}}) {
    const absl::StatusOr<Catalog> catalog = files(more);
    INFO(catalog.status().ToString());
    REQUIRE(catalog.ok());
    const Catalog::Tensor& tensor = catalog->tensors()[0];
    CHECK(catalog->CheckCover(tensor).ok());
    std::vector<int64_t> rows;
    for (int64_t i = 0; i < tensor.num_chunks; ++i) rows.push_back(catalog->chunk(tensor, i).offset[0]);
    CHECK(rows == std::vector<int64_t>{0, 5, 3, 8});
  }
  // Strided shards that are not an order are split one by one, as their shard order says.
  const absl::Status status =
      files({{Str("shard_order"), order}, {Str("use_strided_shard_as_shard_order"), "\x89"}}).status();
  CHECK(absl::IsUnimplemented(status));
  Has(std::string(status.message()), "its placements, [3<d1,2,d0>10, 4], give a rank several blocks of dimension 0");
}

TEST_CASE("the files of all ranks, or none of them") {
  const std::string local = Tensor("0", 8, {2, 4}, {4, 1});
  const auto of = [&](int64_t rank) {
    return File(Dict({{Str("w"), DTensor(local, {4, 4}, {Shard(0)}, {.place = Ints({rank})})}, {Str("step"), Num(3)}}),
                {Floats("0", 8)});
  };
  const TempDirectory directory;
  PutContent(directory / "verl", {{"model_world_size_2_rank_0.pt", of(0)},
                                  {"model_world_size_2_rank_1.pt", of(1)},
                                  {"optim_world_size_2_rank_0.pt", "x"}});
  const absl::StatusOr<Catalog> verl = ReadCatalog(directory / "verl");
  REQUIRE(verl.ok());
  CHECK(TensorsOf(*verl) == Names{"w"});
  CHECK(verl->tensors()[0].num_chunks == 2);
  CHECK(verl->CheckCover(verl->tensors()[0]).ok());
  CHECK(verl->byte_items().size() == 1);  // the first rank's

  PutContent(directory / "items",
             {{"model_0.pt", of(0)}, {"model_1.pt", of(1)}, {"step_0.pt", File(Num(4))}, {"step_1.pt", File(Num(4))}});
  const absl::StatusOr<Catalog> items = ReadCatalog(directory / "items");
  REQUIRE(items.ok());
  CHECK(TensorsOf(*items) == Names{"model.w"});
  CHECK(items->FindByteItem("step") != nullptr);

  // As accelerate writes them without DCP, beside those of the optimizer.
  PutContent(directory / "accelerate", {{"pytorch_model_fsdp_0_rank0.bin", of(0)},
                                        {"pytorch_model_fsdp_0_rank1.bin", of(1)},
                                        {"optimizer_0_rank0.bin", "x"}});
  for (const char* const named : {"accelerate", "accelerate/pytorch_model_fsdp_0_rank1.bin"}) {
    const absl::StatusOr<Catalog> accelerate = ReadCatalog(directory / named);
    REQUIRE(accelerate.ok());
    CHECK(TensorsOf(*accelerate) == Names{"w"});
    CHECK(accelerate->CheckCover(accelerate->tensors()[0]).ok());
  }
  PutContent(directory / "missing", {{"pytorch_model_fsdp_rank1.bin", of(1)}});
  CHECK(absl::StrContains(ReadCatalog(directory / "missing").status().message(),
                          "pytorch_model_fsdp_rank0.bin is missing"));
  PutContent(directory / "models",
             {{"pytorch_model_fsdp_0_rank0.bin", of(0)}, {"pytorch_model_fsdp_1_rank0.bin", of(0)}});
  CHECK(absl::StrContains(ReadCatalog(directory / "models").status().message(), "2 models"));

  // A rank's file twice, and none of another's, is found out by the elements.
  PutContent(directory / "twice", {{"model_world_size_2_rank_0.pt", of(0)}, {"model_world_size_2_rank_1.pt", of(0)}});
  const absl::StatusOr<Catalog> twice = ReadCatalog(directory / "twice");
  REQUIRE(twice.ok());
  CHECK(absl::IsDataLoss(twice->CheckCover(twice->tensors()[0])));

  // A rank that is in no mesh has no part; that nobody has one is found out by the elements.
  const std::string outside =
      File(Dict({{Str("w"), DTensor(local, {4, 4}, {Shard(0)}, {.place = None()})}}), {Floats("0", 8)});
  PutContent(directory / "outside", {{"model_world_size_1_rank_0.pt", outside}});
  const absl::StatusOr<Catalog> nobody = ReadCatalog(directory / "outside");
  REQUIRE(nobody.ok());
  REQUIRE(TensorsOf(*nobody) == Names{"w"});
  CHECK(absl::IsDataLoss(nobody->CheckCover(nobody->tensors()[0])));

  // What ranks have that is not the same has a name for each of them.
  const auto with = [&](int64_t seed, char element) {
    return File(Dict({{Str("seed"), Num(seed)}, {Str("buffer"), Tensor("0", 2, {2}, {1})}, {Str("step"), Num(3)}}),
                {{.name = "a/data/0", .content = std::string(8, element)}});
  };
  PutContent(directory / "seeds", {{"model_world_size_3_rank_0.pt", with(1, 'x')},
                                   {"model_world_size_3_rank_1.pt", with(1, 'x')},
                                   {"model_world_size_3_rank_2.pt", with(2, 'y')}});
  const absl::StatusOr<Catalog> seeds = ReadCatalog(directory / "seeds");
  REQUIRE(seeds.ok());
  CHECK(TensorsOf(*seeds) == Names{"buffer.rank_0", "buffer.rank_1", "buffer.rank_2"});
  CHECK(seeds->FindByteItem("step") != nullptr);
  CHECK(seeds->FindByteItem("seed") == nullptr);
  CHECK(seeds->FindByteItem("seed.rank_2") != nullptr);
  CHECK(seeds->NameInFiles("seed.rank_2") == "seed");
  REQUIRE(seeds->rank_local().size() == 2);
  CHECK(seeds->rank_local()[1].names == Names{"buffer.rank_0", "buffer.rank_1", "buffer.rank_2"});
  CHECK(seeds->rank_local()[1].files ==
        std::pair<std::string, std::string>("model_world_size_3_rank_0.pt", "model_world_size_3_rank_2.pt"));
  const auto selected = [&](const Selection& selection) {
    const absl::StatusOr<Catalog> taken = Select(*seeds, selection);
    return taken.ok() ? std::to_string(taken->tensors().size() + taken->byte_items().size())
                      : std::string(taken.status().message());
  };
  Has(selected({}), "\"seed\" and 1 others differ between the files of ranks");
  Has(selected({.weights_only = true}), "\"buffer\" differs between the files of ranks, such as");
  CHECK(selected({.keep_rank_local = true}) == "7");
  CHECK(selected({.exclude = {"seed", "buffer"}}) == "1");
  CHECK(selected({.include = {"step"}}) == "1");

  const auto said = [&](const testing::Content& content, absl::StatusCode code) {
    const TempDirectory other;
    PutContent(other.path(), content);
    const absl::Status status = ReadCatalog(other.path()).status();
    INFO(status.ToString());
    CHECK(status.code() == code);
    return std::string(status.message());
  };
  constexpr auto kDataLoss = absl::StatusCode::kDataLoss;
  constexpr auto kInvalid = absl::StatusCode::kInvalidArgument;
  Has(said({{"model_world_size_2_rank_1.pt", of(1)}}, kDataLoss), "rank_0.pt is missing");
  Has(said({{"model_world_size_1_rank_0.pt", of(0)}, {"model_world_size_1_rank_1.pt", of(1)}}, kDataLoss),
      "of no rank");
  Has(said({{"model_world_size_1_rank_0.pt", of(0)}, {"model_world_size_2_rank_0.pt", of(0)}}, kInvalid), "two world");
  Has(said({{"model_0.pt", of(0)}, {"model_2.pt", of(1)}}, kDataLoss), "model_1.pt is missing");
  Has(said({{"model_world_size_1_rank_0.pt", of(0)}, {"model_world_size_1_rank_00.pt", of(0)}}, kInvalid), "same rank");
  // Numbered files that are checkpoints of their own.
  const std::string plain = File(Dict({{Str("w"), Tensor("0", 8, {2, 4}, {4, 1})}}), {Floats("0", 8)});
  Has(said({{"epoch_0.pt", plain}, {"epoch_1.pt", plain}}, kInvalid), "hardly those of ranks");
  Has(said({{"epoch_1.pt", plain}, {"epoch_2.pt", plain}}, absl::StatusCode::kUnimplemented),
      "nothing says to belong together");
}

TEST_CASE("the files of an index") {
  const auto bin = [](const std::string& name) {
    return File(Dict({{Str(name), Tensor("0", 2, {2}, {1})}}), {Floats("0", 2)});
  };
  const auto read = [&](const std::string& index, const testing::Content& bins) {
    const TempDirectory directory;
    testing::Content content = bins;
    content["pytorch_model.bin.index.json"] = index;
    PutContent(directory.path(), content);
    const absl::StatusOr<Catalog> catalog = ReadCatalog(directory.path());
    return catalog.ok() ? "has_index " + std::to_string(catalog->has_index()) : catalog.status().ToString();
  };
  const std::string good = R"({"weight_map": {"a": "1.bin", "b": "2.bin"}})";
  CHECK(read(good, {{"1.bin", bin("a")}, {"2.bin", bin("b")}}) == "has_index 1");
  Has(read(good, {{"1.bin", bin("a")}}), "\"2.bin\" is missing");
  Has(read(good, {{"1.bin", bin("b")}, {"2.bin", bin("a")}}), "has none of that name");
  Has(read(R"({"weight_map": {"a": "1.bin", "b": "../2.bin"}})", {{"1.bin", bin("a")}}), "leaves its directory");
  Has(read(R"({"weight_map": {"a": 1}})", {}), "is not text");
  const std::string both =
      File(Dict({{Str("a"), Tensor("0", 2, {2}, {1})}, {Str("b"), Tensor("0", 2, {2}, {1})}}), {Floats("0", 2)});
  Has(read(good, {{"1.bin", both}, {"2.bin", bin("b")}}), "another of its files has it, too");
}

TEST_CASE("a call to the system that fails is said, wherever it is") {
  const TempDirectory directory(TempDirectory::Where::kInMemory);
  const std::string local = Tensor("0", 8, {2, 4}, {4, 1});
  for (int64_t rank = 0; rank < 2; ++rank) {
    const std::string dtensor = DTensor(local, {4, 4}, {Shard(0)}, {.place = Ints({rank})});
    PutContent(directory.path(), {{"model_world_size_2_rank_" + std::to_string(rank) + ".pt",
                                   File(Dict({{Str("w"), dtensor}}), {Floats("0", 8)})}});
  }
  for (int64_t at = 0;; ++at) {
    testing::FaultySystem system({.kind = testing::Fault::kFails, .at = at, .error = EIO});
    absl::StatusOr<Catalog> catalog;
    {
      const io::ScopedSystem scoped(&system);
      catalog = ReadCatalog(directory.path());
    }
    INFO("call " << at);
    CHECK(system.open() == 0);
    if (!system.happened()) {
      CHECK(catalog.ok());
      CHECK(at > 10);
      break;
    }
    if (!catalog.ok()) CHECK(std::string(catalog.status().message()).find("Input/output error") != std::string::npos);
  }
}

}  // namespace reshard
