// Checkpoints of other kinds are called by their names, and those of ours are not mistaken for one.
#include <filesystem>
#include <string>
#include <utility>
#include <vector>

#include "reshard/checkpoint/catalog.h"
#include "reshard/checkpoint/error.h"
#include "tests/catch.h"
#include "tests/checkpoint/io/staged_job.h"
#include "tests/checkpoint/io/temp_directory.h"

namespace reshard {
namespace {

using testing::Content;
using testing::PutContent;
using testing::TempDirectory;

constexpr const char* kSingle = RESHARD_SOURCE_DIR "/tests/checkpoint/fixtures/single";

// What is said of a directory with those files, or of the file "f".
std::string SaidOf(const Content& content, const std::string& below = "") {
  TempDirectory directory;
  PutContent(directory.path(), content);
  const absl::Status status = ReadCatalog(directory.path() + below).status();
  REQUIRE_FALSE(status.ok());
  CHECK(KindOf(status) == CheckpointError::kInput);
  CHECK(std::string(status.message()).find(directory.path()) != std::string::npos);
  return std::string(status.message());
}

bool Says(const std::string& message, const std::string& what) {
  INFO(message);
  CHECK(message.find(what) != std::string::npos);
  return message.find(what) != std::string::npos;
}

}  // namespace

TEST_CASE("checkpoints of other kinds are called by their names") {
  const std::string zip("PK\x03\x04\0\0\x08\x08", 8);
  Says(SaidOf({{"default/manifest.ocdbt", "x"}, {"_CHECKPOINT_METADATA", "{}"}}), "Orbax");
  Says(SaidOf({{"default/manifest.ocdbt", "x"}}), "Orbax");
  Says(SaidOf({{"pytorch_model-00001-of-00001.bin", zip}, {"config.json", "{}"}}), "Hugging Face");
  Says(SaidOf({{"model_world_size_2_rank_0.pt", zip}, {"fsdp_config.json", "{}"}}), "rank_1.pt is missing");
  Says(SaidOf({{"best.pt", zip}, {"last.pt", zip}}), "torch.save");
  Says(SaidOf({{"last.ckpt", zip}, {"config.json", "{}"}}), "name that file");
  Says(SaidOf({{"m.gguf", "GGUF"}}), "GGUF");
  Says(SaidOf({{".metadata.tmp", "x"}, {"__0_0.distcp", zip}}), "did not finish");
  Says(SaidOf({{"__0_0.distcp", zip}}), "did not finish");
  Says(SaidOf({{"f", zip}}, "/f"), "not a zip archive");
  std::string tar(512, 'x');
  tar.replace(257, 5, "ustar");
  Says(SaidOf({{"f", tar}}, "/f"), "a tar file");
  Says(SaidOf({{"f", "GGUF\3\0\0\0"}}, "/f"), "GGUF");
}

TEST_CASE("a directory of checkpoints says which is in it, and which was saved last") {
  const std::string said =
      SaidOf({{"step-9/.metadata", "x"}, {"step-10/.metadata", "x"}, {"step-1/.metadata", "x"}, {"log/a", "x"}});
  Says(said, "has 3 in it: \"step-10\", \"step-9\", \"step-1\"; the latest is ");
  Says(said, "/step-10\"");
  Says(SaidOf({{"optimizer_0/.metadata", "x"}, {"pytorch_model_fsdp_0/.metadata", "x"}}), "name one of them");
  Says(SaidOf({{"only/model.safetensors", "x"}}), "has one in it: ");
  Content many;
  for (int i = 0; i < 20; ++i) many["step-" + std::to_string(i) + "/.metadata"] = "x";
  Says(SaidOf(many),
       "has 20 in it: \"step-19\", \"step-18\", \"step-17\", \"step-16\", \"step-15\", ...; the latest is ");
}

TEST_CASE("what is wrong with a checkpoint of ours is said, whatever lies beside it") {
  TempDirectory directory;
  std::filesystem::copy(kSingle, directory / "c");
  PutContent(directory / "c", {{"model_0.pt", "PK"}, {"step-1/.metadata", "x"}});
  CHECK(ReadCatalog(directory / "c").ok());
  std::filesystem::remove(directory / "c/__0_0.distcp");
  Says(std::string(ReadCatalog(directory / "c").status().message()), "is missing");
  PutContent(directory / "c", {{".metadata", "x"}});
  CHECK(ReadCatalog(directory / "c").status().code() == absl::StatusCode::kDataLoss);

  // Nothing known, and nothing at all.
  PutContent(directory / "d", {{"readme", "x"}});
  CHECK(ReadCatalog(directory / "d").status().code() == absl::StatusCode::kNotFound);
  CHECK(ReadCatalog(directory / "e").status().code() == absl::StatusCode::kNotFound);
}

}  // namespace reshard
