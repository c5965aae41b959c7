#include "checkpoint/formats/pickle/writer.h"

#include <cstring>
#include <limits>
#include <utility>

namespace reshard::pickle {

namespace {

constexpr std::string_view kHead("\x80\x02", 2);

}  // namespace

PickleWriter::PickleWriter() : out_(kHead) {}

// Pickles are little-endian, as are the machines that this library runs on.
template <typename T>
void PickleWriter::Raw(T value) {
  char bytes[sizeof(T)];
  std::memcpy(bytes, &value, sizeof(T));
  out_.append(bytes, sizeof(T));
}

void PickleWriter::Put(int64_t memo) {
  if (memo < 256) {
    Op('q');
    Raw(static_cast<uint8_t>(memo));
  } else {
    Op('r');
    Raw(static_cast<uint32_t>(memo));
  }
}

void PickleWriter::Get(int64_t memo) {
  if (memo < 256) {
    Op('h');
    Raw(static_cast<uint8_t>(memo));
  } else {
    Op('j');
    Raw(static_cast<uint32_t>(memo));
  }
}

void PickleWriter::None() { Op('N'); }
void PickleWriter::Bool(bool value) { Op(value ? '\x88' : '\x89'); }

void PickleWriter::Int(int64_t value) {
  if (value >= 0 && value < 256) {
    Op('K');
    Raw(static_cast<uint8_t>(value));
  } else if (value >= 0 && value < 65536) {
    Op('M');
    Raw(static_cast<uint16_t>(value));
  } else if (value >= std::numeric_limits<int32_t>::min() && value <= std::numeric_limits<int32_t>::max()) {
    Op('J');
    Raw(static_cast<int32_t>(value));
  } else {
    Op('\x8a');
    Raw(uint8_t{8});
    Raw(value);
  }
}

void PickleWriter::Long(std::string_view bytes) {
  Op('\x8a');
  Raw(static_cast<uint8_t>(bytes.size()));
  out_.append(bytes);
}

void PickleWriter::Float(double value) {
  uint64_t bits = 0;
  std::memcpy(&bits, &value, sizeof bits);
  Op('G');
  Raw(__builtin_bswap64(bits));  // the only big-endian operand that pickles have
}

void PickleWriter::Text(std::string_view utf8) {
  Op('X');
  Raw(static_cast<uint32_t>(utf8.size()));
  out_.append(utf8);
}

void PickleWriter::Bytes(std::string_view bytes) {
  Op('B');
  Raw(static_cast<uint32_t>(bytes.size()));
  out_.append(bytes);
}

void PickleWriter::ValueOf(std::string_view pickle) {
  out_.append(pickle.substr(kHead.size(), pickle.size() - kHead.size() - 1));
}

void PickleWriter::Word(std::string_view utf8) {
  const auto [known, fresh] = words_.emplace(utf8, memos_);
  if (!fresh) return Get(known->second);
  Text(utf8);
  Put(memos_++);
}

void PickleWriter::Global(std::string_view module, std::string_view name) {
  std::string key(module);
  key.push_back('\n');
  key.append(name);
  const auto [known, fresh] = globals_.emplace(std::move(key), memos_);
  if (!fresh) return Get(known->second);
  Op('c');
  out_.append(known->first);
  out_.push_back('\n');
  Put(memos_++);
}

void PickleWriter::EmptyTuple() { Op(')'); }
void PickleWriter::BeginTuple() { Op('('); }
void PickleWriter::EndTuple() { Op('t'); }

void PickleWriter::WrapInTuple() { Op('\x85'); }

void PickleWriter::BeginList() {
  Op(']');
  Op('(');
}
void PickleWriter::EndList() { Op('e'); }

void PickleWriter::BeginSet() {
  Op('\x8f');
  Op('(');
}
void PickleWriter::EndSet() { Op('\x90'); }

void PickleWriter::BeginDict() {
  Op('}');
  Op('(');
}
void PickleWriter::EndDict() { Op('u'); }

void PickleWriter::Reduce() { Op('R'); }
void PickleWriter::NewObject() { Op('\x81'); }
void PickleWriter::Build() { Op('b'); }
void PickleWriter::PersistentId() { Op('Q'); }

bool PickleWriter::Recall(int64_t slot) {
  const auto known = slots_.find(slot);
  if (known == slots_.end()) return false;
  Get(known->second);
  return true;
}

void PickleWriter::Remember(int64_t slot) {
  slots_[slot] = memos_;
  Put(memos_++);
}

std::string PickleWriter::Finish() && {
  Op('.');
  return std::move(out_);
}

}  // namespace reshard::pickle
