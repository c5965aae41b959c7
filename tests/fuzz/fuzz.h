// Fuzz targets: each file but replay.cc is one, called by libFuzzer (preset `fuzz`) or, in every build, by replay.cc
// with the files of corpus/<target>. A target aborts where something is not as it is promised; sanitizers see the rest.
//
//   cmake --preset fuzz && cmake --build --preset fuzz
//   build/fuzz/bin/fuzz_pickle -max_total_time=60 /tmp/new tests/fuzz/corpus/pickle
#ifndef RESHARD_TESTS_FUZZ_FUZZ_H_
#define RESHARD_TESTS_FUZZ_FUZZ_H_

#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <string_view>

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size);

namespace reshard::testing {

inline std::string_view Text(const uint8_t* data, size_t size) { return {reinterpret_cast<const char*>(data), size}; }

inline void Promised(bool kept, const char* what) {
  if (kept) return;
  std::fprintf(stderr, "not as promised: %s\n", what);
  std::abort();
}

}  // namespace reshard::testing

#endif  // RESHARD_TESTS_FUZZ_FUZZ_H_
