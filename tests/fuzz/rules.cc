// Any bytes as layout rules, which are then asked for the layout of a few tensors.
#include "reshard/checkpoint/rules.h"

#include <vector>

#include "tests/fuzz/fuzz.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using namespace reshard;
  const absl::StatusOr<LayoutRules> rules = LayoutRules::Parse(testing::Text(data, size));
  if (!rules.ok()) return 0;
  for (const char* name : {"model.layers.0.wq.weight", "", "\xff*?"}) {
    for (const std::vector<int64_t>& shape : {std::vector<int64_t>{}, {8}, {6, 4}, {0, 3, 5}}) {
      (void)rules->LayoutFor(name, shape).ok();
    }
  }
  return 0;
}
