// Reads the graph of an untrusted pickle: attributes of objects by name, and shapes. All steps are counted against a
// budget, since a few bytes of pickle can share a long value any number of times.
#ifndef RESHARD_CHECKPOINT_FORMATS_DCP_PICKLE_FIELDS_H_
#define RESHARD_CHECKPOINT_FORMATS_DCP_PICKLE_FIELDS_H_

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <string_view>
#include <vector>

#include "checkpoint/formats/pickle/machine.h"

namespace reshard::dcp {

// Names of attributes, and what was found out about them: pickles share the texts, and the shapes, among objects.
template <size_t N>
struct FieldNames {
  std::array<std::string_view, N> texts;
  std::array<pickle::Pickle::Value, N> seen = {};  // a value that has the text
  uint32_t shape = 0;                              // an object's of which this is known:
  std::array<size_t, N> positions = {};            // its index among the values; kNowhere
  static constexpr size_t kNowhere = ~size_t{0};
};

class PickleFields {
 public:
  using Value = pickle::Pickle::Value;

  PickleFields(const pickle::Pickle& pickle, int64_t budget) : pickle_(pickle), budget_(budget) {}

  // Counts `steps`. False when the budget is spent, from then on.
  bool Spend(int64_t steps) {
    budget_ = budget_ < steps ? 0 : budget_ - steps;
    return budget_ > 0;
  }
  bool spent() const { return budget_ == 0; }

  // The attributes of an object, or of a dict, in the order of `names`; 0 for one that is not there. False when `v` has
  // no attributes, or the budget is spent.
  template <size_t N>
  bool Read(Value v, FieldNames<N>* names, std::array<Value, N>* out) {
    if (pickle_.kind(v) == pickle::Pickle::Kind::kObject && pickle_.Shape(v) != 0) return ReadShaped(v, names, out);
    out->fill(0);
    if (!pickle_.HasItems(v)) return false;
    size_t next = 0;  // objects of a class have them in one order
    return pickle_.ForEachItem(v, [&](Value key, Value value) {
      for (size_t i = 0; i < N; ++i) {
        const size_t field = (next + i) % N;
        if (!Is(key, names, field)) continue;
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
    const pickle::Pickle::Kind kind = pickle_.kind(v);
    if (kind == pickle::Pickle::Kind::kTuple) return IntsOfTuple(pickle_.Tuple(v), out);
    if (kind != pickle::Pickle::Kind::kList) return false;
    return Spend(1) && pickle_.ForEach(v, [&](Value one) {
      const std::optional<int64_t> number = pickle_.Int(one);
      if (number) out->push_back(*number);
      return number.has_value() && Spend(1);
    });
  }

  // Whether both are tuples of the same values; equal values need not be the same.
  bool SameTuple(Value a, Value b) {
    if (pickle_.kind(a) != pickle::Pickle::Kind::kTuple || pickle_.kind(b) != pickle::Pickle::Kind::kTuple)
      return false;
    const absl::Span<const Value> left = pickle_.Tuple(a);
    return Spend(static_cast<int64_t>(left.size())) && left == pickle_.Tuple(b);
  }

  bool IsString(Value v) const { return v != 0 && pickle_.kind(v) == pickle::Pickle::Kind::kString; }

 private:
  bool IntsOfTuple(absl::Span<const Value> members, std::vector<int64_t>* out) {
    // Before memory is taken for them.
    if (!Spend(1 + static_cast<int64_t>(members.size()))) return false;
    out->resize(members.size());
    for (size_t i = 0; i < members.size(); ++i) {
      const std::optional<int64_t> number = pickle_.Int(members[i]);
      if (!number) return false;
      (*out)[i] = *number;
    }
    return true;
  }

  template <size_t N>
  bool ReadShaped(Value v, FieldNames<N>* names, std::array<Value, N>* out) {
    if (names->shape != pickle_.Shape(v)) {
      names->shape = pickle_.Shape(v);
      names->positions.fill(FieldNames<N>::kNowhere);
      size_t position = 0;
      pickle_.ForEachItem(v, [&](Value key, Value) {
        for (size_t i = 0; i < N; ++i) {
          if (Is(key, names, i)) names->positions[i] = position;
        }
        ++position;
        return true;
      });
    }
    const absl::Span<const Value> values = pickle_.ShapedValues(v);
    for (size_t i = 0; i < N; ++i) {
      const size_t position = names->positions[i];
      (*out)[i] = position < values.size() ? values[position] : 0;
    }
    return Spend(static_cast<int64_t>(values.size()));
  }

  template <size_t N>
  bool Is(Value key, FieldNames<N>* names, size_t i) {
    if (key == names->seen[i]) return true;
    if (!pickle_.IsText(key, names->texts[i])) return false;
    names->seen[i] = key;
    return true;
  }

  const pickle::Pickle& pickle_;
  int64_t budget_;
};

// Keeps what was found for a value; a new value in the same place replaces the old one.
template <typename T>
class ValueCache {
 public:
  const T* Find(pickle::Pickle::Value v) const {
    const Entry& entry = entries_[v % kEntries];
    return entry.value == v ? &entry.found : nullptr;
  }
  const T& Keep(pickle::Pickle::Value v, T found) { return (entries_[v % kEntries] = {v, found}).found; }

 private:
  static constexpr size_t kEntries = 4093;
  struct Entry {
    pickle::Pickle::Value value = 0;
    T found = {};
  };
  std::vector<Entry> entries_ = std::vector<Entry>(kEntries);
};

}  // namespace reshard::dcp

#endif  // RESHARD_CHECKPOINT_FORMATS_DCP_PICKLE_FIELDS_H_
