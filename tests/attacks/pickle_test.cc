// `.metadata` files whose pickle is wrong on purpose. What they would run is in gadgets_test.py.
#include <fstream>
#include <string>

#include "tests/attacks/refuses.h"
#include "tests/catch.h"
#include "tests/checkpoint/formats/dcp_bytes.h"
#include "tests/checkpoint/formats/safetensors_file.h"

namespace reshard::testing {
namespace {

using namespace dcp;

void RefusesBytes(const std::string& bytes, const std::string& part) {
  const TemporaryDirectory dir;
  INFO("metadata: " << bytes.size() << " bytes");
  dir.Write("c/.metadata", bytes);
  CommandRefuses({"inspect", dir.path("c")}, part);
}
void Refuses(const std::string& value, const std::string& part) { RefusesBytes(Pickled(value), part); }

TEST_CASE("pickle: beginnings and ends") {
  RefusesBytes("", "byte 0: this is not a pickle");
  RefusesBytes("\x80", "byte 0: this is not a pickle");
  RefusesBytes("\x80\x02", "byte 2: cut short");
  RefusesBytes("(dp0\n.", "not a pickle of protocol 2");  // protocol 0
  RefusesBytes("}q\x01.", "not a pickle of protocol 2");  // protocol 1
  RefusesBytes(Pickled("}", 0), "protocol 0; 2 to 5 are known");
  RefusesBytes(Pickled("}", 1), "protocol 1; 2 to 5 are known");
  RefusesBytes(Pickled("}", 6), "protocol 6; 2 to 5 are known");
  RefusesBytes(Pickled("}", 255), "protocol 255; 2 to 5 are known");
  RefusesBytes(Pickled("}") + "x", "byte 3: 1 bytes after the end");
  RefusesBytes(Pickled("}") + Pickled("}"), "4 bytes after the end");
  Refuses("\x80\x02}", "a second beginning");
  Refuses("", "does not hold one value");
  Refuses("}}", "does not hold one value");
  Refuses("}(", "does not hold one value");
  Refuses("}", "not the Metadata");
  Refuses("N", "not the Metadata");
  Refuses(Str("x"), "not the Metadata");
}

TEST_CASE("pickle: opcodes that have no place in data") {
  Refuses("L1L\n", "opcode LONG (76)");
  Refuses("F1.0\n", "opcode FLOAT (70)");
  Refuses("S'x'\n", "opcode STRING (83)");
  Refuses("Vx\n", "opcode UNICODE (86)");
  Refuses("Px\n", "opcode PERSID (80)");
  Refuses(Str("x") + "Q", "opcode BINPERSID (81)");
  Refuses("\x82\x01", "opcode EXT1 (130)");
  Refuses(std::string("\x83\x01\x00", 3), "opcode EXT2 (131)");
  Refuses(std::string("\x84\x01\x00\x00\x00", 5), "opcode EXT4 (132)");
  Refuses("\x97", "opcode NEXT_BUFFER (151)");
  Refuses("N\x98", "opcode READONLY_BUFFER (152)");
  Refuses("(l", "opcode LIST (108)");
  Refuses("(d", "opcode DICT (100)");
  Refuses("Ng0\n", "opcode GET (103)");
  Refuses("Np0\n", "opcode PUT (112)");
  Refuses("\xff", "opcode unknown (255)");
  Refuses(std::string(1, '\0'), "opcode unknown (0)");
}

TEST_CASE("pickle: lengths that are not there") {
  Refuses("\x8d" + Little(~uint64_t{0}, 8), "a text of 18446744073709551615 bytes, cut short");
  Refuses("\x8d" + Little(uint64_t{1} << 40, 8) + "x", "cut short");
  Refuses("\x8e" + Little(uint64_t{1} << 63, 8), "cut short");
  Refuses("X\xff\xff\xff\xff", "a text of 4294967295 bytes, cut short");
  Refuses("B\xff\xff\xff\x7f", "cut short");
  Refuses("T\xff\xff\xff\xff", "cut short");
  Refuses("\x8b\xff\xff\xff\xff", "a negative length");
  Refuses("\x8b\xff\xff\xff\x7f", "cut short");
  Refuses("\x8a\xff\x01", "cut short");
  Refuses("\x95" + Little(~uint64_t{0}, 8), "a frame of 18446744073709551615 bytes, cut short");
  Refuses("\x95" + Little(2, 8), "a frame of 2 bytes, cut short");
  Refuses("\x96" + Little(~uint64_t{0}, 8), "a text of 18446744073709551615 bytes, cut short");
  Refuses("I1", "cut short");
  Refuses("I1x\n", "other characters than digits");
  Refuses("I" + std::string(1'000'000, '1') + "\n", "other characters than digits");
  Refuses("(ios", "cut short");
  Refuses("cos", "cut short");
  Refuses("cos\nsystem", "cut short");
  Refuses("r\xff\xff\xff\xff", "the stack is empty");
  Refuses("Nr\xff\xff\xff\xff", "remembers a value as number 4294967295");
  Refuses("j\xff\xff\xff\xff", "is not remembered");
  Refuses("h\x01", "is not remembered");
  // A number of a megabyte is one that no field can have.
  Refuses("\x8b" + Little(1 << 20, 4) + std::string(1 << 20, '\x7f'), "not the Metadata");
}

TEST_CASE("pickle: stacks and marks") {
  for (const char* opcodes : {"0",    "2",    "R",     "b",      "a",   "s",   "\x81", "\x92", "\x85", "\x86", "\x87",
                              "\x93", "\x94", "N\x86", "(N\x86", "N(R", "N(b", "](Na", "(a",   "N(0",  "N(2"}) {
    INFO(opcodes);
    Refuses(opcodes, "the stack is empty");
  }
  for (const char* opcodes : {"t", "u", "e", "1", "o", "ia\nb\n", "\x90", "\x91"}) Refuses(opcodes, "no mark");
  Refuses("(o", "an object without a class");
  Refuses("(e", "no container to add to");
  Refuses("N(Ne", "items for what does not hold such");
  Refuses("](NNu", "items for what does not hold such");
  Refuses("}(Ne", "items for what does not hold such");
  Refuses("}(Nu", "a key without a value");
  Refuses("NNb", "a state for what is not an object");
  Refuses("NNR", "arguments that are not a tuple");
  Refuses("N)R", "calls what cannot be called");
  Refuses("N)\x81", "calls what cannot be called");
  Refuses(Global("a", "b") + "N\x81", "arguments that are not a tuple");
  Refuses(Global("a", "b") + ")N\x92", "keyword arguments that are not a dict");
  Refuses("NN\x93", "a name that is not text");
}

TEST_CASE("pickle: depth") {
  Refuses(Repeat("(", 1'000'000), "nested more than 64 deep");
  Refuses("N" + Repeat("\x85", 1'000'000), "nested more than 64 deep");
  Refuses(Repeat("]", 100) + Repeat("a", 99), "nested more than 64 deep");
  Refuses(Repeat("](", 1'000'000), "nested more than 64 deep");
  // A list that contains itself, and contains itself again.
  Refuses("]" + Put(0) + Repeat(Get(0) + "a", 200), "nested more than 64 deep");
  Refuses("N" + Repeat("\x85" + Put(0) + Get(0) + "0", 200'000), "nested more than 64 deep");
  std::string tower = Object(Class("Metadata"));
  for (int i = 0; i < 100; ++i) tower = Object(Class("Metadata"), tower);
  Refuses(tower, "nested more than 64 deep");
  // One that is its own state, and its own key.
  Refuses(Class("Metadata") + std::string(")\x81", 2) + Put(0) + Get(0) + "b", "not the Metadata");
  Refuses("}" + Put(0) + Get(0) + Get(0) + "s", "not the Metadata");
}

// 2^60 leaves out of a few hundred bytes.
std::string Laughs(const std::string& leaf, bool by_memo) {
  std::string value = leaf;
  for (uint64_t i = 0; i < 60; ++i) value += by_memo ? Put(i) + "0](" + Get(i) + Get(i) + "e" : "2\x86";
  return value;
}

TEST_CASE("pickle: values that are shared without measure") {
  for (const bool by_memo : {false, true}) {
    const std::string laughs = Laughs(Num(1), by_memo);
    Refuses(laughs, "not the Metadata");
    Refuses(Metadata({{Str("w"), laughs}}, {}), "no description of");
    Refuses(Metadata({{laughs, Whole({2})}}, {}), "not text");
    Refuses(Metadata({{Str("w"), Tensor(Properties(DType("float32")), {2}, {laughs})}}, {}), "nested more than 64");
    Refuses(Metadata({{Str("w"), Whole({2})}}, {{laughs, Place("a", 0, 1)}}), "without saying of what");
    Refuses(Metadata({{Str("w"), Whole({2})}}, {{Index("w", {0}), laughs}}), "without file, offset and length");
  }

  // Each attack is a megabyte or so.
  constexpr int64_t kTimes = 200'000;
  const std::string one = Str("w") + Put(1) + "0" + Whole({2}) + Put(2) + "0";
  Refuses(one + "}(" + Repeat(Get(1) + Get(2), kTimes) + "u", "not the Metadata");
  const auto metadata = [](const std::string& items, const std::string& places, const std::string& paths) {
    return Object(
        Class("Metadata"),
        Dict({{Str("state_dict_metadata"), items}, {Str("planner_data"), paths}, {Str("storage_data"), places}}));
  };
  Refuses(one + metadata("}(" + Repeat(Get(1) + Get(2), kTimes) + "u", "}", "}"), "twice");

  // Many tensors, all with the same long list of chunks; many chunks, all of the same many dimensions.
  for (const int64_t rank : {0, 1, 64}) {
    INFO("rank " << rank);
    const std::vector<int64_t> ones(static_cast<size_t>(rank), 1);
    std::string tensors = Chunk(std::vector<int64_t>(static_cast<size_t>(rank), 0), ones) + Put(3) + "0](" +
                          Repeat(Get(3), kTimes / 2) + "e" + Put(4) + "0";
    tensors += Object(Class("TensorStorageMetadata"), Dict({{Str("properties"), Properties(DType("float32"))},
                                                            {Str("size"), Size(ones)},
                                                            {Str("chunks"), Get(4)}})) +
               Put(5) + "0" + Place("__0_0.distcp", 0, 0) + Put(6) + "0";
    std::string items = "}(", places = "}(";
    for (int i = 0; i < 2000; ++i) {
      items += Str("t" + std::to_string(i)) + Get(5);
      places += Index("t" + std::to_string(i), std::vector<int64_t>(static_cast<size_t>(rank), 0)) + Get(6);
    }
    Refuses(tensors + metadata(items + "u", places + "u", "}"), "shares values so often");
  }

  // Long texts that are looked at again and again.
  const std::string text(500'000, 'x');
  const std::string long_name = Str(text) + Put(7) + "0" + Tuple({Num(1)}) + Put(8) + "0";
  Refuses(long_name + metadata("}", "}", "}(" + Repeat(Get(7) + Get(8), kTimes) + "u"), "shares values so often");
  Refuses(Str(text) + Put(7) + "0(" + Repeat(Get(7), 10'000) + "t" + Put(8) + "0" +
              metadata("}", "}", "}(" + Str("w") + Get(8) + "u"),
          "shares values so often");
}

TEST_CASE("pickle: a few bytes that are remembered without measure") {
  Refuses("N" + Repeat("\x94", 1'000'000) + Repeat("2\x86", 70), "nested more than 64 deep");
  std::string ever_further = "N";
  for (uint64_t i = 0; i < 100'000; ++i) ever_further += "r" + Little(i * 5, 4);
  Refuses(ever_further, "not the Metadata");
}

TEST_CASE("pickle: calls in calls, results that are called, and very many keys") {
  Refuses(Repeat(Global("a", "b"), 100'000) + ")R" + Repeat("\x85R", 99'999), "nested more than 64 deep");
  Refuses(Global("a", "b") + Repeat(")R", 1'000'000), "but \"a.b(...)\"");
  Refuses(Global("a", std::string(200, 'b')) + Put(0) + Repeat("0" + Get(0) + ")R)R", 200'000), "but \"a.bbb");
  Refuses(Global("a", "b") + Repeat(std::string(")\x81}b", 4), 100'000), "but \"a.b(...)\"");
  std::string keys = "}(";
  for (int64_t i = 0; i < 1'000'000; ++i) keys += Num(i) + "N";
  Refuses(keys + "u", "not the Metadata");
}

TEST_CASE("pickle: names that would command a terminal") {
  Refuses(Call(Global("\x1b[2J\xc2\x9b", "system"), {}), "but \"?[2J?.system\"");
  Refuses(Call(Global(std::string(1'000'000, 'm'), "x"), {}), "but \"mmm");
}

}  // namespace
}  // namespace reshard::testing
