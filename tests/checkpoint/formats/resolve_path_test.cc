// A file that is a part of a checkpoint means all of it.
#include <filesystem>
#include <string>
#include <vector>

#include "reshard/checkpoint/catalog.h"
#include "reshard/checkpoint/side_files.h"
#include "tests/catch.h"
#include "tests/checkpoint/formats/safetensors_file.h"

namespace reshard::testing {
namespace {

std::string FileOf(const std::string& name) {
  return SafetensorsBytes(R"({")" + name + R"(":{"dtype":"U8","shape":[3],"data_offsets":[0,3]}})", 3);
}

std::vector<std::string> NamesAt(const std::string& path) {
  const absl::StatusOr<Catalog> catalog = ReadCatalog(path);
  INFO(catalog.status());
  REQUIRE(catalog.ok());
  std::vector<std::string> names;
  for (const Catalog::Tensor& tensor : catalog->tensors()) names.emplace_back(tensor.name);
  return names;
}

std::string ErrorAt(const std::string& path) { return std::string(ReadCatalog(path).status().message()); }

using Names = std::vector<std::string>;

}  // namespace

TEST_CASE("an index means what it says, whatever else is in its directory") {
  const TemporaryDirectory dir;
  dir.Write("model-00001-of-00002.safetensors", FileOf("a"));
  dir.Write("model-00002-of-00002.safetensors", FileOf("b"));
  dir.Write("consolidated.safetensors", FileOf("c"));
  dir.Write("config.json", "{}");
  const std::string index =
      dir.Write("model.safetensors.index.json",
                R"({"weight_map":{"a":"model-00001-of-00002.safetensors","b":"model-00002-of-00002.safetensors"}})");
  CHECK(NamesAt(index) == Names{"a", "b"});
  CHECK(DirectoryMeantBy(index) == dir.path());
  // What lies beside it belongs to it.
  const absl::StatusOr<AuxiliaryFiles> beside = FindAuxiliaryFiles(index, *ReadCatalog(index));
  REQUIRE(beside.ok());
  REQUIRE(beside->carried.size() == 1);
  CHECK(beside->carried[0].path == "config.json");

  SECTION("so does a shard") { CHECK(NamesAt(dir.path("model-00002-of-00002.safetensors")) == Names{"a", "b"}); }
  SECTION("and one without an index, where all are there") {
    std::filesystem::remove(index);
    CHECK(NamesAt(dir.path("model-00002-of-00002.safetensors")) == Names{"a", "b"});
    CHECK(DirectoryMeantBy(dir.path("model-00001-of-00002.safetensors")) == dir.path());
  }
  SECTION("what is whole means itself") {
    CHECK(NamesAt(dir.path("consolidated.safetensors")) == Names{"c"});
    CHECK(DirectoryMeantBy(dir.path("consolidated.safetensors")).empty());
    CHECK(DirectoryMeantBy(dir.path()).empty());
  }
}

TEST_CASE("a shard means those of its series that are there, and names those that are missing") {
  const TemporaryDirectory dir;
  const std::string third = dir.Write("model-00003-of-00009.safetensors", FileOf("a"));
  dir.Write("model-00007-of-00009.safetensors", FileOf("b"));
  CHECK(NamesAt(third) == Names{"a", "b"});
  CHECK(DirectoryMeantBy(third) == dir.path());
  const std::string missing = ReadCatalog(third)->incomplete();
  INFO(missing);
  CHECK(missing.find("2 of 9 parts are here; missing: model-00001-of-00009.safetensors, "
                     "model-00002-of-00009.safetensors") != std::string::npos);
  // Numbers that make no sense are a part of a name.
  for (const char* name : {"model-00001-of-00001.safetensors", "model-00003-of-00002.safetensors",
                           "model-0-of-2.safetensors", "model-1-of-9999999999.safetensors", "of-.safetensors"}) {
    CHECK(NamesAt(dir.Write(name, FileOf("x"))) == Names{"x"});
  }
}

TEST_CASE("the metadata of DCP, a .distcp file and reshard.json mean their directory") {
  const TemporaryDirectory dir;
  std::filesystem::copy(RESHARD_SOURCE_DIR "/tests/checkpoint/fixtures/single", dir.path("c"));
  const Names all = NamesAt(dir.path("c"));
  CHECK(NamesAt(dir.path("c/.metadata")) == all);
  CHECK(NamesAt(dir.path("c/__0_0.distcp")) == all);
  dir.Write("c/reshard.json", "{}");
  CHECK(NamesAt(dir.path("c/reshard.json")) == all);
  CHECK(DirectoryMeantBy(dir.path("c/.metadata")) == dir.path("c"));
  // What is not there means nothing.
  CHECK(ReadCatalog(dir.path("d/.metadata")).status().code() == absl::StatusCode::kNotFound);
}

TEST_CASE("a rank's file of Megatron's legacy format means all ranks, unless there is no other") {
  const TemporaryDirectory dir;
  const std::string file = dir.Write("iter_0000100/mp_rank_00/model_optim_rng.pt", "PK\x03\x04");
  dir.Write("latest_checkpointed_iteration.txt", "100");
  const auto says = [](const std::string& path, const char* what) {
    const std::string error = ErrorAt(path);
    INFO(path << ": " << error);
    CHECK(error.find(what) != std::string::npos);
  };
  for (const std::string& path : {dir.path("iter_0000100"), dir.path(), file}) says(path, "zip archive");
  CHECK(DirectoryMeantBy(file).empty());
  std::filesystem::create_directory(dir.path("iter_0000100/mp_rank_01"));
  says(dir.path("iter_0000100"), "\"mp_rank_01\" has no file model_optim_rng.pt");
  dir.Write("iter_0000100/mp_rank_01/model_optim_rng.pt", "PK\x03\x04");
  CHECK(DirectoryMeantBy(file) == dir.path("iter_0000100"));
  dir.Write("iter_0000100/mp_rank_00_000/model_optim_rng.pt", "PK\x03\x04");
  says(dir.path("iter_0000100"), "are of jobs with different parallelism");
}

TEST_CASE("a pipeline of diffusers says how its models are converted") {
  const TemporaryDirectory dir;
  dir.Write("model_index.json", "{}");
  dir.Write("unet/diffusion_pytorch_model.safetensors", FileOf("a"));
  dir.Write("vae/diffusion_pytorch_model.safetensors", FileOf("b"));
  const std::string error = ErrorAt(dir.path());
  INFO(error);
  CHECK(error.find("is a pipeline of diffusers, whose models are converted one by one: unet, vae") !=
        std::string::npos);
}

}  // namespace reshard::testing
