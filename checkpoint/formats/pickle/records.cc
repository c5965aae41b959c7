#include "checkpoint/formats/pickle/records.h"

#include <algorithm>
#include <cstring>

#include "checkpoint/formats/pickle/opcodes.h"

namespace reshard::pickle {
namespace {

constexpr size_t kMostDimensions = 8;  // of a torch.Size in a record
// Bounds of one record, so that one question about the room serves all of it, as of kMostBytes: with kMostFields fields
// of kMostDimensions numbers, each number of at most 10 bytes and 3 words.
constexpr size_t kMostWords = 512;
constexpr size_t kMostRemembered = 64;

}  // namespace

class PickleRecords::Reader {
 public:
  Reader(const uint8_t* at, const Pickle& pickle, const PickleHeap& memo, uint32_t* words, uint32_t* remembered)
      : at_(at),
        pickle_(pickle),
        memo_(memo),
        base_(static_cast<uint32_t>(pickle.heap_.size())),
        words_(words),
        remembered_(remembered) {}

  bool Read() {
    if (!Get(&name_) || !Skip(PickleOp::kEmptyTuple) || !Skip(PickleOp::kNewObj)) return false;
    if (pickle_.kind(name_) != Pickle::Kind::kName) return false;
    if (At(PickleOp::kMemoize)) object_slot_ = Remember(Pickle::kLost);  // Read's caller knows the value
    if (!Skip(PickleOp::kEmptyDict)) return false;
    if (At(PickleOp::kMemoize)) Remember(Pickle::kLost);
    if (!Skip(PickleOp::kMark)) return false;
    do {
      if (fields_ == kMostFields || !Get(&keys_[fields_])) return false;
      if (pickle_.kind(keys_[fields_]) != Pickle::Kind::kString || !ReadValue(&values_[fields_])) return false;
      ++fields_;
    } while (!At(PickleOp::kSetItems));
    ++at_;
    return Skip(PickleOp::kBuild);
  }

  const uint8_t* at() const { return at_; }
  uint32_t* object_slot() const { return object_slot_; }
  Pickle::Value name() const { return name_; }
  size_t fields() const { return fields_; }
  const Pickle::Value* keys() const { return keys_; }
  const Pickle::Value* values() const { return values_; }
  size_t num_words() const { return num_words_; }
  size_t num_remembered() const { return num_remembered_; }
  int64_t objects() const { return objects_; }
  uint32_t depth() const { return depth_; }

 private:
  using Value = Pickle::Value;

  bool At(PickleOp op) const { return *at_ == static_cast<uint8_t>(op); }
  bool Skip(PickleOp op) {
    if (!At(op)) return false;
    ++at_;
    return true;
  }
  // At MEMOIZE.
  uint32_t* Remember(Value v) {
    ++at_;
    remembered_[num_remembered_] = v;
    return remembered_ + num_remembered_++;
  }
  template <typename T>
  T Operand() const {
    T number;
    std::memcpy(&number, at_ + 1, sizeof number);
    return number;
  }

  bool Get(Value* v) {
    size_t index = 0;
    if (At(PickleOp::kLongBinGet)) {
      index = Operand<uint32_t>();
      at_ += 5;
    } else if (At(PickleOp::kBinGet)) {
      index = at_[1];
      at_ += 2;
    } else {
      return false;
    }
    if (index >= memo_.size()) return false;
    *v = memo_[index];
    return *v != 0 && *v != Pickle::kLost;
  }

  bool ReadInt(Value* v) {
    int64_t number = 0;
    switch (static_cast<PickleOp>(*at_)) {
      case PickleOp::kBinInt1:
        number = at_[1];
        at_ += 2;
        break;
      case PickleOp::kBinInt2:
        number = Operand<uint16_t>();
        at_ += 3;
        break;
      case PickleOp::kBinInt:
        number = Operand<int32_t>();
        at_ += 5;
        break;
      case PickleOp::kLong1: {
        const size_t length = at_[1];
        if (length == 0 || length > 8) return false;
        std::memcpy(&number, at_ + 2, length);
        const size_t unused = 64 - 8 * length;
        number = static_cast<int64_t>(static_cast<uint64_t>(number) << unused) >> unused;  // the sign
        at_ += 2 + length;
        break;
      }
      default:
        return false;
    }
    *v = Pickle::IsSmallInt(number) ? Pickle::SmallValue(number) : WideInt(number);
    return true;
  }

  Value WideInt(int64_t number) {
    words_[num_words_] = static_cast<uint32_t>(Pickle::Kind::kInt);
    words_[num_words_ + 1] = static_cast<uint32_t>(number);
    words_[num_words_ + 2] = static_cast<uint32_t>(static_cast<uint64_t>(number) >> 32);
    ++objects_;
    num_words_ += 3;
    return base_ + static_cast<uint32_t>(num_words_ - 3);
  }

  bool ReadValue(Value* v) {
    switch (static_cast<PickleOp>(*at_)) {
      case PickleOp::kBinGet:
      case PickleOp::kLongBinGet:
        if (!Get(v)) return false;
        if (pickle_.kind(*v) == Pickle::Kind::kName && pickle_.known(*v) == Known::kSize) return ReadSize(v);
        depth_ = std::max(depth_, pickle_.Depth(*v));
        return true;
      case PickleOp::kNone:
        ++at_;
        *v = Pickle::kNone;
        return true;
      default:
        return ReadInt(v);
    }
  }

  // Behind the class: the numbers as a tuple, that tuple as the arguments, the call. Its result is the tuple.
  bool ReadSize(Value* v) {
    Value members[kMostDimensions];
    size_t count = 0;
    const bool marked = At(PickleOp::kMark);
    at_ += marked ? 1 : 0;
    while (count < kMostDimensions && ReadInt(&members[count])) ++count;
    constexpr PickleOp kUnmarked[] = {PickleOp::kEmptyTuple, PickleOp::kTuple1, PickleOp::kTuple2, PickleOp::kTuple3};
    if (!marked && count > 3) return false;
    if (!Skip(marked ? PickleOp::kTuple : kUnmarked[count])) return false;
    if (count == 0) {
      *v = Pickle::kEmptyTuple;
    } else {
      words_[num_words_] = static_cast<uint32_t>(Pickle::Kind::kTuple) | 1 << Pickle::kDepthShift |
                           static_cast<uint32_t>(count) << Pickle::kCountShift;
      for (size_t i = 0; i < count; ++i) words_[num_words_ + 1 + i] = members[i];
      *v = base_ + static_cast<uint32_t>(num_words_);
      num_words_ += 1 + count;
      ++objects_;
      depth_ = std::max(depth_, uint32_t{1});
    }
    if (At(PickleOp::kMemoize)) Remember(*v);
    if (!Skip(PickleOp::kTuple1)) return false;
    ++objects_;
    if (At(PickleOp::kMemoize)) Remember(Pickle::kLost);
    if (!Skip(PickleOp::kReduce)) return false;
    if (At(PickleOp::kMemoize)) Remember(*v);
    return true;
  }

  const uint8_t* at_;
  const Pickle& pickle_;
  const PickleHeap& memo_;
  const uint32_t base_;         // the index of words_[0]
  uint32_t* const words_;       // room for values
  uint32_t* const remembered_;  // room for the memo
  uint32_t* object_slot_ = nullptr;
  size_t num_words_ = 0;
  size_t num_remembered_ = 0;
  int64_t objects_ = 2;  // the object and its state
  uint32_t depth_ = 0;   // of the deepest value of the state
  Value name_ = 0;
  size_t fields_ = 0;
  Value keys_[kMostFields];
  Value values_[kMostFields];
};

PickleRecords::Record PickleRecords::Read(const uint8_t* at, const uint8_t* end, const Room& room, Pickle* pickle,
                                          PickleHeap* memo) {
  constexpr int64_t kMarks = 2;  // around the items, and around a torch.Size
  if (end - at < kMostBytes || room.marks < kMarks) return {};
  if (pickle->heap_.size() + kMostWords >= Pickle::kSmall) return {};
  Reader reader(at, *pickle, *memo, pickle->heap_.Ahead(kMostWords), memo->Ahead(kMostRemembered));
  if (!reader.Read()) return {};
  const uint32_t depth = reader.depth() + 2;  // of the state, of the object
  if (depth > room.depth || reader.objects() > room.objects ||
      static_cast<int64_t>(reader.num_remembered()) > room.remembered) {
    return {};
  }
  pickle->heap_.Take(reader.num_words());
  const uint32_t shape = ShapeOf(reader.name(), reader.keys(), reader.fields(), pickle);
  const uint32_t object = pickle->heap_.Take(2 + reader.fields());
  pickle->heap_[object] = static_cast<uint32_t>(Pickle::Kind::kObject) | depth << Pickle::kDepthShift |
                          static_cast<uint32_t>(reader.fields()) << Pickle::kCountShift;
  pickle->heap_[object + 1] = shape;
  for (size_t i = 0; i < reader.fields(); ++i) pickle->heap_[object + 2 + i] = reader.values()[i];
  if (reader.object_slot() != nullptr) *reader.object_slot() = object;
  memo->Take(reader.num_remembered());
  return {object, reader.at(), reader.objects()};
}

uint32_t PickleRecords::ShapeOf(Pickle::Value name, const Pickle::Value* keys, size_t count, Pickle* pickle) {
  for (const Shape& shape : shapes_) {
    if (shape.name != name || (count < kMostFields && shape.keys[count] != 0)) continue;
    size_t same = 0;
    while (same < count && shape.keys[same] == keys[same]) ++same;
    if (same == count) return shape.at;
  }
  Shape& shape = shapes_[next_shape_];
  next_shape_ = (next_shape_ + 1) % kShapes;
  shape = {pickle->heap_.Take(1 + count), name, {}};
  std::copy(keys, keys + count, shape.keys.begin());
  pickle->heap_[shape.at] = name;
  for (size_t i = 0; i < count; ++i) pickle->heap_[shape.at + 1 + i] = keys[i];
  return shape.at;
}

}  // namespace reshard::pickle
