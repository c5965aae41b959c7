// What is decided before a conversion writes: who writes what, and what it is called.
#include "checkpoint/convert/conversion.h"

#include <fcntl.h>
#include <sys/stat.h>

#include <algorithm>
#include <filesystem>
#include <memory>
#include <string>

#include "tests/catch.h"
#include "tests/checkpoint/convert/convert_place.h"
#include "tests/checkpoint/formats/dcp_bytes.h"
#include "tests/checkpoint/formats/safetensors_file.h"
#include "tests/checkpoint/io/faults.h"
#include "tests/checkpoint/io/temp_directory.h"

namespace reshard {
namespace {

using testing::Call;
using testing::FaultySystem;
using testing::TempDirectory;

const std::string kFixtures = RESHARD_SOURCE_DIR "/tests/checkpoint/fixtures";

std::unique_ptr<convert::Conversion> Planned(const std::string& source, const std::optional<LayoutRules>& rules,
                                             const ConvertOptions& options) {
  auto made = convert::Conversion::Make(source, "nowhere", rules, options);
  INFO(made.status());
  REQUIRE(made.ok());
  return *std::move(made);
}

std::optional<LayoutRules> RulesOf(const std::string& mesh, const std::string& layout) {
  return *LayoutRules::ForAll(mesh, layout);
}

void Touch(const std::string& path, int64_t nanoseconds) {
  struct stat facts;
  REQUIRE(stat(path.c_str(), &facts) == 0);
  const struct timespec times[2] = {facts.st_atim, {facts.st_mtim.tv_sec, facts.st_mtim.tv_nsec ^ nanoseconds}};
  REQUIRE(utimensat(AT_FDCWD, path.c_str(), times, 0) == 0);
}

TEST_CASE("workers share all pieces, about evenly") {
  const auto rules = RulesOf("{a:3}", "[...]");
  for (const CheckpointFormat format :
       {CheckpointFormat::kDcp, CheckpointFormat::kSafetensors, CheckpointFormat::kOrbax}) {
    for (int64_t workers = 1; workers < 60; ++workers) {
      INFO("workers " << workers);
      ConvertOptions options;
      options.format = format;
      options.workers = workers;
      const auto conversion = Planned(kFixtures + "/line4", rules, options);
      int64_t end = 0, bytes = 0, most = 0, largest = 0;
      for (int64_t worker = 0; worker < workers; ++worker) {
        const convert::Share share = convert::ShareOf(*conversion->plan, worker, workers);
        CHECK(share.first == end);
        CHECK(share.end >= share.first);
        end = share.end;
        bytes += share.bytes;
        most = std::max(most, share.bytes);
      }
      const auto& pieces = conversion->plan->pieces();
      for (const output::OutputPlan::OutputPiece& piece : pieces) largest = std::max(largest, piece.payload_bytes);
      CHECK(end == static_cast<int64_t>(pieces.size()));
      CHECK(bytes == conversion->plan->bytes());
      CHECK(most <= bytes / workers + largest + 1024 * static_cast<int64_t>(pieces.size()) / workers + 1024);
    }
  }
}

TEST_CASE("a job has a name by what it writes, and an id by what it reads") {
  TempDirectory directory;
  const std::string source = directory / "source";
  std::filesystem::copy(kFixtures + "/single", source);
  const auto rules = RulesOf("{a:2}", "[...]"), others = RulesOf("{a:3}", "[...]");
  const ConvertOptions plain;
  const auto before = Planned(source, rules, plain);
  CHECK(Planned(source, rules, plain)->id == before->id);
  CHECK(Planned(source, rules, plain)->terms == before->terms);
  ConvertOptions several = plain;
  several.workers = 2;
  CHECK(Planned(source, rules, several)->name == before->name);
  CHECK(Planned(source, rules, several)->id == before->id);
  CHECK(Planned(source, rules, several)->terms != before->terms);
  ConvertOptions safetensors = plain;
  safetensors.format = CheckpointFormat::kSafetensors;
  CHECK(Planned(source, rules, safetensors)->name != before->name);
  CHECK(Planned(kFixtures + "/single", rules, plain)->name != before->name);

  CHECK(Planned(source, others, plain)->name != before->name);

  // Another nanosecond, and the same again.
  Touch(source + "/__0_0.distcp", 1);
  const auto touched = Planned(source, rules, plain);
  CHECK(touched->name == before->name);
  CHECK(touched->id != before->id);
  CHECK(touched->terms != before->terms);
  Touch(source + "/__0_0.distcp", 1);
  CHECK(Planned(source, rules, plain)->id == before->id);
}

TEST_CASE("petabytes that the stream of a few bytes does not have are refused before they are planned") {
  using namespace testing::dcp;
  const testing::TemporaryDirectory dir;
  const std::string bytes = testing::StreamText().Bytes();
  dir.Write("a.distcp", bytes);
  const int64_t size = int64_t{1} << 48;
  dir.Write(".metadata",
            Pickled(Metadata({{Str("w"), Whole({size})}},
                             {{Index("w", {0}), Place("a.distcp", 0, static_cast<int64_t>(bytes.size()))}})));
  for (const CheckpointFormat format :
       {CheckpointFormat::kDcp, CheckpointFormat::kSafetensors, CheckpointFormat::kOrbax}) {
    ConvertOptions options;
    options.format = format;
    const absl::Status status =
        convert::Conversion::Make(dir.path(), "nowhere", RulesOf("{x:2}", "[<x>]"), options).status();
    CHECK(status.code() == absl::StatusCode::kDataLoss);
    CHECK(KindOf(status) == CheckpointError::kInput);
    CHECK(std::string(status.message()).find("a tensor of shape [2, 3], not [281474976710656]") != std::string::npos);
  }
}

TEST_CASE("a source that is written to meanwhile is refused") {
  for (const bool removed : {false, true}) {
    TempDirectory directory;
    const std::string source = directory / "source", destination = directory / "dst";
    std::filesystem::copy(kFixtures + "/single", source);
    const std::string file = source + "/__0_0.distcp";
    FaultySystem system;
    bool touched = false;
    system.AfterEachCall([&](Call call) {
      if (call != Call::kPWrite || touched) return;
      touched = true;
      if (removed) {
        std::filesystem::rename(file, file + ".old");
      } else {
        Touch(file, 1);
      }
    });
    absl::Status status;
    {
      const io::ScopedSystem scoped(&system);
      ConvertOptions options;
      options.threads = 1;
      status = Convert(source, destination, RulesOf("{a:2}", "[...]"), options).status();
    }
    INFO(status);
    CHECK(touched);
    CHECK_FALSE(status.ok());
    if (!removed) {
      CHECK(status.code() == absl::StatusCode::kFailedPrecondition);
      CHECK(KindOf(status) == CheckpointError::kInput);
      CHECK(std::string(status.message()).find("__0_0.distcp") != std::string::npos);
      CHECK(testing::NamesIn(directory.path()) == std::vector<std::string>{"source"});
    }
    CHECK_FALSE(std::filesystem::exists(destination));
  }
}

}  // namespace
}  // namespace reshard
