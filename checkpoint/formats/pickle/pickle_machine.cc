// What opcodes do with values. Which opcode does what: machine.cc.
#include "checkpoint/formats/pickle/pickle_machine.h"

#include <string>

#include "absl/strings/numbers.h"
#include "checkpoint/formats/pickle/opcodes.h"

namespace reshard::pickle {

bool PickleMachine::ReadOn(int64_t count) {
  const int64_t past_op = at_ - op_;
  const absl::Status read = input_.Advance(op_, past_op + count);
  op_ = input_.begin();
  at_ = op_ + past_op;
  end_ = input_.end();
  if (read.ok()) return true;
  status_ = read;
  return false;
}

bool PickleMachine::PushInt(int64_t number) {
  if (Pickle::IsSmallInt(number)) return Push(Pickle::SmallValue(number));
  const uint32_t node = Node(Kind::kInt, 3);
  if (node == 0) return false;
  pickle_.heap_[node + 1] = static_cast<uint32_t>(number);
  pickle_.heap_[node + 2] = static_cast<uint32_t>(static_cast<uint64_t>(number) >> 32);
  return Push(node);
}

bool PickleMachine::PushDecimal() {
  Value line = 0;
  if (!ReadLine(&line)) return false;
  const std::string_view text = pickle_.Text(line);
  if (text == "00" || text == "01") return Push(text == "01" ? Pickle::kTrue : Pickle::kFalse);
  int64_t number = 0;
  if (!absl::SimpleAtoi(status::View(text), &number)) return Bad("a number of other characters than digits");
  return PushInt(number);
}

bool PickleMachine::PushLong(uint64_t length) {
  if (static_cast<uint64_t>(Left()) < length) return Bad("cut short");
  if (!Have(static_cast<int64_t>(length))) return false;
  const uint8_t* const digits = at_;
  at_ += length;
  // Bytes that only repeat the sign do not count: writers may pad numbers.
  while (length > 8 && digits[length - 1] == (digits[length - 2] >> 7 != 0 ? 0xff : 0)) --length;
  if (length > 8) return Push(TextNode(Kind::kBigInt, digits, length));
  uint64_t number = length > 0 && digits[length - 1] >> 7 != 0 ? ~uint64_t{0} : 0;
  std::memcpy(&number, digits, length);
  return PushInt(static_cast<int64_t>(number));
}

PickleMachine::Value PickleMachine::TextNode(Kind kind, const uint8_t* text, size_t length) {
  const uint32_t node = Node(kind, 3);
  if (node == 0) return 0;
  pickle_.heap_[node + 1] = static_cast<uint32_t>(pickle_.texts_.size());
  pickle_.heap_[node + 2] = static_cast<uint32_t>(length);
  pickle_.texts_.append(reinterpret_cast<const char*>(text), length);
  return node;
}

bool PickleMachine::PushText(Kind kind, uint64_t length) {
  if (static_cast<uint64_t>(Left()) < length) return Bad(absl::StrCat("a text of ", length, " bytes, cut short"));
  if (static_cast<int64_t>(length) > limits_.string_bytes) {
    return Fail(absl::StatusCode::kResourceExhausted,
                absl::StrCat("a text of ", length, " bytes; at most ", limits_.string_bytes, " are allowed"));
  }
  if (!Have(static_cast<int64_t>(length))) return false;
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
  Value target = stack_[first - 1];
  if (pickle_.kind(target) == Kind::kObject) {  // of a class that is a container
    const uint32_t depth = DepthAround(first) + 1;
    if (!Deepen(target, depth)) return false;
    Value& contents = pickle_.contents_[target];
    if (contents == 0) {
      if (!PushContainer(pairs ? Kind::kDict : Kind::kList)) return false;
      contents = Pop();
    }
    target = contents;
  }
  const Kind kind = pickle_.kind(target);
  const bool fits = pairs ? kind == Kind::kDict : kind == Kind::kList || kind == Kind::kSet;
  if (!fits) return Bad("items for what does not hold such");
  if (pairs && count % 2 != 0) return Bad("a key without a value");
  // Items are kept as a list of segments, one per opcode, so that adding to a container never moves what it has.
  if (count > 0) {
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
  const uint8_t* newline = std::find(at_, end_, '\n');
  while (newline == end_ && input_.more()) {
    const int64_t seen = end_ - at_;
    if (!Have(2 * seen + 1)) return false;
    newline = std::find(at_ + seen, end_, '\n');
  }
  if (newline == end_) return Bad("cut short");
  const uint8_t* const line = at_;
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
  bool any = false;
  // A record puts its parts into the memo one after the other behind everything else, as MEMOIZE does. That is the same
  // only if the memo has no unused numbers.
  while (memo_.size() == static_cast<size_t>(remembered_)) {
    const PickleRecords::Room room = {limits_.objects - objects_, limits_.objects - remembered_, most_depth_,
                                      limits_.depth - static_cast<int64_t>(marks_.size())};
    at_ = op_;
    if (!Have(PickleRecords::kMostBytes)) return false;
    const PickleRecords::Record record = records_.Read(op_, end_, room, &pickle_, &memo_);
    if (record.value == 0) break;
    op_ = record.end;
    objects_ += record.objects;
    remembered_ = static_cast<int64_t>(memo_.size());
    stack_.push_back(record.value);
    any = true;
  }
  at_ = any ? op_ : op_ + 1;
  return any;
}

bool PickleMachine::Reduce() {
  if (!Has(2)) return false;
  const Value arguments = Pop();
  const Value name = Pop();
  if (!Is(arguments, Kind::kTuple) || !Is(name, Kind::kName)) return MakeObject(name, arguments);
  // Containers of Python become the plain ones.
  const absl::Span<const Value> given = pickle_.Tuple(arguments);
  switch (pickle_.known(name)) {
    case Known::kSize:
      if (given.size() != 1 || !Is(given[0], Kind::kTuple)) return Bad("torch.Size of what is not a tuple");
      return Push(given[0]);
    case Known::kCounter:
      if (given.size() == 1 && Is(given[0], Kind::kDict)) return Push(given[0]);
      return given.empty() ? PushContainer(Kind::kDict) : PushObject(name, arguments);
    case Known::kOrderedDict:
      // Python 2 gives it a list of pairs, which stays an object: copied, few bytes could ask for many.
      return given.empty() ? PushContainer(Kind::kDict) : PushObject(name, arguments);
    case Known::kDefaultDict:  // of what makes its values, which nobody asks for
      return PushContainer(Kind::kDict);
    case Known::kDeque:  // (), or an empty container and the most that it holds; its members follow
      return PushContainer(Kind::kList);
    case Known::kRestoreTag:
    case Known::kBuildList:
      return given.empty() ? Bad("a list of nothing") : Push(given[0]);
    default:
      return PushObject(name, arguments);
  }
}

bool PickleMachine::MakeObject(Value callable, Value arguments) {
  if (!Is(arguments, Kind::kTuple)) return Bad("arguments that are not a tuple");
  const Value name = Is(callable, Kind::kName) ? callable : NameOf(callable);
  return name != 0 && PushObject(name, arguments);
}

PickleMachine::Value PickleMachine::NameOf(Value callable) {
  if (!Is(callable, Kind::kObject)) {
    Refuse("calls what cannot be called");
    return 0;
  }
  const Value inner = pickle_.Class(callable);
  if (const auto known = called_.find(inner); known != called_.end()) return known->second;
  constexpr size_t kLongest = 200;
  const std::string text = absl::StrCat(status::View(pickle_.Name(inner).substr(0, kLongest)), "(...)");
  const Value name = TextNode(Kind::kString, reinterpret_cast<const uint8_t*>(text.data()), text.size());
  if (name == 0 || !PushName(pickle_.heap_[inner + 1], name)) return 0;
  const Value made = Pop();
  called_.emplace(inner, made);
  called_.emplace(made, made);
  return made;
}

bool PickleMachine::Build() {
  if (!Has(2)) return false;
  const Value state = Pop();
  const Value target = stack_.back();
  if (Is(target, Kind::kDict)) return true;  // the attributes of an OrderedDict, which mean nothing here
  if (!Is(target, Kind::kObject)) return Bad("a state for what is not an object");
  if (pickle_.Shape(target) != 0) return !(wants_one_by_one_ = true);  // a second state, for which a record has no room
  if (!Deepen(target, Depth(state) + 1)) return false;
  pickle_.heap_[target + 3] = state;
  return true;
}

bool PickleMachine::Put(uint64_t index) {
  if (!Has(1)) return false;
  // Writers number values from 0, and each takes at least a byte. A larger number than bytes were read so far can only
  // be meant to make a reader allocate memory.
  if (static_cast<int64_t>(index) > Offset(op_)) return Bad(absl::StrCat("remembers a value as number ", index));
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

}  // namespace reshard::pickle
