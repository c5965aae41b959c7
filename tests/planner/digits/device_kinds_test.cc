// Devices told apart by columns, against comparing all columns of every two of them.
#include "planner/digits/device_kinds.h"

#include <cstdint>
#include <random>
#include <vector>

#include "tests/catch.h"
#include "tests/property.h"

namespace reshard::digits {
namespace {

TEST_CASE("two devices are of one kind exactly if they agree in every column") {
  const uint64_t seed = testing::Seed();
  std::mt19937_64 random(seed);
  for (int round = 0; round < 50; ++round) {
    INFO("seed " << seed << ", round " << round);
    const size_t devices = 1 + random() % 60;
    DeviceKinds kinds(devices);
    std::vector<std::vector<int64_t>> columns;
    for (size_t c = random() % 5; c > 0; --c) {
      // Some of more entries than a table of kinds and entries would hold.
      const int64_t entries = random() % 4 == 0 ? int64_t{1} << 21 : 1 + static_cast<int64_t>(random() % 4);
      auto& column = columns.emplace_back(devices);
      for (int64_t& entry : column) entry = static_cast<int64_t>(random() % 3) * (entries - 1) / 2;
      if (random() % 2 == 0) {
        kinds.TellApart(column);
      } else {
        kinds.TellApart(std::vector<int32_t>(column.begin(), column.end()), static_cast<int32_t>(entries));
      }
    }
    const std::vector<DeviceClass> classes = kinds.Classes();
    REQUIRE(static_cast<int32_t>(classes.size()) == kinds.count());
    int64_t all = 0;
    for (const DeviceClass& one : classes) all += one.devices;
    CHECK(all == static_cast<int64_t>(devices));
    for (size_t a = 0; a < devices; ++a) {
      CHECK(classes[static_cast<size_t>(kinds.kinds()[a])].position <= static_cast<int64_t>(a));
      for (size_t b = 0; b < devices; ++b) {
        bool same = true;
        for (const auto& column : columns) same &= column[a] == column[b];
        CHECK((kinds.kinds()[a] == kinds.kinds()[b]) == same);
      }
    }
  }
}

TEST_CASE("kinds are numbered by their first devices") {
  DeviceKinds kinds(4);
  kinds.TellApart(std::vector<int32_t>{0, 0, 1, 1}, 2);
  kinds.TellApart(std::vector<int64_t>{5, 7, 5, 5});
  CHECK(std::vector<int32_t>(kinds.kinds().begin(), kinds.kinds().end()) == std::vector<int32_t>{0, 1, 2, 2});
  CHECK(kinds.Classes()[2].position == 2);
  CHECK(kinds.Classes()[2].devices == 2);
}

}  // namespace
}  // namespace reshard::digits
