// What of a pickle is plain data comes out as an equal pickle, and nothing else comes out at all.
#include "checkpoint/formats/pickle/plain_data.h"

#include <cmath>
#include <optional>
#include <string>

#include "checkpoint/formats/pickle/machine.h"
#include "tests/catch.h"
#include "tests/checkpoint/formats/pickle_bytes.h"
#include "tests/checkpoint/formats/pickle_graph.h"

namespace reshard::testing {
namespace {

using namespace pickled;

constexpr size_t kMost = 1 << 16;

std::string Float(uint64_t bits) {
  std::string big = Little(bits, 8);
  return "G" + std::string(big.rbegin(), big.rend());
}

pickle::Pickle Read(const std::string& bytes) {
  absl::StatusOr<pickle::Pickle> pickle = pickle::Pickle::Read(bytes, {});
  INFO(pickle.status());
  REQUIRE(pickle.ok());
  return *std::move(pickle);
}

std::optional<std::string> PlainOf(const std::string& value, size_t most = kMost) {
  const std::string bytes = Pickled(value, 4);
  const pickle::Pickle pickle = Read(bytes);
  return pickle::PlainData(pickle, pickle.root(), most);
}

}  // namespace

TEST_CASE("Plain data comes out as it went in") {
  const std::string values[] = {
      None(),
      "\x88",
      "\x89",
      Num(0),
      Num(255),
      Num(256),
      Num(70'000),
      Num(-1),
      Num(INT64_MIN),
      Num(INT64_MAX),
      Float(0x3ff8000000000000),
      Str(""),
      Str("step"),
      Str("\xed\xa0\x80"),  // a lone surrogate
      "B" + Little(3, 4) + std::string("a\0b", 3),
      Tuple({}),
      List({}),
      Dict({}),
      "\x8f(" + Num(1) + Num(2) + "\x90",
      Dict({{Str("w"), Dict({{Str("shape"), Ints({4, 6})}, {Tuple({Num(1), Str("k")}), List({None(), Num(7)})}})}}),
  };
  for (const std::string& value : values) {
    const std::optional<std::string> plain = PlainOf(value);
    REQUIRE(plain.has_value());
    const std::string bytes = Pickled(value, 4);
    CHECK(Difference(Read(bytes), Read(*plain)).empty());
    // The same value gives the same bytes.
    const pickle::Pickle again = Read(*plain);
    CHECK(pickle::PlainData(again, again.root(), kMost) == plain);
  }
}

TEST_CASE("Plain floats keep their bits") {
  for (const uint64_t bits : {uint64_t{0x8000000000000000}, uint64_t{0x7ff0000000000000}, uint64_t{0x7ff8000000000001},
                              uint64_t{1}, uint64_t{0x3fb999999999999a}}) {
    CHECK(PlainOf(Float(bits)) == std::string("\x80\x02", 2) + Float(bits) + ".");
  }
}

TEST_CASE("What is shared is written again, and what is not plain is not written") {
  CHECK(PlainOf(Tuple({List({Num(1)}) + Put(0), Get(0)})) == PlainOf(Tuple({List({Num(1)}), List({Num(1)})})));
  CHECK_FALSE(PlainOf(Global("os", "system")));
  CHECK_FALSE(PlainOf(List({Num(1), Object(Global("argparse", "Namespace"), Dict({}))})));
  CHECK_FALSE(PlainOf("\x8a\x09" + Repeat("\x01", 9)));
  // Python could not make these dicts and sets.
  CHECK_FALSE(PlainOf(Dict({{List({}), Num(1)}})));
  CHECK_FALSE(PlainOf(Dict({{Tuple({Num(1), Tuple({Dict({})})}), Num(1)}})));
  CHECK_FALSE(PlainOf("\x8f(" + List({}) + "\x90"));
}

TEST_CASE("A few bytes of pickle do not become many") {
  // Each list has the one before it ten times.
  std::string value = List({Num(1)}) + Put(0);
  for (uint64_t level = 1; level < 20; ++level) {
    std::vector<std::string> ten(9, Get(level - 1));
    value = List({value + Joined(ten)}) + Put(level);
  }
  CHECK_FALSE(PlainOf(value));
  // A list that contains itself.
  CHECK_FALSE(PlainOf("]" + Put(0) + "(" + Get(0) + Get(0) + "e"));
  // A long text again and again.
  const std::string text = Str(std::string(1000, 'x')) + Put(0);
  CHECK_FALSE(PlainOf(Tuple({text, Get(0), Get(0)}), 2500));
  CHECK(PlainOf(Tuple({text, Get(0), Get(0)}), 3500));
}

}  // namespace reshard::testing
