// Any bytes as a pickle: the whole graph can be looked at.
#include <vector>

#include "checkpoint/formats/pickle/machine.h"
#include "tests/fuzz/fuzz.h"

namespace reshard::testing {
namespace {

using Kind = pickle::Pickle::Kind;

// Looks at values until a number of them was seen; graphs may be cyclic.
void Walk(const pickle::Pickle& pickle) {
  std::vector<pickle::Pickle::Value> open = {pickle.root()};
  for (int seen = 0; !open.empty() && seen < 10'000; ++seen) {
    const pickle::Pickle::Value v = open.back();
    open.pop_back();
    const auto push = [&](pickle::Pickle::Value one) {
      open.push_back(one);
      return open.size() < 100'000;
    };
    const Kind kind = pickle.kind(v);
    switch (kind) {
      case Kind::kInt:
        Promised(pickle.Int(v).has_value(), "an int has a value");
        break;
      case Kind::kString:
      case Kind::kBytes:
        Promised(pickle.Text(v).size() < size_t{1} << 31, "the length of a text");
        break;
      case Kind::kTuple:
      case Kind::kList:
      case Kind::kSet:
        pickle.ForEach(v, push);
        break;
      case Kind::kDict:
        pickle.ForEachItem(
            v, [&](pickle::Pickle::Value key, pickle::Pickle::Value value) { return push(key) && push(value); });
        break;
      case Kind::kName:
        Promised(pickle.Module(v).size() + pickle.Name(v).size() < size_t{1} << 31, "the length of a name");
        break;
      case Kind::kObject:
        Promised(pickle.kind(pickle.Class(v)) == Kind::kName, "the class of an object is a name");
        push(pickle.Arguments(v));
        if (const auto state = pickle.State(v)) push(*state);
        break;
      case Kind::kPersistent:
        push(pickle.Arguments(v));
        break;
      default:
        Promised(!pickle.Int(v).has_value(), "only an int has a value");
    }
  }
}

}  // namespace
}  // namespace reshard::testing

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using namespace reshard;
  for (const bool persistent_ids : {false, true}) {
    const auto pickle = pickle::Pickle::Read(testing::Text(data, size), {}, persistent_ids);
    if (pickle.ok()) testing::Walk(*pickle);
    if (!pickle.ok()) testing::Promised(!pickle.status().message().empty(), "a reason");
  }
  return 0;
}
