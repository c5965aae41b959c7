// Writes pickles of protocol 2, which every Python since 2.3 reads, with the few kinds of values that checkpoints
// contain.
//
//   PickleWriter out;
//   out.BeginDict();
//   out.Text("step"); out.Int(7); out.EndDict();
//   std::string bytes = std::move(out).Finish();
//
// Each call writes a value, or opens a container, which the call named beside it closes. Globals and words are written
// once and remembered after that.
#ifndef RESHARD_CHECKPOINT_FORMATS_PICKLE_WRITER_H_
#define RESHARD_CHECKPOINT_FORMATS_PICKLE_WRITER_H_

#include <cstdint>
#include <string>
#include <string_view>

#include "absl/container/flat_hash_map.h"

namespace reshard::pickle {

class PickleWriter {
 public:
  PickleWriter();

  void None();
  void Bool(bool value);
  void Int(int64_t value);
  // A number of any size in two's complement, the lowest byte first; of fewer than 256 bytes.
  void Long(std::string_view bytes);
  void Float(double value);
  // The bytes of a Python str in UTF-8, lone surrogates included.
  void Text(std::string_view utf8);
  // The same for a text that comes often: written once and remembered after that. Readers then know that it is the same
  // without comparing it.
  void Word(std::string_view utf8);
  // Python's bytes. These are of protocol 3, and sets of 4; Python 3 reads both whatever protocol the pickle declares.
  void Bytes(std::string_view bytes);
  // The value of a complete pickle that this class has written; it must have no globals and no words.
  void ValueOf(std::string_view pickle);
  // The class or function `name` of `module`; neither has a line break.
  void Global(std::string_view module, std::string_view name);

  void EmptyTuple();
  void BeginTuple();
  void EndTuple();
  void WrapInTuple();  // with a value written before: a tuple of it alone
  void BeginList();
  void EndList();
  void BeginSet();
  void EndSet();
  void BeginDict();  // then pairs of a key and a value
  void EndDict();

  // With the callable and a tuple written before: callable(*tuple).
  void Reduce();
  // With a class and a tuple written before: an object of the class, made without its constructor's code.
  void NewObject();
  // With an object and its state written before: the object, with that state.
  void Build();
  // With a tuple written before: what the reader knows under that name.
  void PersistentId();

  // Remembers the value written last under a number of the caller's choice, or writes the one remembered. True when it
  // was there.
  bool Recall(int64_t slot);
  void Remember(int64_t slot);

  int64_t bytes() const { return static_cast<int64_t>(out_.size()); }
  std::string Finish() &&;

 private:
  void Op(char op) { out_.push_back(op); }
  template <typename T>
  void Raw(T value);
  void Put(int64_t memo);
  void Get(int64_t memo);

  std::string out_;
  int64_t memos_ = 0;
  absl::flat_hash_map<std::string, int64_t> globals_;  // "module\nname" -> memo
  absl::flat_hash_map<std::string, int64_t> words_;    // text -> memo
  absl::flat_hash_map<int64_t, int64_t> slots_;        // slot -> memo
};

}  // namespace reshard::pickle

#endif  // RESHARD_CHECKPOINT_FORMATS_PICKLE_WRITER_H_
