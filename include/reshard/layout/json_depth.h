// Whether a text of JSON is a tower of brackets, which would exhaust the stack of whoever copies or prints it.
#ifndef RESHARD_LAYOUT_JSON_DEPTH_H_
#define RESHARD_LAYOUT_JSON_DEPTH_H_

#include <cstddef>
#include <string_view>

namespace reshard {

// More than 64 objects and lists inside each other. The text need not be JSON.
inline bool NestsTooDeep(std::string_view text) {
  constexpr int kMostLevels = 64;
  int level = 0;
  bool quoted = false;
  for (size_t i = 0; i < text.size(); ++i) {
    const char c = text[i];
    if (quoted) {
      if (c == '\\') ++i;
      if (c == '"') quoted = false;
      continue;
    }
    quoted = c == '"';
    if (c == '[' || c == '{') ++level;
    if (c == ']' || c == '}') --level;
    if (level > kMostLevels) return true;
  }
  return false;
}

}  // namespace reshard

#endif  // RESHARD_LAYOUT_JSON_DEPTH_H_
