#include "checkpoint/formats/pickle/plain_data.h"

#include <algorithm>
#include <cstddef>
#include <utility>
#include <vector>

#include "checkpoint/formats/pickle/writer.h"

namespace reshard::pickle {
namespace {

using Kind = Pickle::Kind;
using Value = Pickle::Value;

// What is still to be written, the next at the end: a value, or the end of a container.
struct Pending {
  Value value = 0;
  bool hashable = false;  // it must be: a key of a dict, a member of a set, or a part of one
  void (PickleWriter::*end)() = nullptr;
};

class PlainWriter {
 public:
  PlainWriter(const Pickle& pickle, size_t most_bytes) : pickle_(pickle), most_bytes_(most_bytes) {}

  std::optional<std::string> Write(Value root) {
    pending_.push_back({root, false, nullptr});
    while (!pending_.empty()) {
      const Pending next = pending_.back();
      pending_.pop_back();
      if (next.end != nullptr) {
        (out_.*next.end)();
      } else if (!WriteOne(next)) {
        return std::nullopt;
      }
      // Every value takes a byte at least.
      if (static_cast<size_t>(out_.bytes()) + pending_.size() > most_bytes_) return std::nullopt;
    }
    return std::move(out_).Finish();
  }

 private:
  bool WriteOne(const Pending& one) {
    const Value v = one.value;
    switch (pickle_.kind(v)) {
      case Kind::kNone:
        out_.None();
        return true;
      case Kind::kBool:
        out_.Bool(pickle_.IsTrue(v));
        return true;
      case Kind::kInt:
        out_.Int(*pickle_.Int(v));
        return true;
      case Kind::kFloat:
        out_.Float(*pickle_.Float(v));
        return true;
      case Kind::kString:
      case Kind::kBytes:
        return WriteText(v);
      case Kind::kTuple:
        out_.BeginTuple();
        return Descend(v, one.hashable, one.hashable, &PickleWriter::EndTuple);
      case Kind::kList:
        if (one.hashable) return false;
        out_.BeginList();
        return Descend(v, false, false, &PickleWriter::EndList);
      case Kind::kSet:
        if (one.hashable) return false;
        out_.BeginSet();
        return Descend(v, true, true, &PickleWriter::EndSet);
      case Kind::kDict:
        if (one.hashable) return false;
        out_.BeginDict();
        return Descend(v, true, false, &PickleWriter::EndDict);
      case Kind::kObject:
        return WriteCall(v, one.hashable);
      case Kind::kBigInt:
      case Kind::kName:
      case Kind::kPersistent:
        break;
    }
    return false;
  }

  // Sets and bytes as protocol 2 has them: set([...]), encode("...", "latin1").
  bool WriteCall(Value v, bool hashable) {
    if (pickle_.kind(pickle_.Class(v)) != Kind::kName || pickle_.HasItems(v) || pickle_.State(v)) return false;
    const absl::Span<const Value> given = pickle_.Tuple(pickle_.Arguments(v));
    const Known known = pickle_.known(pickle_.Class(v));
    if (known == Known::kSetOf && given.size() == 1 && !hashable &&
        (pickle_.kind(given[0]) == Kind::kList || pickle_.kind(given[0]) == Kind::kTuple)) {
      out_.BeginSet();
      return Descend(given[0], true, true, &PickleWriter::EndSet);
    }
    if (known != Known::kEncode || given.size() != 2 || pickle_.kind(given[0]) != Kind::kString ||
        !(pickle_.IsText(given[1], "latin1") || pickle_.IsText(given[1], "latin-1"))) {
      return false;
    }
    const std::optional<std::string> bytes = Latin1(pickle_.Text(given[0]));
    if (bytes) out_.Bytes(*bytes);
    return bytes.has_value();
  }

  // The characters of a text in UTF-8, a byte each; nothing where there are others than those of Latin-1.
  static std::optional<std::string> Latin1(std::string_view utf8) {
    std::string out;
    for (size_t i = 0; i < utf8.size(); ++i) {
      const auto first = static_cast<uint8_t>(utf8[i]);
      if (first < 0x80) {
        out.push_back(utf8[i]);
      } else if ((first == 0xC2 || first == 0xC3) && i + 1 < utf8.size()) {
        out.push_back(static_cast<char>((first & 0x03) << 6 | (static_cast<uint8_t>(utf8[++i]) & 0x3F)));
      } else {
        return std::nullopt;
      }
    }
    return out;
  }

  bool WriteText(Value v) {
    const std::string_view text = pickle_.Text(v);
    if (text.size() > most_bytes_) return false;
    if (pickle_.kind(v) == Kind::kString) {
      out_.Text(text);
    } else {
      out_.Bytes(text);
    }
    return true;
  }

  // Its members come next, and then its end. Keys of a dict are its first of each two.
  bool Descend(Value v, bool hashable_first, bool hashable_second, void (PickleWriter::*end)()) {
    pending_.push_back({0, false, end});
    const size_t first = pending_.size();
    const auto add = [&](Value member, bool hashable) {
      pending_.push_back({member, hashable, nullptr});
      return pending_.size() <= most_bytes_;
    };
    const bool all =
        pickle_.kind(v) == Kind::kDict
            ? pickle_.ForEachItem(
                  v, [&](Value key, Value value) { return add(key, hashable_first) && add(value, hashable_second); })
            : pickle_.ForEach(v, [&](Value member) { return add(member, hashable_first); });
    std::reverse(pending_.begin() + static_cast<std::ptrdiff_t>(first), pending_.end());
    return all;
  }

  const Pickle& pickle_;
  const size_t most_bytes_;
  PickleWriter out_;
  std::vector<Pending> pending_;
};

}  // namespace

std::optional<std::string> PlainData(const Pickle& pickle, Value value, size_t most_bytes) {
  return PlainWriter(pickle, most_bytes).Write(value);
}

}  // namespace reshard::pickle
