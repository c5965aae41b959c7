// Reads a pickle as data. The machine knows the opcodes of protocols 2 to 5 and builds a graph of plain values; classes
// and functions stay names, and what a pickle asks to call or to build stays a record: a name, arguments, items and a
// state. Nothing is imported and nothing is called, whatever the name, so such a record is opaque: readers list it,
// and read those that they know (a tensor, a module) as the data that is in it.
//
// Values are nodes of one array of 32-bit words and are identified by their position, so that a pickle of millions of
// objects costs few allocations. Nothing is ever recursive, however deep or cyclic the graph is; code that walks along
// it must count its steps.
#ifndef RESHARD_CHECKPOINT_FORMATS_PICKLE_MACHINE_H_
#define RESHARD_CHECKPOINT_FORMATS_PICKLE_MACHINE_H_

#include <cstdint>
#include <cstring>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "absl/container/flat_hash_map.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/types/span.h"
#include "checkpoint/formats/pickle/heap.h"
#include "checkpoint/formats/pickle/names.h"
#include "checkpoint/io/files.h"
#include "reshard/checkpoint/catalog.h"

namespace reshard::pickle {

class Pickle {
 public:
  // A value. Only valid with the pickle that it is of.
  using Value = uint32_t;
  static constexpr Value kNoValue = 0;  // of no pickle

  enum class Kind : uint8_t {
    kNone,
    kBool,
    kInt,
    kBigInt,  // beyond 64 bits; its text is the number in two's complement, the lowest byte first
    kFloat,
    kString,
    kBytes,
    kTuple,
    kList,
    kSet,
    kDict,
    kName,        // a class or a function
    kObject,      // a name applied to arguments, perhaps with items and a state
    kPersistent,  // a persistent id; its value is the argument
  };

  // Records, the objects that a long pickle mostly consists of, are read in one go (records.h). kOneByOne reads every
  // opcode by itself; the result is the same, it takes longer and more memory.
  enum class Way : uint8_t { kRecords, kOneByOne };

  // Runs the pickle in `bytes`. `persistent_ids`: BINPERSID is allowed.
  // InvalidArgument: an opcode that has no place in data, a call of what is not a name. DataLoss: not a pickle, cut
  // short, an operand of the wrong kind (at which byte). ResourceExhausted: beyond a limit.
  static absl::StatusOr<Pickle> Read(std::string_view bytes, const CatalogLimits& limits, bool persistent_ids = false,
                                     Way way = Way::kRecords);
  // The same for a file, of which only a window is in memory at any time. Also the errors of reading it.
  static absl::StatusOr<Pickle> Read(const io::ReadFile& file, const CatalogLimits& limits, bool persistent_ids = false,
                                     Way way = Way::kRecords);
  // The first of several pickles that follow each other in a file; bytes() says where the next begins.
  static absl::StatusOr<Pickle> ReadFirst(const io::ReadFile& file, const CatalogLimits& limits, bool persistent_ids);

  Value root() const { return root_; }
  // The length of the pickle.
  int64_t bytes() const { return bytes_; }
  // Everything that BINPERSID made, in the order of the pickle.
  absl::Span<const Value> persistent_ids() const { return persistent_ids_; }

  Kind kind(Value v) const { return IsSmall(v) ? Kind::kInt : static_cast<Kind>(heap_[v] & 15); }
  bool IsTrue(Value v) const { return v == kTrue; }
  std::optional<int64_t> Int(Value v) const {
    if (IsSmall(v)) return Small(v);
    if (kind(v) != Kind::kInt) return std::nullopt;
    return Wide(v);
  }
  std::optional<double> Float(Value v) const {
    if (kind(v) != Kind::kFloat) return std::nullopt;
    const int64_t bits = Wide(v);
    double number = 0;
    std::memcpy(&number, &bits, sizeof number);
    return number;
  }
  // Of a string, bytes or a big int.
  std::string_view Text(Value v) const { return {texts_.data() + heap_[v + 1], heap_[v + 2]}; }
  bool IsText(Value v, std::string_view text) const { return kind(v) == Kind::kString && Text(v) == text; }
  // The members of a tuple.
  absl::Span<const Value> Tuple(Value v) const { return {heap_.data() + v + 1, heap_[v] >> kCountShift}; }

  // Hints that the value will be asked about soon.
  void Prefetch(Value v) const {
    if (!IsSmall(v)) __builtin_prefetch(heap_.data() + v);
  }

  // Calls member(Value) for those of a list, a set or a tuple in turn until it returns false. False when it did.
  template <typename F>
  bool ForEach(Value v, const F& member) const;
  // Whether it is a dict, or an object whose state is one.
  bool HasItems(Value v) const;
  // Of an object, what the pickle put into it as into a container: a dict or a list.
  std::optional<Value> Contents(Value v) const {
    const auto found = contents_.find(v);
    return found == contents_.end() ? std::nullopt : std::optional<Value>(found->second);
  }
  // Calls item(key, value) of what has items in turn, as often as the pickle sets one, until it returns false.
  template <typename F>
  bool ForEachItem(Value v, const F& item) const;

  // Of a name: what it is, and its text, "module.name".
  Known known(Value v) const { return static_cast<Known>(heap_[v + 3]); }
  std::string_view Module(Value v) const { return Text(heap_[v + 1]); }
  std::string_view Name(Value v) const { return Text(heap_[v + 2]); }

  // Of an object. State: nothing when it has none or has items instead. A persistent id has its value as arguments.
  Value Class(Value v) const { return Shape(v) != 0 ? heap_[Shape(v)] : heap_[v + 1]; }
  Value Arguments(Value v) const { return Shape(v) != 0 ? kEmptyTuple : heap_[v + 2]; }
  std::optional<Value> State(Value v) const {
    return HasItems(v) || heap_[v + 3] == 0 ? std::nullopt : std::optional<Value>(heap_[v + 3]);
  }
  bool IsObjectOf(Value v, Known known_class) const {
    return kind(v) == Kind::kObject && known(Class(v)) == known_class;
  }
  // Of an object: not 0 for some of those that have items; then objects of the same shape have the same class and the
  // same keys in the same order, and ShapedValues has their values.
  uint32_t Shape(Value v) const { return heap_[v] >> kCountShift == 0 ? 0 : heap_[v + 1]; }
  absl::Span<const Value> ShapedValues(Value v) const { return {heap_.data() + v + 2, heap_[v] >> kCountShift}; }

 private:
  friend class PickleMachine;
  friend class PickleRecords;
  // For a pickle of that many bytes: a large one of records needs a quarter of a word per byte, and few texts.
  explicit Pickle(int64_t bytes) : heap_(static_cast<size_t>(bytes) / 3 + 8) {}

  // The first word of a node: kind in 4 bits, depth of nesting in 8, count of members (tuples, records) in 20. Then:
  //   int         low word, high word
  //   float       low word, high word
  //   string      place in texts_, length; the same for bytes and a big int
  //   tuple       the members
  //   list, dict  first segment, last segment; a segment is: next segment, number of words, the words
  //   name        module, name, Known
  //   object      name, arguments, state
  //   record      shape, values; an object whose state is a dict. A shape is: name, the keys
  //   persistent  (unused), arguments
  // An int of 31 bits is not a node: its top bit is set.
  static constexpr int kDepthShift = 4;
  static constexpr int kCountShift = 12;
  static constexpr Value kSmall = uint32_t{1} << 31;
  static constexpr Value kNone = 1;  // 0 is not a value
  static constexpr Value kFalse = 2;
  static constexpr Value kTrue = 3;
  static constexpr Value kEmptyTuple = 4;
  static constexpr Value kLost = 5;  // only remembered: a part of a record that is not a value by itself

  static bool IsSmall(Value v) { return (v & kSmall) != 0; }
  static int64_t Small(Value v) { return static_cast<int32_t>(v << 1) >> 1; }
  static bool IsSmallInt(int64_t number) { return number >= -(int64_t{1} << 30) && number < int64_t{1} << 30; }
  static Value SmallValue(int64_t number) { return kSmall | static_cast<uint32_t>(number); }
  uint32_t Depth(Value v) const { return IsSmall(v) ? 0 : heap_[v] >> kDepthShift & 255; }
  int64_t Wide(Value v) const { return static_cast<int64_t>(uint64_t{heap_[v + 1]} | uint64_t{heap_[v + 2]} << 32); }

  std::string texts_;
  PickleHeap heap_;
  absl::flat_hash_map<Value, Value> contents_;  // of the objects that have any
  std::vector<Value> persistent_ids_;
  Value root_ = 0;
  int64_t bytes_ = 0;
};

template <typename F>
bool Pickle::ForEach(Value v, const F& member) const {
  if (kind(v) == Kind::kTuple) {
    for (const Value one : Tuple(v)) {
      if (!member(one)) return false;
    }
    return true;
  }
  for (uint32_t segment = heap_[v + 1]; segment != 0; segment = heap_[segment]) {
    for (uint32_t i = 0; i < heap_[segment + 1]; ++i) {
      if (!member(heap_[segment + 2 + i])) return false;
    }
  }
  return true;
}

inline bool Pickle::HasItems(Value v) const {
  if (kind(v) != Kind::kObject) return kind(v) == Kind::kDict;
  return Shape(v) != 0 || (heap_[v + 3] != 0 && kind(heap_[v + 3]) == Kind::kDict);
}

template <typename F>
bool Pickle::ForEachItem(Value v, const F& item) const {
  if (kind(v) == Kind::kObject) {
    const uint32_t shape = Shape(v);
    if (shape == 0) return ForEachItem(heap_[v + 3], item);
    const absl::Span<const Value> values = ShapedValues(v);
    for (size_t i = 0; i < values.size(); ++i) {
      if (!item(heap_[shape + 1 + i], values[i])) return false;
    }
    return true;
  }
  for (uint32_t segment = heap_[v + 1]; segment != 0; segment = heap_[segment]) {
    for (uint32_t i = 0; i < heap_[segment + 1]; i += 2) {
      if (!item(heap_[segment + 2 + i], heap_[segment + 3 + i])) return false;
    }
  }
  return true;
}

}  // namespace reshard::pickle

#endif  // RESHARD_CHECKPOINT_FORMATS_PICKLE_MACHINE_H_
