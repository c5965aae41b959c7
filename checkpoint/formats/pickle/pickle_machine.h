// The stack machine behind Pickle::Read: opcodes build nodes in a heap of words, and nothing of what a pickle names is
// ever called.
#ifndef RESHARD_CHECKPOINT_FORMATS_PICKLE_PICKLE_MACHINE_H_
#define RESHARD_CHECKPOINT_FORMATS_PICKLE_PICKLE_MACHINE_H_

#include <algorithm>
#include <cstdint>
#include <cstring>
#include <string_view>
#include <utility>
#include <vector>

#include "absl/container/flat_hash_map.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/str_cat.h"
#include "checkpoint/formats/pickle/heap.h"
#include "checkpoint/formats/pickle/input.h"
#include "checkpoint/formats/pickle/machine.h"
#include "checkpoint/formats/pickle/records.h"
#include "status/view.h"

namespace reshard::pickle {

// State: the bytes read so far, the stack with its marks, the memo, and the graph built from them. Invariant: every
// value on the stack is a node of the graph, no deeper than the limit; once an error is recorded nothing more is read.
class PickleMachine {
 public:
  struct Terms {
    bool persistent_ids = false;     // BINPERSID is allowed
    bool others_may_follow = false;  // there may be bytes behind the end of the pickle
    Pickle::Way way = Pickle::Way::kRecords;
  };

  PickleMachine(PickleInput input, const CatalogLimits& limits, const Terms& terms)
      : limits_(limits),
        terms_(terms),
        most_depth_(static_cast<uint32_t>(std::clamp<int64_t>(limits.depth, 0, 254))),
        input_(std::move(input)),
        at_(input_.begin()),
        op_(at_),
        end_(input_.end()),
        records_allowed_(terms.way == Pickle::Way::kRecords),
        pickle_(input_.bytes()),
        memo_(static_cast<size_t>(input_.bytes()) / 6 + 8) {}

  absl::StatusOr<Pickle> Run();
  // Whether Run gave up because the pickle asks for a part of a record, which records do not keep. Then the whole
  // pickle has to be read opcode by opcode.
  bool wants_one_by_one() const { return wants_one_by_one_; }

 private:
  using Value = Pickle::Value;
  using Kind = Pickle::Kind;

  // Runs the opcode at at_. False at the end, and when status_ says why not.
  bool Step();

  // Records an error, and returns false. Out of line, so that the loop over opcodes stays small.
  [[gnu::noinline, gnu::cold]] bool Fail(absl::StatusCode code, std::string_view message) {
    status_ = absl::Status(code, absl::StrCat("pickle, byte ", Offset(op_), ": ", status::View(message)));
    return false;
  }
  bool Bad(std::string_view message) { return Fail(absl::StatusCode::kDataLoss, message); }
  bool Refuse(std::string_view message) { return Fail(absl::StatusCode::kInvalidArgument, message); }

  int64_t Offset(const uint8_t* place) const { return input_.offset() + (place - input_.begin()); }
  int64_t Left() const { return input_.bytes() - Offset(at_); }
  // Makes the `count` bytes from at_ on readable, or all that are left. False, with an error recorded, when the file
  // cannot be read. op_ stays readable.
  bool Have(int64_t count) { return end_ - at_ >= count || !input_.more() || ReadOn(count); }
  [[gnu::noinline]] bool ReadOn(int64_t count);
  // Reads the next kBytes bytes as a little-endian number; false, with an error recorded, if there are fewer.
  template <size_t kBytes>
  bool Operand(uint64_t* number) {
    if (Left() < static_cast<int64_t>(kBytes)) return Bad("cut short");
    *number = 0;
    std::memcpy(number, at_, kBytes);
    at_ += kBytes;
    return true;
  }

  // The index of a new node; 0, with an error recorded, if there are too many. The depth of every value is kept with
  // it, so that nesting is checked while the graph is built, without walking it.
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
  // Drops the last mark; *first is where the values above it begin.
  bool TakeMark(size_t* first) {
    if (marks_.empty()) return Bad("no mark");
    *first = fence_;
    fence_ = marks_.back();
    marks_.pop_back();
    return true;
  }
  bool Is(Value v, Kind kind) const { return pickle_.kind(v) == kind; }

  bool PushInt(int64_t number);
  // Pushes the number of the line at at_, which is in decimal digits; 00 and 01 are bools.
  bool PushDecimal();
  bool PushLong(uint64_t length);
  bool PushText(Kind kind, uint64_t length);
  Value TextNode(Kind kind, const uint8_t* text, size_t length);
  bool PushTuple(size_t first);
  bool PushContainer(Kind kind);
  // Moves the values from `first` on, all `kind`'s members, into the container before them.
  bool Extend(size_t first, bool pairs);
  bool ReadLine(Value* text);
  bool PushName(Value module, Value name);
  // Reads records, from op_ on, for as long as there are any. False if there is none.
  bool ReadRecords();
  bool PushObject(Value name, Value arguments);
  // Pushes an object of what `callable` is named.
  bool MakeObject(Value callable, Value arguments);
  // The name of the class of what calling a value that is not a name makes: C(...) for an object of C or of C(...). 0,
  // with an error recorded, for plain data, which cannot be called.
  Value NameOf(Value callable);
  bool Reduce();
  bool Build();
  bool Put(uint64_t index);
  bool Get(uint64_t index);

  const CatalogLimits& limits_;
  const Terms terms_;
  const uint32_t most_depth_;
  PickleInput input_;
  const uint8_t* at_;
  const uint8_t* op_;   // the opcode being run, for error messages and limits
  const uint8_t* end_;  // of what can be read
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
  absl::flat_hash_map<Value, Value> called_;  // by C, and by C(...): C(...)
  absl::Status status_;
};

}  // namespace reshard::pickle

#endif  // RESHARD_CHECKPOINT_FORMATS_PICKLE_PICKLE_MACHINE_H_
