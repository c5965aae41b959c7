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
  CHECK_FALSE(PlainOf(List({Num(1), Object(Global("hparams", "Config"), Dict({}))})));
  CHECK_FALSE(PlainOf(Call(Global("functools", "partial"), {Global("os", "system")})));
  CHECK_FALSE(PlainOf(Call(Global("collections", "OrderedDict"), {List({})})));
  // Python could not make these dicts and sets.
  CHECK_FALSE(PlainOf(Dict({{List({}), Num(1)}})));
  CHECK_FALSE(PlainOf(Dict({{Tuple({Num(1), Tuple({Dict({})})}), Num(1)}})));
  CHECK_FALSE(PlainOf("\x8f(" + List({}) + "\x90"));
}

TEST_CASE("What only wraps plain data becomes what it wraps") {
  const std::string dict = Dict({{Str("lr"), Num(1)}});
  CHECK(PlainOf(Object(Global("argparse", "Namespace"), dict)) == PlainOf(dict));
  CHECK(PlainOf(Call(Global("types", "SimpleNamespace"), {}) + dict + "b") == PlainOf(dict));
  CHECK(PlainOf(Call(Global("collections", "Counter"), {dict})) == PlainOf(dict));
  CHECK(PlainOf(Call(Global("collections", "defaultdict"), {Global("os", "system")}) + "(" + Str("lr") + Num(1) +
                "u") == PlainOf(dict));
  const std::string list = List({Num(1), Num(2)});
  CHECK(PlainOf(Call(Global("collections", "deque"), {Tuple({}), Num(5)}) + "(" + Num(1) + Num(2) + "e") ==
        PlainOf(list));
  const std::string bytes = "B" + Little(2, 4) + "ab";
  CHECK(PlainOf(Call(Global("builtins", "bytearray"), {bytes})) == PlainOf(bytes));
  CHECK(PlainOf("\x96" + Little(2, 8) + "ab") == PlainOf(bytes));
  const std::string wide = "\x8a\x09" + Repeat("\x01", 9);
  CHECK(PlainOf(wide) == std::string("\x80\x02", 2) + wide + ".");
  CHECK(PlainOf("I00\n") == PlainOf("\x89"));
  CHECK(PlainOf("I-5000000000\n") == PlainOf(Num(-5'000'000'000)));

  const auto dtype = [](const std::string& name, const std::string& order) {
    return Call(Global("numpy", "dtype"), {Str(name), "\x89", "\x88"}) + Tuple({Num(3), Str(order), None()}) + "b";
  };
  const auto scalar = [&](const std::string& name, const std::string& order, const std::string& content) {
    return Call(Global("numpy.core.multiarray", "scalar"),
                {dtype(name, order), "B" + Little(content.size(), 4) + content});
  };
  CHECK(PlainOf(scalar("i4", "<", Little(7, 4))) == PlainOf(Num(7)));
  CHECK(PlainOf(scalar("f8", "<", Little(0x3ff8000000000000, 8))) == PlainOf(Float(0x3ff8000000000000)));
  CHECK(PlainOf(scalar("u8", "<", Repeat("\xff", 8))) ==
        std::string("\x80\x02\x8a\x09", 4) + Repeat("\xff", 8) + std::string("\0.", 2));
  CHECK_FALSE(PlainOf(scalar("i4", ">", Little(7, 4))));
  CHECK_FALSE(PlainOf(scalar("i4", "<", Little(7, 3))));
  CHECK_FALSE(PlainOf(scalar("O8", "<", Little(7, 8))));
  const auto array = [&](const std::string& shape, const std::string& content) {
    return Call(Global("numpy.core.multiarray", "_reconstruct"), {Global("numpy", "ndarray"), Ints({0}), Str("b")}) +
           Tuple({Num(1), shape, dtype("i2", "<"), "\x89", "B" + Little(content.size(), 4) + content}) + "b";
  };
  CHECK(PlainOf(array(Ints({2, 2}), Little(1, 2) + Little(2, 2) + Little(3, 2) + Little(4, 2))) ==
        PlainOf(List({List({Num(1), Num(2)}), List({Num(3), Num(4)})})));
  CHECK(PlainOf(array(Ints({0, 3}), "")) == PlainOf(List({})));
  CHECK_FALSE(PlainOf(array(Ints({3}), Little(1, 4))));
  CHECK_FALSE(PlainOf(array(Ints({int64_t{1} << 62, 4}), "")));
  CHECK_FALSE(PlainOf(array(Ints({-1}), "")));
  // Empty rows without end.
  CHECK_FALSE(PlainOf(array(Ints({int64_t{1} << 40, 0}), "")));
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
