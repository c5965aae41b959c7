#include "checkpoint/pickle/machine.h"

#include <algorithm>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "checkpoint/io/show.h"
#include "checkpoint/pickle/opcodes.h"
#include "checkpoint/pickle/records.h"

namespace reshard {

class PickleMachine {
 public:
  PickleMachine(std::string_view bytes, const CatalogLimits& limits, bool persistent_ids, Pickle::Way way)
      : limits_(limits),
        persistent_ids_(persistent_ids),
        most_depth_(static_cast<uint32_t>(std::clamp<int64_t>(limits.depth, 0, 254))),
        begin_(reinterpret_cast<const uint8_t*>(bytes.data())),
        at_(begin_),
        op_(begin_),
        end_(begin_ + bytes.size()),
        records_allowed_(way == Pickle::Way::kRecords),
        pickle_(bytes),
        memo_(bytes.size() / 6 + 8) {}

  absl::StatusOr<Pickle> Run();
  // Whether Run gave up because the pickle asks for a part of a record. Everything has to be read one by one then.
  bool wants_one_by_one() const { return wants_one_by_one_; }

 private:
  using Value = Pickle::Value;
  using Kind = Pickle::Kind;

  // Runs the opcode at at_. False at the end, and when status_ says why not.
  bool Step();

  // What to return where something is wrong: false, with the reason kept.
  [[gnu::noinline, gnu::cold]] bool Fail(absl::StatusCode code, std::string_view message) {
    status_ = absl::Status(code, absl::StrCat("pickle, byte ", op_ - begin_, ": ", Abseil(message)));
    return false;
  }
  bool Bad(std::string_view message) { return Fail(absl::StatusCode::kDataLoss, message); }
  bool Refuse(std::string_view message) { return Fail(absl::StatusCode::kInvalidArgument, message); }

  int64_t Left() const { return end_ - at_; }
  // The next kBytes bytes as a little-endian number; nothing, with the reason kept, when there are fewer.
  template <size_t kBytes>
  bool Operand(uint64_t* number) {
    if (Left() < static_cast<int64_t>(kBytes)) return Bad("cut short");
    *number = 0;
    std::memcpy(number, at_, kBytes);
    at_ += kBytes;
    return true;
  }

  // The index of a new node; 0, with the reason kept, when there are too many.
  uint32_t Node(Kind kind, size_t words, uint32_t depth = 0, size_t count = 0) {
    if (++objects_ > limits_.objects || depth > most_depth_) [[unlikely]] {
      FailNode(depth);
      return 0;
    }
    const uint32_t node = Words(words);
    if (node == 0) return 0;
    pickle_.heap_[node] = static_cast<uint32_t>(kind) | depth << Pickle::kDepthShift |
                          static_cast<uint32_t>(count) << Pickle::kCountShift;
    return node;
  }
  [[gnu::noinline, gnu::cold]] bool FailNode(uint32_t depth) {
    return Fail(absl::StatusCode::kResourceExhausted, depth > most_depth_
                                                          ? absl::StrCat("nested more than ", most_depth_, " deep")
                                                          : absl::StrCat("more than ", limits_.objects, " objects"));
  }
  uint32_t Words(size_t words) {
    if (pickle_.heap_.size() + words >= Pickle::kSmall) {
      Fail(absl::StatusCode::kResourceExhausted, "more values than 2^31 words hold");
      return 0;
    }
    return pickle_.heap_.Take(words);
  }
  uint32_t Depth(Value v) const { return pickle_.Depth(v); }
  uint32_t DepthAround(size_t first) const {
    uint32_t depth = 0;
    for (size_t i = first; i < stack_.size(); ++i) depth = std::max(depth, Depth(stack_[i]));
    return depth + 1;
  }
  bool Deepen(Value v, uint32_t depth) {
    if (depth <= Depth(v)) return true;
    if (depth > most_depth_) return FailNode(depth);
    uint32_t& word = pickle_.heap_[v];
    word = (word & ~(uint32_t{255} << Pickle::kDepthShift)) | depth << Pickle::kDepthShift;
    return true;
  }

  bool Push(Value v) {
    stack_.push_back(v);
    return v != 0;
  }
  // Whether the stack has `count` values above the last mark.
  bool Has(size_t count) { return stack_.size() - fence_ >= count || Bad("the stack is empty"); }
  Value Pop() {
    const Value top = stack_.back();
    stack_.pop_back();
    return top;
  }
  // Forgets the last mark; *first: where the values above it begin.
  bool TakeMark(size_t* first) {
    if (marks_.empty()) return Bad("no mark");
    *first = fence_;
    fence_ = marks_.back();
    marks_.pop_back();
    return true;
  }
  bool Is(Value v, Kind kind) const { return pickle_.kind(v) == kind; }

  bool PushInt(int64_t number);
  bool PushLong(uint64_t length);
  bool PushText(Kind kind, uint64_t length);
  Value TextNode(Kind kind, const uint8_t* text, size_t length);
  bool PushTuple(size_t first);
  bool PushContainer(Kind kind);
  // Moves the values from `first` on, all `kind`'s members, into the container before them.
  bool Extend(size_t first, bool pairs);
  bool ReadLine(Value* text);
  bool PushName(Value module, Value name);
  // Reads records for as long as there are any, from op_ on. False when there is none.
  bool ReadRecords();
  bool PushObject(Value name, Value arguments);
  bool Reduce();
  bool Build();
  bool Put(uint64_t index);
  bool Get(uint64_t index);

  const CatalogLimits& limits_;
  const bool persistent_ids_;
  const uint32_t most_depth_;
  const uint8_t* const begin_;
  const uint8_t* at_;
  const uint8_t* op_;  // the opcode that is run
  const uint8_t* const end_;
  const bool records_allowed_;
  Pickle pickle_;
  PickleRecords records_;
  std::vector<Value> stack_;
  size_t fence_ = 0;           // where the values above the last mark begin
  std::vector<size_t> marks_;  // the fences before
  PickleHeap memo_;
  int64_t remembered_ = 0;  // entries of memo_ in use
  int64_t objects_ = 0;
  bool wants_one_by_one_ = false;
  absl::Status status_;
};

bool PickleMachine::PushInt(int64_t number) {
  if (Pickle::IsSmallInt(number)) return Push(Pickle::SmallValue(number));
  const uint32_t node = Node(Kind::kInt, 3);
  if (node == 0) return false;
  pickle_.heap_[node + 1] = static_cast<uint32_t>(number);
  pickle_.heap_[node + 2] = static_cast<uint32_t>(static_cast<uint64_t>(number) >> 32);
  return Push(node);
}

bool PickleMachine::PushLong(uint64_t length) {
  if (static_cast<uint64_t>(Left()) < length) return Bad("cut short");
  const uint8_t* const digits = at_;
  at_ += length;
  while (length > 8 && digits[length - 1] == (digits[length - 2] >> 7 != 0 ? 0xff : 0)) --length;  // only the sign
  if (length > 8) return Push(Node(Kind::kBigInt, 1));
  uint64_t number = length > 0 && digits[length - 1] >> 7 != 0 ? ~uint64_t{0} : 0;
  std::memcpy(&number, digits, length);
  return PushInt(static_cast<int64_t>(number));
}

PickleMachine::Value PickleMachine::TextNode(Kind kind, const uint8_t* text, size_t length) {
  const uint32_t node = Node(kind, 3);
  if (node == 0) return 0;
  pickle_.heap_[node + 1] = static_cast<uint32_t>(text - begin_);
  pickle_.heap_[node + 2] = static_cast<uint32_t>(length);
  return node;
}

bool PickleMachine::PushText(Kind kind, uint64_t length) {
  if (static_cast<uint64_t>(Left()) < length) return Bad(absl::StrCat("a text of ", length, " bytes, cut short"));
  if (static_cast<int64_t>(length) > limits_.string_bytes) {
    return Fail(absl::StatusCode::kResourceExhausted,
                absl::StrCat("a text of ", length, " bytes; at most ", limits_.string_bytes, " are allowed"));
  }
  const uint8_t* const text = at_;
  at_ += length;
  return Push(TextNode(kind, text, length));
}

bool PickleMachine::PushTuple(size_t first) {
  const size_t count = stack_.size() - first;
  if (count == 0) {
    stack_.push_back(Pickle::kEmptyTuple);
    return true;
  }
  if (count >= size_t{1} << (32 - Pickle::kCountShift)) {
    return Fail(absl::StatusCode::kResourceExhausted, absl::StrCat("a tuple of ", count));
  }
  const uint32_t node = Node(Kind::kTuple, 1 + count, DepthAround(first), count);
  if (node == 0) return false;
  for (size_t i = 0; i < count; ++i) pickle_.heap_[node + 1 + i] = stack_[first + i];
  stack_.resize(first);
  return Push(node);
}

bool PickleMachine::PushContainer(Kind kind) {
  const uint32_t node = Node(kind, 3);
  if (node == 0) return false;
  pickle_.heap_[node + 1] = 0;
  pickle_.heap_[node + 2] = 0;
  return Push(node);
}

bool PickleMachine::Extend(size_t first, bool pairs) {
  if (first == 0 || first - 1 < fence_) return Bad("no container to add to");
  const size_t count = stack_.size() - first;
  const Value target = stack_[first - 1];
  const Kind kind = pickle_.kind(target);
  const bool fits = kind == Kind::kObject || (pairs ? kind == Kind::kDict : kind == Kind::kList || kind == Kind::kSet);
  if (!fits) return Bad("items for what is no container of them");
  if (pairs && count % 2 != 0) return Bad("a key without a value");
  // Objects of classes that are containers have their items dropped: nobody asks for them.
  if (count > 0 && kind != Kind::kObject) {
    if (!Deepen(target, DepthAround(first))) return false;
    const uint32_t segment = Words(2 + count);
    if (segment == 0) return false;
    PickleHeap& heap = pickle_.heap_;
    heap[segment] = 0;
    heap[segment + 1] = static_cast<uint32_t>(count);
    for (size_t i = 0; i < count; ++i) heap[segment + 2 + i] = stack_[first + i];
    const uint32_t last = heap[target + 2];
    heap[last == 0 ? target + 1 : last] = segment;
    heap[target + 2] = segment;
  }
  stack_.resize(first);
  return true;
}

bool PickleMachine::ReadLine(Value* text) {
  const uint8_t* const line = at_;
  const uint8_t* const newline = std::find(at_, end_, '\n');
  if (newline == end_) return Bad("cut short");
  at_ = newline + 1;
  *text = TextNode(Kind::kString, line, static_cast<size_t>(newline - line));
  return *text != 0;
}

bool PickleMachine::PushName(Value module, Value name) {
  const uint32_t node = Node(Kind::kName, 4);
  if (node == 0) return false;
  pickle_.heap_[node + 1] = module;
  pickle_.heap_[node + 2] = name;
  pickle_.heap_[node + 3] = static_cast<uint32_t>(Classify(pickle_.Text(module), pickle_.Text(name)));
  return Push(node);
}

bool PickleMachine::PushObject(Value name, Value arguments) {
  const uint32_t node = Node(Kind::kObject, 4, Depth(arguments) + 1);
  if (node == 0) return false;
  pickle_.heap_[node + 1] = name;
  pickle_.heap_[node + 2] = arguments;
  pickle_.heap_[node + 3] = 0;
  return Push(node);
}

bool PickleMachine::ReadRecords() {
  if (!records_allowed_) return false;
  const uint8_t* const begin = op_;
  // A record remembers its parts in a row behind all that is remembered, as MEMOIZE does where nothing was left out.
  while (memo_.size() == static_cast<size_t>(remembered_)) {
    const PickleRecords::Room room = {limits_.objects - objects_, limits_.objects - remembered_, most_depth_,
                                      limits_.depth - static_cast<int64_t>(marks_.size())};
    const PickleRecords::Record record = records_.Read(op_, end_, room, &pickle_, &memo_);
    if (record.value == 0) break;
    op_ = record.end;
    objects_ += record.objects;
    remembered_ = static_cast<int64_t>(memo_.size());
    stack_.push_back(record.value);
  }
  if (op_ == begin) return false;
  at_ = op_;
  return true;
}

bool PickleMachine::Reduce() {
  if (!Has(2)) return false;
  const Value arguments = Pop();
  const Value name = Pop();
  if (!Is(arguments, Kind::kTuple)) return Bad("arguments that are no tuple");
  if (!Is(name, Kind::kName)) return Refuse("calls what is no name");
  const absl::Span<const Value> given = pickle_.Tuple(arguments);
  switch (const Known known = pickle_.known(name)) {
    case Known::kSize:
      if (given.size() != 1 || !Is(given[0], Kind::kTuple)) return Bad("torch.Size of what is no tuple");
      return Push(given[0]);
    case Known::kOrderedDict:
      if (!given.empty()) return Bad("an OrderedDict with arguments");
      return PushContainer(Kind::kDict);
    case Known::kGetAttr:
      // Python 3.11 before .4 writes a member of an enum as getattr(enum, name).
      if (given.size() == 2 && Is(given[0], Kind::kName) && pickle_.known(given[0]) == Known::kMemFormat &&
          Is(given[1], Kind::kString)) {
        return PushObject(given[0], arguments);
      }
      break;
    default:
      if (MayReduce(known)) return PushObject(name, arguments);
  }
  return Refuse(absl::StrCat(
      "calls ",
      Shown(absl::StrCat(Abseil(pickle_.Module(name).substr(0, 200)), ".", Abseil(pickle_.Name(name).substr(0, 200)))),
      ", which a checkpoint has no use for"));
}

bool PickleMachine::Build() {
  if (!Has(2)) return false;
  const Value state = Pop();
  const Value target = stack_.back();
  if (Is(target, Kind::kDict)) return true;  // an OrderedDict's attributes
  if (!Is(target, Kind::kObject)) return Bad("a state for what is no object");
  if (pickle_.Shape(target) != 0) return !(wants_one_by_one_ = true);  // a second state
  if (!Deepen(target, Depth(state) + 1)) return false;
  pickle_.heap_[target + 3] = state;
  return true;
}

bool PickleMachine::Put(uint64_t index) {
  if (!Has(1)) return false;
  // Writers number from 0; an index beyond the bytes that were read so far is there to make a reader take memory.
  if (static_cast<int64_t>(index) > op_ - begin_) return Bad(absl::StrCat("remembers a value as number ", index));
  while (memo_.size() <= index) memo_[memo_.Take(1)] = 0;
  if (memo_[index] == 0 && ++remembered_ > limits_.objects) {
    return Fail(absl::StatusCode::kResourceExhausted, absl::StrCat("remembers more than ", limits_.objects, " values"));
  }
  memo_[index] = stack_.back();
  return true;
}

bool PickleMachine::Get(uint64_t index) {
  if (index >= memo_.size() || memo_[index] == 0) return Bad(absl::StrCat("value ", index, " is not remembered"));
  if (memo_[index] == Pickle::kLost) return !(wants_one_by_one_ = true);
  stack_.push_back(memo_[index]);
  return true;
}

bool PickleMachine::Step() {
  op_ = at_;
  if (at_ == end_) return Bad("cut short");
  uint64_t number = 0;
  size_t first = 0;
  switch (static_cast<PickleOp>(*at_++)) {
    case PickleOp::kMark:
      if (static_cast<int64_t>(marks_.size()) >= limits_.depth) {
        return Fail(absl::StatusCode::kResourceExhausted, absl::StrCat("nested more than ", limits_.depth, " deep"));
      }
      marks_.push_back(fence_);
      fence_ = stack_.size();
      return true;
    case PickleOp::kPop:
      if (!Has(1)) return false;
      stack_.pop_back();
      return true;
    case PickleOp::kPopMark:
      if (!TakeMark(&first)) return false;
      stack_.resize(first);
      return true;
    case PickleOp::kDup:
      return Has(1) && Push(stack_.back());
    case PickleOp::kNone:
      return Push(Pickle::kNone);
    case PickleOp::kNewTrue:
      return Push(Pickle::kTrue);
    case PickleOp::kNewFalse:
      return Push(Pickle::kFalse);
    case PickleOp::kBinInt:
      return Operand<4>(&number) && PushInt(static_cast<int32_t>(number));
    case PickleOp::kBinInt1:
      return Operand<1>(&number) && PushInt(static_cast<int64_t>(number));
    case PickleOp::kBinInt2:
      return Operand<2>(&number) && PushInt(static_cast<int64_t>(number));
    case PickleOp::kLong1:
      return Operand<1>(&number) && PushLong(number);
    case PickleOp::kLong4:
      if (!Operand<4>(&number)) return false;
      return number >> 31 == 0 ? PushLong(number) : Bad("a negative length");
    case PickleOp::kBinFloat: {
      if (!Operand<8>(&number)) return false;
      const uint32_t node = Node(Kind::kFloat, 3);
      if (node == 0) return false;
      const uint64_t bits = __builtin_bswap64(number);
      pickle_.heap_[node + 1] = static_cast<uint32_t>(bits);
      pickle_.heap_[node + 2] = static_cast<uint32_t>(bits >> 32);
      return Push(node);
    }
    case PickleOp::kShortBinUnicode:
    case PickleOp::kShortBinString:
      return Operand<1>(&number) && PushText(Kind::kString, number);
    case PickleOp::kBinUnicode:
    case PickleOp::kBinString:
      return Operand<4>(&number) && PushText(Kind::kString, number);
    case PickleOp::kBinUnicode8:
      return Operand<8>(&number) && PushText(Kind::kString, number);
    case PickleOp::kShortBinBytes:
      return Operand<1>(&number) && PushText(Kind::kBytes, number);
    case PickleOp::kBinBytes:
      return Operand<4>(&number) && PushText(Kind::kBytes, number);
    case PickleOp::kBinBytes8:
      return Operand<8>(&number) && PushText(Kind::kBytes, number);
    case PickleOp::kEmptyTuple:
      return Push(Pickle::kEmptyTuple);
    case PickleOp::kTuple:
      return TakeMark(&first) && PushTuple(first);
    case PickleOp::kTuple1:
      return Has(1) && PushTuple(stack_.size() - 1);
    case PickleOp::kTuple2:
      return Has(2) && PushTuple(stack_.size() - 2);
    case PickleOp::kTuple3:
      return Has(3) && PushTuple(stack_.size() - 3);
    case PickleOp::kEmptyList:
      return PushContainer(Kind::kList);
    case PickleOp::kEmptyDict:
      return PushContainer(Kind::kDict);
    case PickleOp::kEmptySet:
      return PushContainer(Kind::kSet);
    case PickleOp::kAppend:
      return Has(2) && Extend(stack_.size() - 1, /*pairs=*/false);
    case PickleOp::kSetItem:
      return Has(3) && Extend(stack_.size() - 2, /*pairs=*/true);
    case PickleOp::kAppends:
    case PickleOp::kAddItems:
      return TakeMark(&first) && Extend(first, /*pairs=*/false);
    case PickleOp::kSetItems:
      return TakeMark(&first) && Extend(first, /*pairs=*/true);
    case PickleOp::kFrozenSet:
      // As a tuple: what is in it is all that anybody could want to know.
      return TakeMark(&first) && PushTuple(first);
    case PickleOp::kGlobal: {
      Value module = 0;
      Value name = 0;
      return ReadLine(&module) && ReadLine(&name) && PushName(module, name);
    }
    case PickleOp::kStackGlobal: {
      if (!Has(2)) return false;
      const Value name = Pop();
      const Value module = Pop();
      if (!Is(name, Kind::kString) || !Is(module, Kind::kString)) return Bad("a name that is no text");
      return PushName(module, name);
    }
    case PickleOp::kReduce:
      return Reduce();
    case PickleOp::kNewObj:
    case PickleOp::kNewObjEx: {
      const bool keywords = static_cast<PickleOp>(*op_) == PickleOp::kNewObjEx;
      if (!Has(keywords ? 3 : 2)) return false;
      if (keywords && !Is(Pop(), Kind::kDict)) return Bad("keyword arguments that are no dict");
      const Value arguments = Pop();
      const Value name = Pop();
      if (!Is(arguments, Kind::kTuple)) return Bad("arguments that are no tuple");
      if (!Is(name, Kind::kName)) return Refuse("makes an object of what is no name");
      return PushObject(name, arguments);
    }
    case PickleOp::kBuild:
      return Build();
    case PickleOp::kMemoize:
      return Put(static_cast<uint64_t>(remembered_));
    case PickleOp::kBinPut:
      return Operand<1>(&number) && Put(number);
    case PickleOp::kLongBinPut:
      return Operand<4>(&number) && Put(number);
    case PickleOp::kBinGet:
      if (ReadRecords()) return true;
      return Operand<1>(&number) && Get(number);
    case PickleOp::kLongBinGet:
      if (ReadRecords()) return true;
      return Operand<4>(&number) && Get(number);
    case PickleOp::kBinPersId: {
      if (!persistent_ids_) break;
      if (!Has(1)) return false;
      const Value id = Pop();
      const uint32_t node = Node(Kind::kPersistent, 3, Depth(id) + 1);
      if (node == 0) return false;
      pickle_.heap_[node + 1] = 0;
      pickle_.heap_[node + 2] = id;
      return Push(node);
    }
    case PickleOp::kFrame:
      if (!Operand<8>(&number)) return false;
      return number <= static_cast<uint64_t>(Left()) || Bad(absl::StrCat("a frame of ", number, " bytes, cut short"));
    case PickleOp::kProto:
      return Bad("a second beginning");
    case PickleOp::kStop:
      if (stack_.size() != 1 || !marks_.empty()) return Bad("the stack does not hold one value at the end");
      if (at_ != end_) return Bad(absl::StrCat(Left(), " bytes after the end"));
      pickle_.root_ = stack_.back();
      return false;
  }
  return Refuse(absl::StrCat("opcode ", NameOfRefused(*op_), " (", *op_, ") has no place in a checkpoint"));
}

absl::StatusOr<Pickle> PickleMachine::Run() {
  if (end_ - begin_ >= int64_t{Pickle::kSmall}) {
    return absl::ResourceExhaustedError(
        absl::StrCat("a pickle of ", end_ - begin_, " bytes; at most 2^31 are allowed"));
  }
  if (end_ - begin_ < 2 || static_cast<PickleOp>(begin_[0]) != PickleOp::kProto) {
    return absl::DataLossError("pickle, byte 0: this is no pickle of protocol 2 or later");
  }
  if (begin_[1] < 2 || begin_[1] > 5) {
    return absl::UnimplementedError(absl::StrCat("pickle, byte 1: protocol ", begin_[1], "; 2 to 5 are known"));
  }
  at_ += 2;
  // 0 is no value; the others have their fixed places.
  pickle_.heap_.Take(6);
  pickle_.heap_[0] = 0;
  pickle_.heap_[Pickle::kNone] = static_cast<uint32_t>(Kind::kNone);
  pickle_.heap_[Pickle::kFalse] = static_cast<uint32_t>(Kind::kBool);
  pickle_.heap_[Pickle::kTrue] = static_cast<uint32_t>(Kind::kBool);
  pickle_.heap_[Pickle::kEmptyTuple] = static_cast<uint32_t>(Kind::kTuple);
  pickle_.heap_[Pickle::kLost] = 0;
  while (Step()) {
  }
  if (!status_.ok()) return status_;
  return std::move(pickle_);
}

absl::StatusOr<Pickle> Pickle::Read(std::string_view bytes, const CatalogLimits& limits, bool persistent_ids, Way way) {
  {
    PickleMachine machine(bytes, limits, persistent_ids, way);
    absl::StatusOr<Pickle> pickle = machine.Run();
    if (!machine.wants_one_by_one()) return pickle;
  }
  return PickleMachine(bytes, limits, persistent_ids, Way::kOneByOne).Run();
}

}  // namespace reshard
