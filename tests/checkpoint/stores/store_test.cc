// Conversions into and out of a store that fails at every call that they make.
#include "reshard/checkpoint/store.h"

#include <algorithm>
#include <atomic>
#include <chrono>
#include <map>
#include <mutex>
#include <optional>
#include <thread>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "checkpoint/io/files.h"
#include "reshard/checkpoint/convert.h"
#include "reshard/checkpoint/leavings.h"
#include "reshard/checkpoint/verify.h"
#include "tests/catch.h"
#include "tests/checkpoint/convert/convert_place.h"
#include "tests/checkpoint/io/temp_directory.h"
#include "tests/checkpoint/stores/failing_shelf.h"

namespace reshard {
namespace {

using testing::ConvertSource;
using testing::FailingShelf;
using testing::kNever;
using testing::RulesInStore;
using testing::Shelf;
using testing::TempDirectory;

struct Case {
  CheckpointFormat format;
  bool replaces;
};

TEST_CASE("convert to a store: whichever call fails, there is the old checkpoint, the new one, or none") {
  const ConvertSource source;
  const auto shelf = std::make_shared<FailingShelf>();
  RegisterStore("shelf", shelf);
  // What is replaced: the same names, other values.
  const TempDirectory scratch;
  ConvertOptions local;
  local.format = CheckpointFormat::kSafetensors;
  local.recipe.selection.byte_items = false;
  const std::string old = scratch / "old";
  REQUIRE(Convert(source.path(), old, std::nullopt, local).ok());
  int64_t failed = 0;
  for (const Case& what : {Case{CheckpointFormat::kSafetensors, false}, Case{CheckpointFormat::kDcp, false},
                           Case{CheckpointFormat::kSafetensors, true}, Case{CheckpointFormat::kDcp, true},
                           Case{CheckpointFormat::kOrbax, false}}) {
    const std::optional<LayoutRules> rules = RulesInStore(what.format);
    ConvertOptions options;
    options.format = what.format;
    options.file_bytes = 200;
    options.threads = 2;
    options.overwrite = what.replaces;
    options.recipe.selection.byte_items = false;
    ConvertOptions of_old = options;
    of_old.recipe.selection.exclude = {"*2*"};  // that there is less of it tells it from the new one
    of_old.overwrite = false;
    of_old.recipe.asked = {};
    for (int64_t at = 0, tried = 0;; ++at, ++tried) {
      const std::string url =
          absl::StrCat("shelf://", std::string(Name(what.format)), what.replaces ? "-replaced-" : "-", at, "/dst");
      shelf->FailAt(kNever, false);
      if (what.replaces) REQUIRE(Convert(old, url, rules, of_old).ok());
      const std::vector<std::string> before = shelf->Names();
      shelf->FailAt(at, at % 2 == 0);
      const absl::Status ran = Convert(source.path(), url, rules, options).status();
      const bool all = !shelf->failed();
      shelf->FailAt(kNever, false);
      INFO(url << " " << at << ": " << ran);
      CHECK((ran.ok() || KindOf(ran) == CheckpointError::kSystem));
      VerifyOptions compare;
      compare.recipe.selection.byte_items = false;
      const absl::StatusOr<VerifyReport> report = VerifyCheckpoints(source.path(), url, compare);
      const bool is_new = report.ok() && report->differences.empty();
      const bool is_old = report.ok() && !is_new && [&] {
        compare.recipe.selection.exclude = {"*2*"};
        const absl::StatusOr<VerifyReport> as_old = VerifyCheckpoints(source.path(), url, compare);
        return as_old.ok() && as_old->differences.empty();
      }();
      if (what.replaces) {
        CHECK((is_new || is_old));
      } else {
        CHECK((is_new || !report.ok()));
      }
      CHECK((!ran.ok() || is_new));
      // The same call goes on to the end, and nothing is left of the job.
      ConvertOptions again = options;
      again.resume = true;
      const absl::Status resumed = Convert(source.path(), url, rules, again).status();
      INFO(resumed);
      CHECK(resumed.ok());
      VerifyOptions last;
      last.recipe.selection.byte_items = false;
      const absl::StatusOr<VerifyReport> result = VerifyCheckpoints(source.path(), url, last);
      REQUIRE(result.ok());
      CHECK(result->differences.empty());
      for (const std::string& name : shelf->Names()) {
        if (absl::StartsWith(name, url)) CHECK_FALSE(absl::StrContains(name, ".reshard-"));
      }
      if (all) break;
      ++failed;
    }
  }
  CHECK(failed > 100);
  RegisterStore("shelf", nullptr);
}

// Counts uploads by URL; the first one takes a while, in which the other workers have nothing left to do.
class SlowShelf final : public Shelf {
 public:
  absl::StatusOr<std::unique_ptr<ObjectUpload>> Begin(const std::string& url, int64_t bytes, int64_t memory) override {
    {
      const std::lock_guard lock(counting_);
      ++uploads_[url];
    }
    if (!is_slow_.exchange(true)) std::this_thread::sleep_for(std::chrono::milliseconds(2500));
    return Shelf::Begin(url, bytes, memory);
  }
  std::map<std::string, int> uploads() {
    const std::lock_guard lock(counting_);
    return uploads_;
  }

 private:
  std::atomic<bool> is_slow_{false};
  std::mutex counting_;
  std::map<std::string, int> uploads_;
};

TEST_CASE("convert to a store: workers that wait for others write nothing again") {
  const ConvertSource source;
  const auto shelf = std::make_shared<SlowShelf>();
  RegisterStore("shelf", shelf);
  ConvertOptions options;
  options.format = CheckpointFormat::kSafetensors;
  options.file_bytes = 200;
  options.workers = 3;
  options.recipe.selection.byte_items = false;
  std::vector<absl::Status> ended(3);
  std::vector<std::thread> workers;
  for (int64_t worker = 0; worker < 3; ++worker) {
    workers.emplace_back([&, worker] {
      ConvertOptions own = options;
      own.worker = worker;
      ended[static_cast<size_t>(worker)] = Convert(source.path(), "shelf://a/dst", std::nullopt, own).status();
    });
  }
  for (std::thread& worker : workers) worker.join();
  for (const absl::Status& status : ended) CHECK(status.ToString() == "OK");
  VerifyOptions compare;
  compare.recipe.selection.byte_items = false;
  CHECK(VerifyCheckpoints(source.path(), "shelf://a/dst", compare)->differences.empty());
  const std::map<std::string, int> uploads = shelf->uploads();
  CHECK(uploads.size() > 3);
  for (const auto& [url, count] : uploads) {
    INFO(url);
    // Files beside the contents are small, and whoever ends the job makes sure that they are there.
    if (absl::EndsWith(url, ".safetensors")) CHECK(count == 1);
  }
  for (const std::string& name : shelf->Names()) CHECK_FALSE(absl::StrContains(name, ".reshard-"));
  RegisterStore("shelf", nullptr);
}

TEST_CASE("convert to a store: what a killed run has left is found and removed") {
  const ConvertSource source;
  const auto shelf = std::make_shared<FailingShelf>();
  RegisterStore("shelf", shelf);
  ConvertOptions options;
  options.format = CheckpointFormat::kSafetensors;
  options.file_bytes = 200;
  options.recipe.selection.byte_items = false;
  shelf->FailAt(11, true);
  CHECK_FALSE(Convert(source.path(), "shelf://a/dst", std::nullopt, options).ok());
  shelf->FailAt(kNever, false);
  // Its heartbeat has stopped; with it, looking takes some seconds.
  for (const std::string& name : shelf->Names()) {
    if (absl::StrContains(name, "/beat-")) CHECK(shelf->Delete(name).ok());
  }
  const absl::StatusOr<std::vector<StaleStaging>> found = FindStaleStaging("shelf://a/dst");
  REQUIRE(found.ok());
  REQUIRE(found->size() == 1);
  CHECK_FALSE((*found)[0].alive);
  CHECK(*RemoveStaleStaging("shelf://a/dst") == 1);
  CHECK(shelf->Names().empty());
  RegisterStore("shelf", nullptr);
}

// Whatever is in its objects, they have one version: as where times are told in whole seconds.
class CoarseShelf : public Shelf {
 public:
  absl::StatusOr<StoredObject> Find(const std::string& url) override {
    absl::StatusOr<StoredObject> object = Shelf::Find(url);
    if (object.ok()) object->version = "today";
    return object;
  }
  absl::Status Read(const std::string& url, const StoredObject&, int64_t at, absl::Span<char> out) override {
    const std::string contents = Contents(url);
    contents.copy(out.data(), out.size(), static_cast<size_t>(at));
    return absl::OkStatus();
  }
};

TEST_CASE("store: an object that was replaced without another version is read as it is now") {
  const auto shelf = std::make_shared<CoarseShelf>();
  RegisterStore("coarse", shelf);
  for (const char letter : {'a', 'b'}) {
    REQUIRE(shelf->Put("coarse://x/file", std::string(300'000, letter), false).ok());
    const auto file = io::ReadFile::Open("coarse://x/file", /*follow_links=*/true);
    REQUIRE(file.ok());
    for (const int64_t at : {0, 200'000}) {
      std::string read(100, ' ');
      REQUIRE((*file)->ReadAt(at, absl::MakeSpan(read)).ok());
      CHECK(read == std::string(100, letter));
    }
    if (letter == 'a') REQUIRE((*file)->ReadAhead(210'000, 80'000).ok());
    std::string read(80'000, ' ');
    REQUIRE((*file)->ReadAt(210'000, absl::MakeSpan(read)).ok());
    CHECK(read == std::string(80'000, letter));
  }
  RegisterStore("coarse", nullptr);
}

TEST_CASE("store: a URL without one says what to do") {
  const absl::Status status = ReadCatalog("nowhere://a/b").status();
  CHECK(absl::IsUnimplemented(status));
  CHECK(absl::StrContains(status.message(), "pip install 'reshard[stores]'"));
  CHECK(absl::IsInvalidArgument(Convert("a", "https://host/b", std::nullopt, {}).status()));
}

}  // namespace
}  // namespace reshard
