// Sidecars that are wrong on purpose, with the hash that is right: whoever wrote them meant it.
#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_replace.h"
#include "checkpoint/hash/hash.h"
#include "tests/attacks/dcp_checkpoint.h"
#include "tests/catch.h"
#include "tests/file_bytes.h"

namespace reshard::testing {
namespace {

// A checkpoint that the command wrote, and its sidecar.
class Written {
 public:
  explicit Written(const std::string& format = "dcp") : c_(checkpoint_.dir().path("written")) {
    std::vector<std::string> words = {"checkpoint", checkpoint_.good(), c_, "--format", format};
    if (format == "dcp") words.insert(words.end(), {"--mesh", "{x:2}", "--layout", "[<x>, *]"});
    const Outcome written = RunReshard(words);
    INFO(written.err);
    REQUIRE(written.code == 0);
    const std::string text = FileBytes(c_ + "/reshard.json");
    content_ = text.substr(11, text.size() - 11 - 44);
    WriteContent(content_);
    REQUIRE(RunReshard({"verify", c_, checkpoint_.good()}).code == 0);
  }

  const std::string& path() const { return c_; }
  const std::string& content() const { return content_; }
  nlohmann::ordered_json Json() const { return nlohmann::ordered_json::parse(content_); }

  void WriteText(const std::string& text) const { std::ofstream(c_ + "/reshard.json", std::ios::binary) << text; }
  void WriteContent(const std::string& content) const {
    WriteText(absl::StrCat("{\"content\":", content, ",\"hash\":\"", hash::ContentHash::Of(content).ToText(), "\"}\n"));
  }

  void RefusesText(const std::string& text, const std::string& part) const {
    WriteText(text);
    Refuses(part);
  }
  void RefusesContent(const std::string& content, const std::string& part) const {
    WriteContent(content);
    Refuses(part);
  }
  void Refuses(const std::string& part) const {
    CommandRefuses({"verify", c_, checkpoint_.good()}, part);
    CommandRefuses({"checkpoint", c_, c_ + "/../out", "--mesh", "{x:1}", "--layout", "[...]"}, part);
    CHECK(RunReshard({"verify", c_, checkpoint_.good(), "--ignore-sidecar"}).code == 0);
  }
  // With this entry of the content changed.
  template <typename F>
  void RefusesWith(const F& change, const std::string& part) const {
    nlohmann::ordered_json json = Json();
    change(&json);
    RefusesContent(json.dump(), part);
  }

 private:
  DcpCheckpoint checkpoint_;
  std::string c_;
  std::string content_;
};

using Json = nlohmann::ordered_json;

TEST_CASE("sidecar: texts that are none") {
  const Written written;
  const std::string damaged = "reshard.json is damaged";
  written.RefusesText("", damaged);
  written.RefusesText("{}", damaged);
  written.RefusesText(std::string(1'000'000, '['), damaged);
  written.RefusesText("{\"content\":{},\"hash\":\"00000000000000000000000000000000\"}\n", "does not have the hash");
  written.RefusesContent("", damaged);
  written.RefusesContent("[", damaged);
  written.RefusesContent("7", damaged);
  written.RefusesContent("{}", damaged);
  written.RefusesContent(pickled::Repeat("[", 1'000'000) + pickled::Repeat("]", 1'000'000), damaged);
  written.RefusesContent(pickled::Repeat("{\"a\":", 1'000'000), damaged);
  written.RefusesContent(pickled::Repeat("{\"a\":", 300'000) + "1" + pickled::Repeat("}", 300'000), damaged);
  written.RefusesContent("{\"schema\":\"\xff\"}", damaged);
  written.RefusesContent(absl::StrCat("{\"a\":", std::string(1'000'000, '9'), "}"), damaged);
  written.RefusesContent(written.content() + written.content(), damaged);
}

TEST_CASE("sidecar: members") {
  const Written written;
  const std::string damaged = "reshard.json is damaged";
  for (const char* member : {"schema", "job", "mesh", "headers", "tensors", "chunks"}) {
    written.RefusesWith([&](Json* json) { json->erase(member); }, damaged);
    written.RefusesWith([&](Json* json) { (*json)[member] = 7; }, "");
    written.RefusesWith([&](Json* json) { (*json)[member] = Json::array({7}); }, damaged);
  }
  written.RefusesWith([](Json* json) { (*json)["schema"] = "reshard.sidecar/2"; }, "another schema");
  for (const char* list : {"headers", "tensors", "chunks"}) {
    written.RefusesWith([&](Json* json) { (*json)[list][0].erase(1); }, damaged);
    written.RefusesWith([&](Json* json) { (*json)[list][0][0] = 7; }, damaged);
    written.RefusesWith([&](Json* json) { (*json)[list][0][1] = nullptr; }, damaged);
  }
  written.RefusesWith([](Json* json) { (*json)["headers"] = Json::array(); }, "has no hash of a file with metadata");
  written.RefusesWith([](Json* json) { (*json)["headers"].push_back((*json)["headers"][0]); }, "two hashes of \".meta");
}

TEST_CASE("sidecar: numbers") {
  const Written written;
  for (const int place : {1, 2}) {
    const auto refuses = [&](const std::string& number, const std::string& part) {
      Json json = written.Json();
      json["chunks"][0][place] = "NUMBER";
      INFO(number);
      written.RefusesContent(absl::StrReplaceAll(json.dump(), {{"\"NUMBER\"", number}}), part);
    };
    for (const char* number : {"1e300", "-1", "0.5", "1.0", "9223372036854775808", "18446744073709551615",
                               "99999999999999999999999", "true", "null", "[]", "-9223372036854775808"}) {
      refuses(number, "not a whole number");
    }
    refuses("9223372036854775807", "names bytes");
    refuses("100000000", "names bytes");
  }
}

TEST_CASE("sidecar: chunks that are elsewhere, missing or there twice") {
  const Written written;
  const auto refuses = [&](const auto& change, const std::string& part) {
    written.RefusesWith([&](Json* json) { change((*json)["chunks"]); }, part);
  };
  refuses([](Json& chunks) { chunks.clear(); }, "has no hash of \"w\"");
  refuses([](Json& chunks) { chunks.erase(1); }, "has no hash of \"w\"");
  refuses([](Json& chunks) { chunks.push_back(chunks[0]); }, "two hashes of the bytes at");
  refuses([](Json& chunks) { chunks[1][1] = chunks[1][1].get<int64_t>() + 1; }, "");
  refuses([](Json& chunks) { chunks[1][2] = 1; }, "has no hash of \"w\"");
  refuses([](Json& chunks) { chunks[1][3] = std::string(32, '0'); }, "do not have the hash of the sidecar");
  refuses([](Json& chunks) { chunks[1][3] = std::string(32, 'x'); }, "a bad hash");
  refuses([](Json& chunks) { chunks[1][3] = "0"; }, "a bad hash");
  for (const char* file : {"../good/a.distcp", "/dev/zero", "gone", "", ".metadata", "reshard.json"}) {
    refuses([&](Json& chunks) { chunks[1][0] = file; }, "which is not a file of the checkpoint");
  }
}

TEST_CASE("sidecar: headers that are elsewhere") {
  for (const char* format : {"dcp", "safetensors"}) {
    const Written written(format);
    const std::string hash = std::string(32, '0');
    namespace fs = std::filesystem;
    fs::create_symlink("/dev/zero", written.path() + "/zero.index.json");
    fs::create_directory_symlink("/", written.path() + "/root");
    std::ofstream(written.path() + "/huge.index.json").put('x');
    fs::resize_file(written.path() + "/huge.index.json", uintmax_t{1} << 40);
    std::ofstream(written.path() + "/huge").put('x');
    fs::resize_file(written.path() + "/huge", uintmax_t{1} << 40);
    for (const char* name : {"../good/.metadata", "/dev/zero", "root/dev/zero", "zero.index.json", "huge",
                             "huge.index.json", "gone.index.json", "gone", "", "reshard.json"}) {
      INFO(format << " " << name);
      written.RefusesWith([&](Json* json) { (*json)["headers"].push_back(Json::array({name, hash})); }, "");
    }
    written.RefusesWith([&](Json* json) { (*json)["headers"][0][1] = hash; }, "does not belong to");
  }
}

TEST_CASE("sidecar: many entries") {
  const Written written;
  const auto many = [](const std::string& entry) {
    std::string list = "[" + entry;
    for (int i = 0; i < 50'000; ++i) list += "," + entry;
    return list + "]";
  };
  const std::string hash(32, '0');
  const auto with = [&](const std::string& member, const std::string& list) {
    Json json = written.Json();
    json[member] = "LIST";
    return absl::StrReplaceAll(json.dump(), {{"\"LIST\"", list}});
  };
  written.RefusesContent(with("headers", many("[\".metadata\",\"" + hash + "\"]")), "");
  written.RefusesContent(with("chunks", many("[\"__0_0.distcp\",0,1,\"" + hash + "\"]")), "");
  // What it says of tensors is for whoever asks for layouts.
  written.WriteContent(with("tensors", many("[\"w\",\"[2, 3]\"]")));
  CHECK(RunReshard({"verify", written.path(), written.path()}).code == 0);
}

TEST_CASE("sidecar: something else than a file in its place") {
  const Written written;
  namespace fs = std::filesystem;
  const std::string sidecar = written.path() + "/reshard.json";
  fs::rename(sidecar, written.path() + "/other.json");
  fs::create_symlink("other.json", sidecar);
  written.Refuses("is a symbolic link");
  fs::remove(sidecar);
  fs::create_directory(sidecar);
  written.Refuses("is not a regular file");
}

}  // namespace
}  // namespace reshard::testing
