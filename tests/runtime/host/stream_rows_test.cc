// Streamed rows against the same rows copied byte by byte, with the vectors of every processor and with the widest.
#include "runtime/host/stream_rows.h"

#include <cstddef>
#include <cstdint>
#include <random>
#include <vector>

#include "tests/catch.h"

namespace reshard {
namespace {

constexpr int64_t kAround = 256;  // bytes before the first and behind the last row that stay as they are

std::vector<char> Noise(int64_t bytes, std::mt19937_64& random) {
  std::vector<char> data(static_cast<size_t>(bytes));
  for (char& c : data) c = static_cast<char>(random());
  return data;
}

TEST_CASE("rows are streamed where they belong, and nothing else is written") {
  const auto vectors = GENERATE(host::Vectors::k16Bytes, host::WidestVectors());
  const int64_t bytes = GENERATE(64, 65, 100, 127, 128, 191, 1000, 1024, 4096);
  const int64_t rows = GENERATE(1, 2, 5, 150);
  const int64_t from_gap = GENERATE(0, 40, 64);
  const int64_t to_gap = GENERATE(0, 24, 64);
  std::mt19937_64 random(20261126);
  const std::vector<char> from = Noise(kAround + rows * (bytes + from_gap), random);
  const std::vector<char> before = Noise(2 * kAround + rows * (bytes + to_gap), random);
  for (const int64_t from_shift : {0, 1, 48}) {
    for (const int64_t to_shift : {0, 16, 63}) {
      std::vector<char> expected = before;
      for (int64_t row = 0; row < rows; ++row) {
        for (int64_t at = 0; at < bytes; ++at) {
          expected[kAround + to_shift + row * (bytes + to_gap) + at] = from[from_shift + row * (bytes + from_gap) + at];
        }
      }
      std::vector<char> out = before;
      host::StreamRows(from.data() + from_shift, out.data() + kAround + to_shift, rows, bytes, bytes + from_gap,
                       bytes + to_gap, vectors);
      host::FinishStreaming();
      CAPTURE(bytes, rows, from_gap, to_gap, from_shift, to_shift);
      REQUIRE((out == expected));  // without printing them
    }
  }
}

TEST_CASE("what is near is streamed where it belongs") {
  const int64_t bytes = GENERATE(1, 4, 64, 100, 1024);
  const int64_t shift = GENERATE(0, 16);
  std::mt19937_64 random(20261126);
  const std::vector<char> from = Noise(bytes, random);
  const std::vector<char> before = Noise(2 * kAround + bytes, random);
  std::vector<char> out = before;
  const auto past_line = static_cast<int64_t>(reinterpret_cast<uintptr_t>(out.data()) % 64);
  const int64_t at = 128 - past_line + shift;
  std::vector<char> expected = before;
  for (int64_t i = 0; i < bytes; ++i) expected[at + i] = from[i];
  host::StreamNear(from.data(), out.data() + at, bytes);
  host::FinishStreaming();
  REQUIRE((out == expected));  // without printing them
}

}  // namespace
}  // namespace reshard
