#include "reshard/layout/dtype.h"

#include <string>

#include "tests/catch.h"

namespace reshard {
namespace {

TEST_CASE("every dtype has a name that reads back, and a size") {
  const std::pair<std::string, int64_t> expected[] = {
      {"bool", 1},  {"i8", 1},       {"i16", 2},    {"i32", 4},        {"i64", 8},        {"u8", 1},
      {"u16", 2},   {"u32", 4},      {"u64", 8},    {"f16", 2},        {"bf16", 2},       {"f32", 4},
      {"f64", 8},   {"f8e4m3fn", 1}, {"f8e5m2", 1}, {"f8e4m3fnuz", 1}, {"f8e5m2fnuz", 1}, {"c64", 8},
      {"c128", 16}, {"c32", 4},      {"f8e8m0", 1}, {"f4e2m1x2", 1},
  };
  for (const auto& [name, size] : expected) {
    CAPTURE(name);
    const std::optional<DType> dtype = ParseDType(name);
    REQUIRE(dtype.has_value());
    CHECK(std::string(Name(*dtype)) == name);
    CHECK(SizeOf(*dtype) == size);
  }
  CHECK(ParseDType("c128") == DType::kC128);
}

TEST_CASE("dtype names are matched exactly") {
  for (const char* name : {"", "F32", "f32 ", "float32", "f8", "i128", "f8e4m3"})
    CHECK_FALSE(ParseDType(name).has_value());
}

}  // namespace
}  // namespace reshard
