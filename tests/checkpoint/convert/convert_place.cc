#include "tests/checkpoint/convert/convert_place.h"

#include <filesystem>
#include <utility>

#include "reshard/checkpoint/catalog.h"
#include "reshard/checkpoint/rules.h"
#include "reshard/checkpoint/verify.h"
#include "tests/catch.h"
#include "tests/checkpoint/convert/assemble.h"

namespace reshard::testing {
namespace {

const std::optional<LayoutRules>& Rules() {
  static const std::optional<LayoutRules> rules =
      *LayoutRules::Parse(R"({"mesh":"{a:2}","layouts":[["*weight","[..., <a>]"],["*","[...]"]]})");
  return rules;
}

Recipe RecipeOf(const ConvertCase& what) {
  if (!what.has_recipe) return {};
  return *Recipe::Parse(R"({"schema": "reshard.recipe/1", "keep": ["*"], "tensors": [
      {"to": "embed", "from": {"transpose": {"concatenate": ["embed.weight",
          {"cast": {"unflatten": "embed.bias", "sizes": [1, -1]}, "dtype": "f32"}]}, "dims": [0, 1]}}]})");
}

ConvertOptions OptionsOf(const ConvertCase& what) {
  ConvertOptions options;
  options.recipe = RecipeOf(what);
  options.format = what.format;
  options.overwrite = what.has_old;
  options.threads = what.threads;
  options.file_bytes = 2000;
  return options;
}

}  // namespace

ConvertSource::ConvertSource() {
  std::filesystem::copy(RESHARD_SOURCE_DIR "/tests/checkpoint/fixtures/single", path());
  PutContent(path(), {{"config.json", "{}"}, {"huggingface/tokenizer.json", "[1, 2]"}, {"README.md", "stays here"}});
  content_ = ContentAt(path());
}

Content ConvertSource::Expected(const ConvertCase& what) const {
  const CheckpointFormat format = what.format;
  const std::string result = directory_ / std::string(Name(format));
  const ConvertCase anew{.format = format, .has_old = true, .has_recipe = what.has_recipe};
  const absl::StatusOr<ConvertSummary> summary = Convert(path(), result, Rules(), OptionsOf(anew));
  INFO(summary.status());
  REQUIRE(summary.ok());
  VerifyOptions compare;
  compare.recipe = RecipeOf(what);
  const absl::StatusOr<VerifyReport> report = VerifyCheckpoints(path(), result, compare);
  REQUIRE(report.ok());
  CHECK(report->differences.size() == summary->left_out.size() + summary->left_out_items.size());
  CHECK(report->tensors == (what.has_recipe ? 5 : 6));
  if (format == CheckpointFormat::kDcp && !what.has_recipe) {
    const absl::StatusOr<Catalog> before = ReadCatalog(path()), after = ReadCatalog(result);
    REQUIRE(before.ok());
    REQUIRE(after.ok());
    for (const Catalog::Tensor& tensor : before->tensors()) {
      const Catalog::Tensor* const there = after->FindTensor(tensor.name);
      REQUIRE(there != nullptr);
      CHECK(*ReadTensor(*before, tensor) == *ReadTensor(*after, *there));
    }
  }
  return ContentAt(result);
}

ConvertPlace::ConvertPlace(const ConvertSource& source, Content expected, const ConvertCase& what)
    : source_(source), expected_(std::move(expected)), what_(what) {
  if (what.has_old) PutContent(destination(), ContentOf("old"));
}

absl::StatusOr<ConvertSummary> ConvertPlace::Run(bool resume, int64_t workers, int64_t worker,
                                                 absl::Duration stall_timeout) const {
  ConvertOptions options = OptionsOf(what_);
  options.resume = resume;
  options.workers = workers;
  options.worker = worker;
  options.stall_timeout = stall_timeout;
  options.stop = stop_;
  return Convert(source_.path(), destination(), Rules(), options);
}

std::map<std::string, std::string> ConvertPlace::Staged() const {
  namespace fs = std::filesystem;
  std::map<std::string, std::string> files;
  for (const fs::directory_entry& beside : fs::directory_iterator(directory_.path())) {
    if (beside.path() == destination()) continue;
    for (const fs::directory_entry& entry : fs::recursive_directory_iterator(beside)) {
      if (entry.is_regular_file()) files[entry.path().lexically_relative(beside.path() / "data")] = entry.path();
    }
  }
  return files;
}

bool ConvertPlace::IsAsBefore() const {
  return ContentAt(destination()) == (what_.has_old ? ContentOf("old") : Content{{"", "nothing"}});
}

}  // namespace reshard::testing
