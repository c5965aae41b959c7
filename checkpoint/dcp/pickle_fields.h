// Reading the graph of a pickle that nobody vouches for: attributes of objects by name, shapes, and a count of all
// steps, since a few bytes of pickle can share a long value any number of times.
#ifndef RESHARD_CHECKPOINT_DCP_PICKLE_FIELDS_H_
#define RESHARD_CHECKPOINT_DCP_PICKLE_FIELDS_H_

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <string_view>
#include <vector>

#include "checkpoint/pickle/machine.h"

namespace reshard {

// The name of an attribute, and the value that was seen to be that name: pickles share it among all objects.
struct FieldName {
  std::string_view text;
  Pickle::Value seen = 0;
};

class PickleFields {
 public:
  using Value = Pickle::Value;

  PickleFields(const Pickle& pickle, int64_t budget) : pickle_(pickle), budget_(budget) {}

  // Counts `steps`. False when the budget is spent, from then on.
  bool Spend(int64_t steps) {
    budget_ = budget_ < steps ? 0 : budget_ - steps;
    return budget_ > 0;
  }
  bool spent() const { return budget_ == 0; }

  // The attributes of an object, or of a dict, in the order of `names`; 0 for one that is not there. False when `v` has
  // no attributes, or the budget is spent.
  template <size_t N>
  bool Read(Value v, std::array<FieldName, N>* names, std::array<Value, N>* out) {
    out->fill(0);
    if (pickle_.kind(v) == Pickle::Kind::kObject) v = pickle_.State(v).value_or(v);
    if (pickle_.kind(v) != Pickle::Kind::kDict) return false;
    size_t next = 0;  // objects of a class have them in one order
    return pickle_.ForEachItem(v, [&](Value key, Value value) {
      for (size_t i = 0; i < N; ++i) {
        const size_t field = (next + i) % N;
        if (!Is(key, &(*names)[field])) continue;
        (*out)[field] = value;
        next = field + 1;
        break;
      }
      return Spend(1);
    });
  }

  // The ints of a tuple or list. False when it is something else or the budget is spent.
  bool Ints(Value v, std::vector<int64_t>* out) {
    out->clear();
    if (v == 0) return false;
    const Pickle::Kind kind = pickle_.kind(v);
    if (kind != Pickle::Kind::kTuple && kind != Pickle::Kind::kList) return false;
    return Spend(1) && pickle_.ForEach(v, [&](Value one) {
      const std::optional<int64_t> number = pickle_.Int(one);
      if (number) out->push_back(*number);
      return number.has_value() && Spend(1);
    });
  }

  bool IsString(Value v) const { return v != 0 && pickle_.kind(v) == Pickle::Kind::kString; }

 private:
  bool Is(Value key, FieldName* name) {
    if (key == name->seen) return true;
    if (!pickle_.IsText(key, name->text)) return false;
    name->seen = key;
    return true;
  }

  const Pickle& pickle_;
  int64_t budget_;
};

// What was found for a value before; forgets what falls on the same place.
template <typename T>
class ValueCache {
 public:
  const T* Find(Pickle::Value v) const {
    const Entry& entry = entries_[v % kEntries];
    return entry.value == v ? &entry.found : nullptr;
  }
  const T& Keep(Pickle::Value v, T found) { return (entries_[v % kEntries] = {v, found}).found; }

 private:
  static constexpr size_t kEntries = 4093;
  struct Entry {
    Pickle::Value value = 0;
    T found = {};
  };
  std::vector<Entry> entries_ = std::vector<Entry>(kEntries);
};

}  // namespace reshard

#endif  // RESHARD_CHECKPOINT_DCP_PICKLE_FIELDS_H_
