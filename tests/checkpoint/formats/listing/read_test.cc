// Files that a listing describes, and listings that are wrong.
#include "checkpoint/formats/listing/read.h"

#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_replace.h"
#include "reshard/checkpoint/catalog.h"
#include "reshard/checkpoint/convert.h"
#include "tests/catch.h"
#include "tests/checkpoint/io/staged_job.h"
#include "tests/checkpoint/io/temp_directory.h"

namespace reshard {
namespace {

using testing::PutContent;
using testing::TempDirectory;

// w is [2, 3] of u8, a column in one file and the others in another; s is a scalar.
constexpr const char* kGood = R"({"reshard_listing": 1, "more": [{}], "tensors": [
  {"name": "w", "dtype": "u8", "shape": [2, 3], "chunks": [
    {"offset": [0, 0], "shape": [2, 1], "file": "left.bin", "at": 1},
    {"shape": [2, 2], "at": 0, "file": "below/right.bin", "offset": [0, 1]}]},
  {"dtype": "uint8", "shape": [], "name": "s", "extra": {"a": [1]}, "chunks": [
    {"offset": [], "shape": [], "file": "left.bin", "at": 3}]},
  {"name": "none", "dtype": "f32", "shape": [0, 4], "chunks": []},
  {"name": "packed", "dtype": "q4_0", "shape": [32], "chunks": [
    {"offset": [0], "shape": [32], "file": "left.bin", "at": 0, "bytes": 2}]}], "notes": {"made_by": "hand"}})";

absl::StatusOr<Catalog> Listed(const TempDirectory& directory, const std::string& listing) {
  PutContent(directory.path(), {{"left.bin", "xadS"}, {"below/right.bin", "bcef"}, {"reshard.listing.json", listing}});
  return ReadCatalog(directory.path());
}

}  // namespace

TEST_CASE("a listing says which bytes are which part of which tensor") {
  const TempDirectory directory;
  const absl::StatusOr<Catalog> catalog = Listed(directory, kGood);
  REQUIRE(catalog.ok());
  CHECK(catalog->format() == CheckpointFormat::kListing);
  REQUIRE(catalog->tensors().size() == 4);
  CHECK_FALSE(catalog->FindTensor("packed")->dtype.has_value());
  CHECK(catalog->notes() == std::vector<std::pair<std::string, std::string>>{{"made_by", "hand"}});
  for (const Catalog::Tensor& tensor : catalog->tensors()) CHECK(catalog->CheckCover(tensor).ok());

  // Its own path means the same, and it is a source as any other.
  CHECK(DirectoryMeantBy(directory.path() + "/reshard.listing.json") == directory.path());
  const TempDirectory other;
  ConvertOptions options;
  options.format = CheckpointFormat::kSafetensors;
  const std::string listing = directory.path() + "/reshard.listing.json";
  const std::string out = other.path() + "/out";
  const absl::Status packed = Convert(listing, out, std::nullopt, options).status();
  CHECK(packed.message().find("packed") != std::string::npos);
  options.recipe.selection.exclude = {"packed"};
  REQUIRE(Convert(listing, out, std::nullopt, options).ok());
  const std::string file = testing::ContentAt(out).at("model.safetensors");
  CHECK(file.find("abcdef") != std::string::npos);
  CHECK(file.find('S') != std::string::npos);
}

TEST_CASE("a listing is not a format of results") {
  const TempDirectory directory;
  REQUIRE(Listed(directory, kGood).ok());
  ConvertOptions options;
  options.format = CheckpointFormat::kListing;
  const absl::Status status = Convert(directory.path(), directory.path() + "/out", std::nullopt, options).status();
  INFO(status);
  CHECK(absl::IsInvalidArgument(status));
}

TEST_CASE("what is wrong with a listing is said") {
  struct Wrong {
    const char* text;
    const char* instead;
    absl::StatusCode code;
    const char* says;
  };
  const auto kLoss = absl::StatusCode::kDataLoss;
  const Wrong wrongs[] = {
      {"\"reshard_listing\": 1,", "", kLoss, "there is no reshard_listing"},
      {"\"reshard_listing\": 1", "\"reshard_listing\": 2", absl::StatusCode::kUnimplemented, "version 2"},
      {"\"reshard_listing\": 1", "\"reshard_listing\": \"1\"", kLoss, "not a whole number"},
      {"\"name\": \"s\"", "\"name\": \"w\"", kLoss, "tensor \"w\": the name appears twice"},
      {"\"name\": \"s\",", "", kLoss, "tensor number 1: there is no name"},
      {"\"name\": \"s\"", "\"name\": 3", kLoss, "tensor number 1: name is not text"},
      {"\"dtype\": \"u8\"", "\"dtype\": \"u9\"", kLoss, "tensor \"w\": its dtype \"u9\""},
      {"\"bytes\": 2", "\"bytes\": 20", kLoss, "left.bin"},
      {"\"at\": 3", "\"at\": 3, \"bytes\": 2", kLoss, "tensor \"s\": a chunk of 1 bytes says that it has 2"},
      {"\"dtype\": \"u8\"", "\"dtype\": \"f32\"", kLoss, "left.bin"},
      {"\"shape\": [2, 3]", "\"shape\": 6", kLoss, "shape is not a list"},
      {"\"shape\": [2, 3], ", "", kLoss, "tensor \"w\": there is no shape"},
      {"\"shape\": [2, 3]", "\"shape\": [2, -3]", kLoss, "not a whole one"},
      {"\"shape\": [2, 3]", "\"shape\": [2, 2]", kLoss, "\"w\""},
      {"\"shape\": [2, 1]", "\"shape\": [2]", kLoss, "\"w\""},
      {"\"shape\": [2, 1]", "\"shape\": [4611686018427387904, 4]", kLoss, "too large to count"},
      {"\"at\": 1", "\"at\": 3", kLoss, "left.bin"},
      {"\"at\": 1", "\"at\": 9223372036854775807", kLoss, "too large to count"},
      {", \"at\": 1", "", kLoss, "where it begins"},
      {"\"left.bin\", \"at\": 1", "\"../left.bin\", \"at\": 1", absl::StatusCode::kInvalidArgument, "../left.bin"},
      {"\"left.bin\", \"at\": 1", "\"gone.bin\", \"at\": 1", kLoss, "gone.bin"},
      {"{\"made_by\": \"hand\"}", "{\"made_by\": 1}", kLoss, "a note is not text"},
      {"{\"made_by\": \"hand\"}}", "{\"made_by\": \"hand\"}", kLoss, "not JSON"},
  };
  for (const Wrong& wrong : wrongs) {
    INFO(wrong.text << " -> " << wrong.instead);
    const std::string listing = absl::StrReplaceAll(kGood, {{wrong.text, wrong.instead}});
    REQUIRE(listing != kGood);
    const TempDirectory directory;
    const absl::Status status = Listed(directory, listing).status();
    INFO(status);
    CHECK(status.code() == wrong.code);
    CHECK(std::string(status.message()).find(wrong.says) != std::string::npos);
    CHECK(std::string(status.message()).find("reshard.listing.json") != std::string::npos);
  }
}

}  // namespace reshard
