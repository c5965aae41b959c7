// Pickles put together by hand, right or wrong: every function returns the opcodes of one value, and a pickle is
// Pickled(value). Nothing of the library's own writer is used.
//
//   Pickled(Dict({{Str("step"), Num(7)}}))
#ifndef RESHARD_TESTS_CHECKPOINT_FORMATS_PICKLE_BYTES_H_
#define RESHARD_TESTS_CHECKPOINT_FORMATS_PICKLE_BYTES_H_

#include <cstdint>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace reshard::testing::pickled {

// The low `bytes` bytes of a number, the lowest first.
inline std::string Little(uint64_t number, int bytes) {
  std::string out;
  for (int i = 0; i < bytes; ++i) out.push_back(static_cast<char>(i < 8 ? number >> (8 * i) & 0xff : 0));
  return out;
}

inline std::string Repeat(std::string_view text, int64_t times) {
  std::string out;
  out.reserve(text.size() * static_cast<size_t>(times));
  for (int64_t i = 0; i < times; ++i) out += text;
  return out;
}

inline std::string Pickled(const std::string& value, int protocol = 2) {
  return std::string("\x80", 1) + static_cast<char>(protocol) + value + ".";
}

inline std::string Str(std::string_view text) { return "X" + Little(text.size(), 4) + std::string(text); }
inline std::string Num(int64_t number) { return "\x8a\x08" + Little(static_cast<uint64_t>(number), 8); }
inline std::string None() { return "N"; }
inline std::string Global(std::string_view module, std::string_view name) {
  return "c" + std::string(module) + "\n" + std::string(name) + "\n";
}
inline std::string Put(uint64_t memo) { return "r" + Little(memo, 4); }  // after a value: remembers it
inline std::string Get(uint64_t memo) { return "j" + Little(memo, 4); }

inline std::string Joined(const std::vector<std::string>& values) {
  std::string out;
  for (const std::string& value : values) out += value;
  return out;
}
inline std::string Tuple(const std::vector<std::string>& values) { return "(" + Joined(values) + "t"; }
inline std::string List(const std::vector<std::string>& values) { return "](" + Joined(values) + "e"; }
inline std::string Dict(const std::vector<std::pair<std::string, std::string>>& items) {
  std::string out = "}(";
  for (const auto& [key, value] : items) out += key + value;
  return out + "u";
}
inline std::string Ints(const std::vector<int64_t>& numbers) {
  std::vector<std::string> values;
  for (const int64_t number : numbers) values.push_back(Num(number));
  return Tuple(values);
}
inline std::string Call(const std::string& callee, const std::vector<std::string>& arguments) {
  return callee + Tuple(arguments) + "R";
}
// An object made without its constructor, with a state.
inline std::string Object(const std::string& name, const std::string& state) {
  return name + std::string(")\x81", 2) + state + "b";
}
inline std::string Object(const std::string& name) { return name + std::string(")\x81", 2); }

}  // namespace reshard::testing::pickled

#endif  // RESHARD_TESTS_CHECKPOINT_FORMATS_PICKLE_BYTES_H_
