// Bad input to the command: a one-line reason on stderr, nothing on stdout, the right exit code, and quickly.
#include "tests/attacks/command.h"

#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>

#include "tests/catch.h"
#include "tests/sanitized.h"

namespace reshard::testing {
namespace {

using Words = std::vector<std::string>;

// The promise is a second.
constexpr double kQuick = kAddressSanitized ? 10 : 1;

std::string Shown(const Words& words) {
  std::string text;
  for (const std::string& word : words) text += " '" + word.substr(0, 80) + (word.size() > 80 ? "...'" : "'");
  return text;
}

void Refuses(int exit_code, const Words& words, const std::string& input = "") {
  const Outcome result = RunReshard(words, input);
  INFO("reshard" << Shown(words) << "\nstderr: " << result.err.substr(0, 1000));
  CHECK(result.code == exit_code);
  CHECK(result.out.empty());
  const std::string first_line = result.err.substr(0, result.err.find('\n'));
  CHECK(first_line.rfind("reshard: ", 0) == 0);
  CHECK(first_line.size() > 12);
  CHECK(result.err.size() < 4000);  // whatever was given, it is not poured back
  const auto printable = [](char c) { return c == '\n' || (c >= ' ' && c <= '~'); };
  CHECK(std::all_of(result.err.begin(), result.err.end(), printable));
  CHECK(result.cpu_seconds < kQuick);
}

Words Plan(const std::string& mesh, const std::string& from, const std::string& to, const Words& flags = {}) {
  Words words = {"plan", mesh, from, to};
  words.insert(words.end(), flags.begin(), flags.end());
  return words;
}

const std::string kMegabyte(size_t{1} << 17, '<');  // the longest argument that Linux passes is 128 KiB

}  // namespace

TEST_CASE("the command refuses bad meshes") {
  for (const char* mesh : {"",
                           " ",
                           "X:2",
                           "{",
                           "}",
                           "{X",
                           "{X:",
                           "{X:2",
                           "{X:2,",
                           "{X:2,}",
                           "{:2}",
                           "{X:0}",
                           "{X:-1}",
                           "{X:2.5}",
                           "{X:2,X:2}",
                           "{1X:2}",
                           "{X-Y:2}",
                           "{X:2}}",
                           "{X:2} {Y:2}",
                           "{X:99999999999999999999}",
                           "{X:9223372036854775807}",
                           "{A:4194305}",
                           "{X:2048,Y:2049}",
                           "{X:4294967296,Y:4294967296}",
                           "{X:2}@",
                           "{X:2}@-1",
                           "{X:2}@[",
                           "{X:2}@[0]",
                           "{X:2}@[0,1,2]",
                           "{X:2}@[0,0]",
                           "{X:2}@[0,-1]",
                           "{X:2}@9223372036854775807",
                           "{X:2}@[0,99999999999999999999]",
                           "{\xff:2}",
                           "{X\xc3\xa9:2}",
                           "{X:\xd9\xa2}",
                           "{X:2\x01}"}) {
    Refuses(4, Plan(mesh, "[4]", "[4]"));
    Refuses(4, Plan("{X:2}", "[4]", "[4]", {"--to-mesh", mesh[0] == '\0' ? "{" : mesh}));
  }
  Refuses(4, {"show", "{X:2", "[4]"});
  Refuses(4, {"run", "{X:2", "[4]", "[4]"});
}

TEST_CASE("the command refuses bad layouts") {
  for (const char* layout : {" ",
                             "[",
                             "]",
                             "4",
                             "[4",
                             "4]",
                             "[4]]",
                             "[4],[4]",
                             "[,4]",
                             "[4,]",
                             "[3 4]",
                             "[-4]",
                             "[4.0]",
                             "[four]",
                             "[<X>]",
                             "[<X4]",
                             "[X>4]",
                             "[<X,>4]",
                             "[<,X>4]",
                             "[<Q>4]",
                             "[<x>4]",
                             "[<X,X>4]",
                             "[<X>4, <X>4]",
                             "[<X:(1)2,X>4]",
                             "[<X:(3)2>4]",
                             "[<X:(1)3>4]",
                             "[<X:(0)4>4]",
                             "[<X:(1)0>4]",
                             "[<X:(2)4>4]",
                             "[<X:(-1)4>4]",
                             "[<X:1>4]",
                             "[<X:()2>4]",
                             "[<0>4]",
                             "[<-2>4]",
                             "[<~>4]",
                             "[<~2>4]",
                             "[<~X:(1)2>4]",
                             "[<X=>4]",
                             "[<X=[]>4]",
                             "[<X=[1,2]>4]",
                             "[<X=[1,1,1,2]>4]",
                             "[<X=[5,-1,0,0]>4]",
                             "[<X=[9223372036854775807,9223372036854775807,1,1]>4]",
                             "[2<X>4]",
                             "[0<X>4]",
                             "[9223372036854775808]",
                             "[99999999999999999999999999]",
                             "[4294967296, 4294967296]",
                             "[9223372036854775807, 2]",
                             "[<9223372036854775807>4]",
                             "[<1048576,1048576,1048576>9223372036854775807]",
                             "[4] total<X>",
                             "[4] sum",
                             "[4] sum<",
                             "[4] sum<>",
                             "[4] sum<X",
                             "[4] sum<Q>",
                             "[4] sum<X,X>",
                             "[<X>4] sum<X>",
                             "[4] sum<X:(1)2,X>",
                             "[4] sum<2>",
                             "[4] sum<X> max<Y>",
                             "[*]",
                             "[...]",
                             "[<X>, *]",
                             "[4\xff]",
                             "[\xe2\x88\x9e]",
                             "[4]\x7f",
                             "sum<X>",
                             "[{X>4]",
                             "[<X}4]"}) {
    Refuses(4, Plan("{X:4,Y:2}", layout, "[4]"));
    Refuses(4, Plan("{X:4,Y:2}", "[4]", layout));
  }
  Refuses(4, Plan("{X:4}", "", "[4]"));
  Refuses(4, Plan("{X:4}", "[4]", "[5]"));
  Refuses(4, Plan("{X:4}", "[4]", "[4, 1]"));
  Refuses(4, Plan("{X:4}", "[4]", "[]"));
  Refuses(4, {"show", "{X:4}", "[<Q>4]"});
  Refuses(4, {"run", "{X:4}", "[<Q>4]", "[4]"});
  std::string rank = "[1";
  for (int i = 0; i < 64; ++i) rank += ",1";
  Refuses(4, Plan("{X:4}", rank + "]", rank + "]"));
}

TEST_CASE("the command survives long and deep text") {
  Refuses(4, Plan("{X:4}", kMegabyte.substr(0, 100000), "[4]"));
  Refuses(4, Plan("{X:4}", "[" + kMegabyte.substr(0, 100000), "[4]"));
  Refuses(4, Plan(kMegabyte.substr(0, 100000), "[4]", "[4]"));
  Refuses(4, Plan("{X:4}", std::string(100000, '['), "[4]"));
  Refuses(4, Plan("{X:4}", "[" + std::string(100000, '1') + "]", "[4]"));
  Refuses(4, Plan("{" + std::string(100000, 'X') + ":0}", "[4]", "[4]"));
  std::string digits = "[<2";
  for (int i = 0; i < 40000; ++i) digits += ",2";
  Refuses(4, Plan("{X:4}", digits + ">4]", "[4]"));
  Refuses(2, {"plan", "--" + std::string(100000, 'f')});
  Refuses(2, {std::string(100000, 'p')});
}

TEST_CASE("the command refuses bad flags and flag values") {
  Refuses(2, {});
  Refuses(2, {"plam", "{X:2}", "[4]", "[4]"});
  Refuses(2, {"plan"});
  Refuses(2, {"plan", "{X:2}"});
  Refuses(2, {"plan", "{X:2}", "[4]"});
  Refuses(2, {"show", "{X:2}"});
  Refuses(2, {"run", "{X:2}", "[4]"});
  Refuses(2, Plan("{X:2}", "[4]", "[4]", {"[4]"}));
  for (const Words& flags : std::vector<Words>{{"--jsn"},
                                               {"--json=maybe"},
                                               {"--dtype", "f31"},
                                               {"--dtype", ""},
                                               {"--dtype"},
                                               {"--objective", "fast"},
                                               {"--ops", "Gather"},
                                               {"--ops", ""},
                                               {"--ops", "Slice,,AllGather"},
                                               {"--memory-limit", "lots"},
                                               {"--memory-limit", "-1"},
                                               {"--memory-limit", "1e400"},
                                               {"--memory-limit", "99999999999999999999TiB"},
                                               {"--memory-limit", "nan"},
                                               {"--topology", "warp"},
                                               {"--shape", "4,x"},
                                               {"--shape", "-4"},
                                               {"--shape", "99999999999999999999"},
                                               {"--from-format", "numpy"},
                                               {"--to-format", ""}}) {
    Refuses(2, Plan("{X:2}", "[<X>4]", "[4]", flags));
  }
  CHECK(RunReshard(Plan("{X:2}", "[4]", "[4]", {"--jsn"})).err.find("--json") != std::string::npos);
  CHECK(RunReshard(Plan("{X:2}", "[4]", "[4]", {"--objectiv", "time"})).err.find("--objective") != std::string::npos);
  Refuses(2, {"run", "{X:2}", "[<X>4]", "[4]", "--repeat", "-1"});
  Refuses(2, {"run", "{X:2}", "[<X>4]", "[4]", "--repeat", "99999999999999999999"});
  Refuses(2, {"show", "{X:2}", "[<X>4]", "--device", "two"});
}

TEST_CASE("the command refuses what is missing, unwritable or not feasible") {
  Refuses(5, {"plan", "--batch", "/nonexistent/problems.jsonl"});
  Refuses(5, {"plan", "--batch", "/"});
  Refuses(2, {"plan", "--batch", "-", "--simulate"});
  Refuses(2, Plan("{X:2}", "[<X>4]", "[4]", {"--simulate", "--json"}));
  Refuses(5, Plan("{X:2}", "[<X>4]", "[4]", {"--topology", "/nonexistent/topology.json"}));
  Refuses(5, Plan("{X:2}", "[<X>4]", "[4]", {"--svg", "/nonexistent/plan.svg"}));
  Refuses(5, {"show", "{X:2}", "[<X>4]", "--svg", "/nonexistent/plan.svg"});
  Refuses(3, Plan("{X:2}", "[<X>4]", "[4]", {"--memory-limit", "0"}));
  Refuses(3, Plan("{X:2}", "[<X>4]", "[4]", {"--memory-limit", "1"}));
  Refuses(3, Plan("{X:2}", "[<X>4]", "[4]", {"--ops", "Slice"}));
  Refuses(3, Plan("{X:2}", "[<X>4]", "[4]", {"--ops", "boxes", "--to-mesh", "{X:2}@2"}));
  Refuses(3, Plan("{X:2}", "[4]", "[4] sum<X>"));
  Refuses(4, Plan("{X:4194304}", "[<X>9223372036854775807]", "[9223372036854775807]"));
}

TEST_CASE("the command refuses what is too large to print or to run") {
  Refuses(3, Plan("{X:4096}", "[<X>4096]", "[4096]", {"--pieces"}));
  Refuses(3, Plan("{X:4096}", "[<X>4096, 4096]", "[4096, <X>4096]", {"--pieces"}));
  Refuses(3, {"run", "{X:2}", "[<X>1099511627776]", "[1099511627776]"});
  Refuses(3, {"run", "{X:65536}", "[<X>65536]", "[65536]"});
}

TEST_CASE("output that cannot be written is an error") {
  for (const char* words : {"plan '{X:2}' '[<X>4]' '[4]'", "plan '{X:2}' '[<X>4]' '[4]' --json",
                            "show '{X:2}' '[<X>4]'", "run '{X:2}' '[<X>4]' '[4]' --json"}) {
    INFO(words);
    const int status = std::system((RESHARD_COMMAND " " + std::string(words) + " >/dev/full 2>/dev/null").c_str());
    CHECK(WEXITSTATUS(status) == 5);
  }
}

TEST_CASE("topology files that are not topologies are refused") {
  const std::string path =
      (std::filesystem::temp_directory_path() / ("reshard_topology_" + std::to_string(getpid()))).string();
  for (const std::string& content : std::vector<std::string>{
           "", "x", "{}", "[]", "null", "{\"levels\":[]}", "{\"levels\":{}}", "{\"levels\":[1]}", "{\"levels\":[{}]}",
           "{\"levels\":[{\"gb_per_s\":0,\"latency_us\":1}]}", "{\"levels\":[{\"gb_per_s\":-1,\"latency_us\":1}]}",
           "{\"levels\":[{\"gb_per_s\":1e300,\"latency_us\":1}]}", "{\"levels\":[{\"gb_per_s\":50,\"latency_us\":-5}]}",
           "{\"levels\":[{\"gb_per_s\":\"fast\",\"latency_us\":1}]}",
           "{\"levels\":[{\"devices\":0,\"gb_per_s\":1,\"latency_us\":1},{\"gb_per_s\":1,\"latency_us\":1}]}",
           "{\"levels\":[{\"devices\":3,\"gb_per_s\":1,\"latency_us\":1},{\"devices\":8,\"gb_per_s\":1,"
           "\"latency_us\":1},{\"gb_per_s\":1,\"latency_us\":1}]}",
           std::string(100000, '['), std::string("\0{}", 3), "\xff\xfe"}) {
    std::ofstream(path, std::ios::binary) << content;
    INFO(content.substr(0, 100));
    Refuses(4, Plan("{X:2}", "[<X>4]", "[4]", {"--topology", path}));
  }
  std::remove(path.c_str());
}

TEST_CASE("meshes of the largest size are planned, one more is refused") {
  const Outcome result = RunReshard(Plan("{A:4194304}", "[<A>4194304]", "[4194304]", {"--json"}));
  INFO(result.err);
  REQUIRE(result.code == 0);
  CHECK(nlohmann::json::parse(result.out)["world"] == 4194304);
  Refuses(4, Plan("{A:4194305}", "[<A>4194304]", "[4194304]"));
  Refuses(4, Plan("{A:4194304,B:2}", "[<A>4194304]", "[4194304]"));
}

namespace {

nlohmann::json Answer(const std::string& line) { return nlohmann::json::parse(line); }

std::vector<std::string> Lines(const std::string& text) {
  std::vector<std::string> lines;
  for (size_t at = 0; at < text.size();) {
    const size_t end = text.find('\n', at);
    lines.push_back(text.substr(at, end - at));
    at = end == std::string::npos ? text.size() : end + 1;
  }
  return lines;
}

const char* const kGood =
    "{\"id\":1,\"mesh\":\"{X:2}\",\"from\":\"[<X>4]\",\"to\":\"[4]\",\"dtype\":\"f32\",\"to_mesh\":null}";

}  // namespace

TEST_CASE("a bad line of a batch is answered with an error and the rest goes on") {
  const std::vector<std::string> bad = {
      "x",
      "{",
      "[]",
      "null",
      "1",
      "\"\"",
      "{}",
      "{\"id\":2}",
      "{\"mesh\":1}",
      "{\"mesh\":\"{X:2}\"}",
      "{\"mesh\":\"{X:2}\",\"from\":\"[4]\"}",
      "{\"mesh\":\"{X:2}\",\"from\":[4],\"to\":\"[4]\"}",
      "{\"mesh\":\"{X:2}\",\"from\":\"[4]\",\"to\":\"[5]\"}",
      "{\"mesh\":\"{X:2}\\u0000\",\"from\":\"[4]\",\"to\":\"[4]\"}",
      "{\"mesh\":\"{X:2}\",\"from\":\"[4]\\u0000\",\"to\":\"[4]\"}",
      "{\"mesh\":\"{X:2}\",\"from\":\"[4]\",\"to\":\"[4]\",\"dtype\":\"f31\"}",
      "{\"mesh\":\"{X:2}\",\"from\":\"[4]\",\"to\":\"[4]\",\"dtype\":7}",
      "{\"mesh\":\"{X:2}\",\"from\":\"[4]\",\"to\":\"[4]\",\"shape\":[-4]}",
      "{\"mesh\":\"{X:2}\",\"from\":\"[4]\",\"to\":\"[4]\",\"shape\":[1e300]}",
      "{\"mesh\":\"{X:2}\",\"from\":\"[4]\",\"to\":\"[4]\",\"shape\":4}",
      "{\"mesh\":\"{X:2}\",\"from\":\"[4]\",\"to\":\"[4]\",\"to_mesh\":{}}",
      "{\"mesh\":\"{X:2}\",\"from\":\"[4]\",\"to\":\"[4]\",\"form\":1}",
      std::string("{\"mesh\":\"\xff\xfe\",\"from\":\"[4]\",\"to\":\"[4]\"}"),
      std::string("\0", 1),
      std::string(100000, '['),
      "{\"mesh\":\"" + std::string(size_t{1} << 20, '<') + "\",\"from\":\"[4]\",\"to\":\"[4]\"}",
      "{\"mesh\":\"{X:2}\",\"from\":\"" + std::string(size_t{1} << 20, '<') + "\",\"to\":\"[4]\"}",
      "{\"id\":" + std::string(500000, '[') + std::string(500000, ']') +
          ",\"mesh\":\"{X:2}\",\"from\":\"[Q]\",\"to\":\"[4]\"}"};
  std::string input = std::string(kGood) + "\n\n";
  for (const std::string& line : bad) input += line + "\n";
  input += kGood;  // without a newline
  const Outcome result = RunReshard({"plan", "--batch", "-"}, input);
  INFO(result.err.substr(0, 1000));
  CHECK(result.code == 4);
  CHECK(result.cpu_seconds < kQuick);
  const std::vector<std::string> lines = Lines(result.out);
  REQUIRE(lines.size() == bad.size() + 2);
  CHECK(Answer(lines.front())["schema"] == "reshard.plan/1");
  CHECK(Answer(lines.front())["id"] == 1);
  CHECK(Answer(lines.back()) == Answer(lines.front()));
  for (size_t i = 0; i < bad.size(); ++i) {
    INFO(bad[i].substr(0, 120) << "\n" << lines[i + 1].substr(0, 500));
    CHECK(lines[i + 1].size() < 120000);  // an id comes back as it was, unless it nests too deep
    const nlohmann::json answer = Answer(lines[i + 1]);
    CHECK(answer.contains("id"));
    CHECK(answer["error"]["code"] == "INVALID_ARGUMENT");
    CHECK(answer["error"]["message"].get<std::string>().size() < 2000);
    CHECK(answer["error"]["message"].get<std::string>().size() > 5);
  }
}

TEST_CASE("a batch ends with the exit code of its first error") {
  const auto code = [](const std::string& input, const Words& flags = {}) {
    Words words = {"plan", "--batch", "-"};
    words.insert(words.end(), flags.begin(), flags.end());
    return RunReshard(words, input).code;
  };
  const std::string good = std::string(kGood) + "\n";
  CHECK(code("") == 0);
  CHECK(code("\n \r\n\t\n") == 0);
  CHECK(code(good) == 0);
  CHECK(code(good + "x\n") == 4);
  CHECK(code(good, {"--memory-limit", "1"}) == 3);
  CHECK(code(good + "x\n", {"--memory-limit", "1"}) == 3);
  CHECK(code("x\n" + good, {"--memory-limit", "1"}) == 4);
  CHECK(code(good, {"--ops", "Slice"}) == 3);
}

}  // namespace reshard::testing
