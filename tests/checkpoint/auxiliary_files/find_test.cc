// What lies beside a checkpoint: what is carried, what is left, what is not looked into.
#include "checkpoint/auxiliary_files/find.h"

#include <sys/stat.h>

#include <filesystem>
#include <map>
#include <string>
#include <vector>

#include "checkpoint/auxiliary_files/copy.h"
#include "checkpoint/auxiliary_files/kinds.h"
#include "checkpoint/catalog/catalog_builder.h"
#include "checkpoint/formats/torch_save/format.h"
#include "tests/catch.h"
#include "tests/checkpoint/io/staged_job.h"
#include "tests/checkpoint/io/temp_directory.h"

namespace reshard {
namespace {

namespace fs = std::filesystem;
using testing::ContentAt;
using testing::PutContent;
using testing::TempDirectory;
using Names = std::vector<std::string>;

constexpr const char* kFixtures = RESHARD_SOURCE_DIR "/tests/checkpoint/fixtures/";

AuxiliaryFiles MustFind(const std::string& path, const AuxiliaryFileTerms& terms = {}) {
  const absl::StatusOr<Catalog> catalog = ReadCatalog(path);
  INFO(catalog.status());
  REQUIRE(catalog.ok());
  absl::StatusOr<AuxiliaryFiles> found = auxiliary_files::Find(path, *catalog, terms);
  INFO(found.status());
  REQUIRE(found.ok());
  return *std::move(found);
}

Names PathsOf(const std::vector<AuxiliaryFile>& files) {
  Names paths;
  for (const AuxiliaryFile& file : files) paths.push_back(file.path);
  return paths;
}

}  // namespace

TEST_CASE("what frameworks look for is carried, and what it is is told") {
  const AuxiliaryFiles megatron = MustFind(std::string(kFixtures) + "frameworks/megatron_plans");
  CHECK(PathsOf(megatron.carried) == Names{"common.pt", "metadata.json"});
  CHECK(megatron.carried[0].may_run);
  CHECK_FALSE(megatron.carried[1].may_run);
  CHECK(megatron.carried[0].bytes ==
        static_cast<int64_t>(fs::file_size(std::string(kFixtures) + "frameworks/megatron_plans/common.pt")));
  CHECK(megatron.left.empty());
  CHECK(PathsOf(MustFind(std::string(kFixtures) + "frameworks/lightning").carried) == Names{"meta.pt"});
}

TEST_CASE("all else is named, by pattern it comes along, and tensors never do") {
  TempDirectory directory;
  const std::string path = directory / "model";
  fs::copy(std::string(kFixtures) + "hf_sharded", path);
  PutContent(path, {{"config.json", "{}"},
                    {"README.md", "read me"},
                    {"metadata.json", "{}"},  // Megatron's beside a distributed checkpoint, anybody's here
                    {"notes/a.txt", "a"},
                    {"pytorch_model.bin", "tensors"},
                    {"original/consolidated.00.pth", "tensors"},
                    {".git/config", "[core]"},
                    {"modeling_x.py", "import x"}});
  const Names left = {".git/", "README.md", "metadata.json", "notes/", "original/", "pytorch_model.bin"};
  AuxiliaryFiles found = MustFind(path);
  CHECK(PathsOf(found.carried) == Names{"config.json", "modeling_x.py"});
  CHECK(found.carried[1].may_run);
  CHECK(found.left == left);

  found = MustFind(path, {.also = {"*.md", "notes/*", "pytorch_model.bin", "*.pth", "*.safetensors", ".git/*"},
                          .may_match_nothing = true});
  CHECK(PathsOf(found.carried) == Names{"README.md", "config.json", "modeling_x.py", "notes/a.txt"});
  CHECK(found.left == Names{".git/", "metadata.json", "original/", "pytorch_model.bin"});

  found = MustFind(path, {.also = {"*.md"}, .none = true});
  CHECK(found.carried.empty());
  CHECK(found.left.size() == 8);
}

TEST_CASE("beside a single file nothing belongs to it, unless the terms say so and a configuration is there") {
  TempDirectory directory;
  fs::copy(std::string(kFixtures) + "hf_consolidated/model-00001-of-00002.safetensors", directory / "a.safetensors");
  PutContent(directory.path(), {{"config.json", "{}"}});
  AuxiliaryFiles found = MustFind(directory / "a.safetensors");
  CHECK(found.carried.empty());
  CHECK(found.left.empty());

  PutContent(directory.path(), {{"tokenizer.json", "{}"},
                                {"README.md", "read me"},
                                {"b.safetensors", "tensors"},
                                {"huggingface/vocab.txt", "a"}});
  found = MustFind(directory / "a.safetensors", {.beside_file = true});
  CHECK(PathsOf(found.carried) == Names{"config.json", "tokenizer.json"});
  CHECK(found.left.empty());
  CHECK(MustFind(directory / "a.safetensors", {.none = true, .beside_file = true}).carried.empty());
  fs::remove(directory / "config.json");
  CHECK(MustFind(directory / "a.safetensors", {.beside_file = true}).carried.empty());
}

TEST_CASE("links are followed only into a hub's cache, and a pipe holds nobody up") {
  TempDirectory directory;
  const std::string path = directory / "snapshots/1";
  fs::create_directories(path);
  PutContent(directory / "blobs", {{"abc", "{}"}, {"below/def", "{}"}});
  PutContent(directory.path(), {{"secret", "key"}});
  for (const fs::directory_entry& file : fs::directory_iterator(std::string(kFixtures) + "hf_sharded")) {
    fs::copy(file, directory / "blobs");
    fs::create_symlink("../../blobs/" + file.path().filename().string(), path + "/" + file.path().filename().string());
  }
  fs::create_directory(path + "/huggingface");
  fs::create_symlink("../../blobs/abc", path + "/config.json");
  fs::create_symlink("../../../blobs/abc", path + "/huggingface/config.json");
  fs::create_symlink("../../secret", path + "/tokenizer.json");
  fs::create_symlink("../../blobs/../secret", path + "/vocab.json");
  fs::create_symlink("../../blobs/below/def", path + "/merges.txt");
  fs::create_symlink(directory / "blobs/abc", path + "/params.json");
  fs::create_symlink("../../blobs", path + "/additional_chat_templates");
  REQUIRE(mkfifo((path + "/generation_config.json").c_str(), 0600) == 0);
  const AuxiliaryFiles found = MustFind(path, {.also = {"*"}});
  CHECK(PathsOf(found.carried) == Names{"config.json", "huggingface/config.json"});
  CHECK(found.left == Names{"additional_chat_templates", "generation_config.json", "merges.txt", "params.json",
                            "tokenizer.json", "vocab.json"});
}

TEST_CASE("what verl keeps in huggingface/ goes beside the model, but never over or below what is there") {
  TempDirectory directory;
  const std::string path = directory / "verl";
  PutContent(path, {{"huggingface/config.json", "{}"},
                    {"huggingface/tokenizer.json", "1"},
                    {"tokenizer.json", "2"},
                    {"huggingface/a", "3"},
                    {"a/b", "4"}});
  // As a reader of torch.save would have found it.
  catalog::CatalogBuilder builder(torch_save::kFormatOfRanks, path);
  const absl::StatusOr<Catalog> ranks = std::move(builder).Build();
  REQUIRE(ranks.ok());
  const absl::StatusOr<AuxiliaryFiles> found = FindAuxiliaryFiles(path, *ranks, {.also = {"huggingface/*", "a/*"}});
  REQUIRE(found.ok());
  std::map<std::string, std::string> to;
  for (const AuxiliaryFile& file : found->carried) to[file.path] = file.to;
  CHECK(to == std::map<std::string, std::string>{{"a/b", "a/b"},
                                                 {"huggingface/a", "huggingface/a"},
                                                 {"huggingface/config.json", "config.json"},
                                                 {"huggingface/tokenizer.json", "huggingface/tokenizer.json"},
                                                 {"tokenizer.json", "tokenizer.json"}});
}

TEST_CASE("a pattern that matches nothing beside a checkpoint is an error, unless it may") {
  TempDirectory directory;
  const std::string path = directory / "model";
  fs::copy(std::string(kFixtures) + "hf_sharded", path);
  PutContent(path, {{"README.md", "read me"}});
  const absl::StatusOr<Catalog> catalog = ReadCatalog(path);
  REQUIRE(catalog.ok());
  const absl::Status status = FindAuxiliaryFiles(path, *catalog, {.also = {"README.mb"}}).status();
  CHECK(status.code() == absl::StatusCode::kInvalidArgument);
  CHECK(std::string(status.message()).find("the nearest is \"README.md\"") != std::string::npos);
  CHECK(FindAuxiliaryFiles(path, *catalog, {.also = {"README.mb"}, .may_match_nothing = true}).ok());
  CHECK(FindAuxiliaryFiles(path, *catalog, {.also = {"README.mb"}, .none = true}).ok());
}

TEST_CASE("a directory that is deep or has too much in it is named as a whole") {
  TempDirectory directory;
  const std::string path = directory / "model";
  fs::copy(std::string(kFixtures) + "hf_sharded", path);
  std::string deep;
  for (int i = 0; i < 12; ++i) deep += "d/";
  PutContent(path, {{deep + "x.txt", "x"}});
  CHECK(MustFind(path).left == Names{"d/"});
  CHECK(MustFind(path, {.also = {"e/*"}, .may_match_nothing = true}).left == Names{"d/"});
  CHECK(MustFind(path, {.also = {"d/*"}}).left == Names{"d/d/d/d/d/d/d/d/d/"});
  CHECK(MustFind(path, {.also = {"d/d/d/d/d/d/d/d/d/d/d/d/x.txt"}, .may_match_nothing = true}).carried.empty());
}

TEST_CASE("auxiliary files are copied as they are, over what is there, and compared byte by byte") {
  TempDirectory directory;
  const std::string from = directory / "from", to = directory / "to";
  const std::string large(600'001, 'x');
  PutContent(from, {{"config.json", "{}"}, {"a/b/large", large}, {"empty", ""}});
  PutContent(to, {{"config.json", "what an interrupted run left"}});
  std::vector<AuxiliaryFile> files;
  for (const char* path : {"a/b/large", "config.json", "empty"}) {
    struct stat facts;
    REQUIRE(stat((from + "/" + path).c_str(), &facts) == 0);
    const auto seconds = static_cast<int64_t>(facts.st_mtim.tv_sec);
    files.push_back({path, facts.st_size, seconds * 1'000'000'000 + facts.st_mtim.tv_nsec, path, false});
  }
  CHECK(*auxiliary_files::FirstDifferent(from, files, to) == 0);
  REQUIRE(auxiliary_files::Copy(from, files, to).ToString() == "OK");
  CHECK(ContentAt(to) == ContentAt(from));
  CHECK(*auxiliary_files::FirstDifferent(from, files, to) == 3);
  std::string changed = large;
  changed[600'000] = 'y';
  PutContent(to, {{"a/b/large", changed}});
  CHECK(*auxiliary_files::FirstDifferent(from, files, to) == 0);

  // What was written to since it was found is not what was promised.
  PutContent(from, {{"config.json", "{}}"}});
  CHECK(auxiliary_files::Copy(from, files, to).code() == absl::StatusCode::kFailedPrecondition);
  fs::remove(from + "/config.json");
  CHECK(auxiliary_files::Copy(from, files, to).code() == absl::StatusCode::kFailedPrecondition);
}

TEST_CASE("names that results write are never those of auxiliary files") {
  for (const char* name : {".metadata", "__0_0.distcp", "__3.metadata", "model.safetensors", "reshard.json",
                           "model.safetensors.index.json", "model-00001-of-00002.safetensors"}) {
    CHECK(auxiliary_files::HasTensors(name));
    CHECK(auxiliary_files::HasTensors(std::string("a/") + name));
  }
  CHECK_FALSE(auxiliary_files::HasTensors("metadata.json"));
  CHECK_FALSE(auxiliary_files::HasTensors("common.pt"));
}

}  // namespace reshard
