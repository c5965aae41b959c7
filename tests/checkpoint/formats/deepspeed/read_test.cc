// Checkpoints that DeepSpeed has saved (fixtures/make_deepspeed.py), against what its own scripts make of them.
#include "checkpoint/formats/deepspeed/read.h"

#include <filesystem>
#include <optional>
#include <set>
#include <string>

#include "absl/strings/str_cat.h"
#include "reshard/checkpoint/catalog.h"
#include "reshard/checkpoint/convert.h"
#include "reshard/checkpoint/verify.h"
#include "tests/catch.h"
#include "tests/checkpoint/io/temp_directory.h"

namespace reshard {
namespace {

using testing::TempDirectory;

const std::string kSaved = RESHARD_SOURCE_DIR "/tests/checkpoint/fixtures/deepspeed/";

// What differs between two checkpoints, in tensors but for the optimizer's count of steps.
std::string DifferenceOf(const std::string& a, const std::string& b) {
  VerifyOptions options;
  options.recipe.selection.include = {"module.*", "optimizer.state.*"};
  if (a.find("universal") == a.npos) options.recipe.selection.exclude = {"*.step"};
  options.side_files.none = true;
  const absl::StatusOr<VerifyReport> report = VerifyCheckpoints(a, b, options);
  if (!report.ok()) return report.status().ToString();
  std::string text;
  for (const VerifyReport::Difference& one : report->differences)
    absl::StrAppend(&text, one.name, ": ", one.what, "\n");
  return report->tensors < 10 ? "hardly any tensors" : text;
}

// A checkpoint whose files may be changed.
std::string CopyOf(const TempDirectory& directory, const std::string& name) {
  const std::string copy = directory.path() + "/" + name;
  std::filesystem::copy(kSaved + name, copy, std::filesystem::copy_options::recursive);
  return copy;
}

std::string FileOf(const std::string& checkpoint, const std::string& name) {
  return checkpoint + "/global_step3/" + name;
}

}  // namespace

TEST_CASE("parameters and the optimizer's state are cut out of the buffers of DeepSpeed's ranks") {
  const std::string name = GENERATE("zero1", "zero2", "zero3", "zero2_tied", "zero3_tied", "universal");
  INFO(name);
  const absl::StatusOr<Catalog> catalog = ReadCatalog(kSaved + name);
  INFO(catalog.status());
  REQUIRE(catalog.ok());
  for (const Catalog::Tensor& tensor : catalog->tensors()) CHECK(catalog->CheckCover(tensor).ok());
  CHECK(DifferenceOf(kSaved + name, kSaved + (name == "universal" ? "zero3_tied" : name) + ".safetensors") == "");
  // What else was saved is there, and what describes the buffers is not.
  CHECK(catalog->FindByteItem("epoch") != nullptr);
  CHECK(catalog->FindTensor("module.table")->dtype == DType::kF32);
  for (const Catalog::ByteItem& item : catalog->byte_items()) CHECK(item.name.find("param_shapes") == item.name.npos);
  if (name == "universal") return;
  CHECK(catalog->FindTensor("optimizer.state.l1.bias.step")->shape.empty());
  CHECK(catalog->FindByteItem(name.starts_with("zero3")
                                  ? "optimizer_state_dict.optimizer_state_dict.param_groups.0.lr"
                                  : "optimizer_state_dict.base_optimizer_state.param_groups.0.lr") != nullptr);
}

TEST_CASE("a checkpoint of DeepSpeed becomes one of another kind") {
  const TempDirectory directory;
  for (const std::string name : {"zero2", "zero3_tied"}) {
    ConvertOptions options;
    options.verify = true;
    REQUIRE(SetTarget("hf", &options));
    const std::string out = directory.path() + "/" + name;
    const absl::StatusOr<ConvertSummary> made = Convert(kSaved + name, out, std::nullopt, options);
    INFO(made.status());
    REQUIRE(made.ok());
    const absl::StatusOr<Catalog> catalog = ReadCatalog(out);
    REQUIRE(catalog.ok());
    CHECK(catalog->FindTensor("l1.weight") != nullptr);
    CHECK(catalog->tensors().size() == 9);  // parameters and buffers alone
  }
}

TEST_CASE("without ZeRO the model's file is the checkpoint, named by `latest` or itself") {
  for (const char* const path : {"zero0", "zero0/global_step3", "zero0/global_step3/mp_rank_00_model_states.pt"}) {
    INFO(path);
    const absl::StatusOr<Catalog> catalog = ReadCatalog(kSaved + path);
    REQUIRE(catalog.ok());
    CHECK(catalog->FindTensor("module.l1.weight")->shape.size() == 2);
    CHECK(catalog->FindTensor("optimizer.state.1.exp_avg") != nullptr);
  }
  CHECK(DifferenceOf(kSaved + "zero3/global_step3", kSaved + "zero3.safetensors") == "");
}

TEST_CASE("what is missing of a checkpoint of DeepSpeed, or does not fit, is said") {
  const std::string optimizer_1 = "bf16_zero_pp_rank_1_mp_rank_00_optim_states.pt";
  const auto says = [](const std::string& path, absl::StatusCode code, const std::string& what) {
    const absl::Status status = ReadCatalog(path).status();
    INFO(status);
    CHECK(status.code() == code);
    CHECK(std::string(status.message()).find(what) != std::string::npos);
    CHECK(std::string(status.message()).find(path) != std::string::npos);
  };
  const auto kLoss = absl::StatusCode::kDataLoss;
  {
    const TempDirectory directory;
    const std::string copy = CopyOf(directory, "zero2");
    std::filesystem::remove(FileOf(copy, optimizer_1));
    says(copy, kLoss, "the file of rank 1 is missing");
    std::filesystem::copy(FileOf(kSaved + "zero1", optimizer_1), FileOf(copy, optimizer_1));
    says(copy, kLoss, "elements where the parameters need");  // of another number of ranks
    std::filesystem::remove(FileOf(copy, "mp_rank_00_model_states.pt"));
    says(copy, kLoss, "the file *_model_states.pt is missing");
  }
  {
    const TempDirectory directory;
    const std::string copy = CopyOf(directory, "zero3");
    std::filesystem::remove(FileOf(copy, "bf16_zero_pp_rank_2_mp_rank_00_optim_states.pt"));
    says(copy, kLoss, "3 files of models and 2 of optimizers");
    std::filesystem::remove(FileOf(copy, "zero_pp_rank_2_mp_rank_00_model_states.pt"));
    says(copy, kLoss, "elements where the parameters need");
  }
  {
    const TempDirectory directory;
    const std::string copy = CopyOf(directory, "universal");
    std::filesystem::remove(copy + "/global_step3_universal/zero/l1.bias/fp32.pt");
    says(copy, kLoss, "l1.bias has no fp32.pt");
    std::filesystem::remove_all(copy + "/global_step3_universal/zero/l1.bias");
    says(copy, absl::StatusCode::kNotFound, "l1.bias");
  }
  for (const char* const name :
       {"mp_rank_01_model_states.pt", "layer_00-model_00-model_states.pt", "expp_rank_0_mp_rank_00_optim_states.pt"}) {
    INFO(name);
    const TempDirectory directory;
    const std::string copy = CopyOf(directory, "zero2");
    std::filesystem::copy(FileOf(copy, "mp_rank_00_model_states.pt"), FileOf(copy, name));
    says(copy, absl::StatusCode::kUnimplemented, "not joined");
  }
}

}  // namespace reshard
