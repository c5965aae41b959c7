#include "checkpoint/formats/pickle/machine.h"

#include "absl/strings/str_cat.h"
#include "checkpoint/formats/pickle/opcodes.h"
#include "checkpoint/formats/pickle/pickle_machine.h"
#include "checkpoint/io/show.h"
#include "status/view.h"

namespace reshard::pickle {
namespace {

// An opcode with its operand, without a text or the digits of a number that follow.
constexpr int64_t kMostOpBytes = 9;

// Input: a view of bytes, or a file.
template <typename Input>
absl::StatusOr<Pickle> ReadFrom(const Input& input, const CatalogLimits& limits, PickleMachine::Terms terms) {
  {
    PickleMachine machine(PickleInput(input), limits, terms);
    absl::StatusOr<Pickle> pickle = machine.Run();
    if (!machine.wants_one_by_one()) return pickle;
  }
  terms.way = Pickle::Way::kOneByOne;
  return PickleMachine(PickleInput(input), limits, terms).Run();
}

}  // namespace

bool PickleMachine::Step() {
  op_ = at_;
  if (!Have(kMostOpBytes)) return false;
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
      // Kept as a tuple: its members are all that a reader could ask for.
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
      if (!Is(name, Kind::kString) || !Is(module, Kind::kString)) return Bad("a name that is not text");
      return PushName(module, name);
    }
    case PickleOp::kReduce:
      return Reduce();
    case PickleOp::kNewObj:
    case PickleOp::kNewObjEx: {
      const bool keywords = static_cast<PickleOp>(*op_) == PickleOp::kNewObjEx;
      if (!Has(keywords ? 3 : 2)) return false;
      if (keywords && !Is(Pop(), Kind::kDict)) return Bad("keyword arguments that are not a dict");
      const Value arguments = Pop();
      return MakeObject(Pop(), arguments);
    }
    case PickleOp::kObj: {  // Python 2, of classes of its first kind: the class, then its arguments
      if (!TakeMark(&first)) return false;
      if (stack_.size() == first) return Bad("an object without a class");
      if (!PushTuple(first + 1)) return false;
      const Value arguments = Pop();
      return MakeObject(Pop(), arguments);
    }
    case PickleOp::kInst: {  // the same, with the name of the class behind the opcode
      Value module = 0;
      Value name = 0;
      if (!TakeMark(&first) || !ReadLine(&module) || !ReadLine(&name) || !PushTuple(first)) return false;
      const Value arguments = Pop();
      return PushName(module, name) && MakeObject(Pop(), arguments);
    }
    case PickleOp::kInt:  // Python 2, of numbers beyond 32 bits
      return PushDecimal();
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
      return status_.ok() && Operand<1>(&number) && Get(number);
    case PickleOp::kLongBinGet:
      if (ReadRecords()) return true;
      return status_.ok() && Operand<4>(&number) && Get(number);
    case PickleOp::kBinPersId: {
      if (!terms_.persistent_ids) break;
      if (!Has(1)) return false;
      const Value id = Pop();
      const uint32_t node = Node(Kind::kPersistent, 3, Depth(id) + 1);
      if (node == 0) return false;
      pickle_.heap_[node + 1] = 0;
      pickle_.heap_[node + 2] = id;
      pickle_.persistent_ids_.push_back(node);
      // The first form of torch.save writes the class of a module with its source: ("module", class, file, source).
      const absl::Span<const Value> parts = Is(id, Kind::kTuple) ? pickle_.Tuple(id) : absl::Span<const Value>();
      const bool is_class = parts.size() == 4 && pickle_.IsText(parts[0], "module") && Is(parts[1], Kind::kName);
      return Push(is_class ? parts[1] : node);
    }
    case PickleOp::kByteArray8:
      return Operand<8>(&number) && PushText(Kind::kBytes, number);
    case PickleOp::kFrame:
      if (!Operand<8>(&number)) return false;
      return number <= static_cast<uint64_t>(Left()) || Bad(absl::StrCat("a frame of ", number, " bytes, cut short"));
    case PickleOp::kProto:
      return Bad("a second beginning");
    case PickleOp::kStop:
      if (stack_.size() != 1 || !marks_.empty()) return Bad("the stack does not hold one value at the end");
      if (!terms_.others_may_follow && Left() != 0) return Bad(absl::StrCat(Left(), " bytes after the end"));
      pickle_.root_ = stack_.back();
      pickle_.bytes_ = Offset(at_);
      return false;
  }
  return Refuse(absl::StrCat("opcode ", NameOfRefused(*op_), " (", *op_, ") has no place in a checkpoint"));
}

absl::StatusOr<Pickle> PickleMachine::Run() {
  if (input_.bytes() >= int64_t{Pickle::kSmall}) {
    return absl::ResourceExhaustedError(
        absl::StrCat("a pickle of ", input_.bytes(), " bytes; at most 2^31 are allowed"));
  }
  if (!Have(kMostOpBytes)) return status_;
  if (end_ - at_ < 2 || static_cast<PickleOp>(at_[0]) != PickleOp::kProto) {
    return absl::DataLossError("pickle, byte 0: this is not a pickle of protocol 2 or later");
  }
  if (at_[1] < 2 || at_[1] > 5) {
    return absl::UnimplementedError(absl::StrCat("pickle, byte 1: protocol ", at_[1], "; 2 to 5 are known"));
  }
  at_ += 2;
  // Index 0 means no value, and the values without content have fixed indices, so that they cost no nodes.
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
  return ReadFrom(bytes, limits, {.persistent_ids = persistent_ids, .way = way});
}

absl::StatusOr<Pickle> Pickle::Read(const io::ReadFile& file, const CatalogLimits& limits, bool persistent_ids,
                                    Way way) {
  return ReadFrom(file, limits, {.persistent_ids = persistent_ids, .way = way});
}

absl::StatusOr<Pickle> Pickle::ReadFirst(const io::ReadFile& file, const CatalogLimits& limits, bool persistent_ids) {
  return ReadFrom(file, limits, {.persistent_ids = persistent_ids, .others_may_follow = true});
}

}  // namespace reshard::pickle
