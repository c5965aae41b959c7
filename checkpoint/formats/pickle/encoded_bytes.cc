#include "checkpoint/formats/pickle/encoded_bytes.h"

#include <cstdint>
#include <string_view>

#include "absl/types/span.h"

namespace reshard::pickle {
namespace {

using Kind = Pickle::Kind;

// The characters of a text in UTF-8, a byte each; nothing where there are others than those of Latin-1.
std::optional<std::string> Latin1(std::string_view utf8) {
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

bool IsLatin1(const Pickle& pickle, Pickle::Value encoding) {
  return pickle.IsText(encoding, "latin1") || pickle.IsText(encoding, "latin-1");
}

}  // namespace

std::optional<std::string> BytesOf(const Pickle& pickle, Pickle::Value value, size_t most) {
  if (pickle.IsObjectOf(value, Known::kByteArray)) {  // of bytes, or of a text and its encoding, or of nothing
    const absl::Span<const Pickle::Value> given = pickle.Tuple(pickle.Arguments(value));
    if (given.empty()) return std::string();
    if (given.size() == 1) value = given[0];
  }
  if (pickle.kind(value) == Kind::kBytes) {
    return pickle.Text(value).size() <= most ? std::optional(std::string(pickle.Text(value))) : std::nullopt;
  }
  if (!pickle.IsObjectOf(value, Known::kEncode) && !pickle.IsObjectOf(value, Known::kByteArray)) return std::nullopt;
  const absl::Span<const Pickle::Value> given = pickle.Tuple(pickle.Arguments(value));
  if (given.size() != 2 || pickle.kind(given[0]) != Kind::kString || !IsLatin1(pickle, given[1])) return std::nullopt;
  const std::string_view text = pickle.Text(given[0]);
  // A character takes two bytes of UTF-8 at most.
  return text.size() / 2 <= most ? Latin1(text) : std::nullopt;
}

}  // namespace reshard::pickle
