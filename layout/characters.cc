#include "reshard/layout/characters.h"

#include <algorithm>
#include <iterator>

namespace reshard {
namespace {

// Characters of Unicode's categories Cc, Cf, Zl and Zp, and others that are drawn as nothing.
struct Span {
  uint32_t first, last;
};
constexpr Span kInvisible[] = {
    {0x0, 0x1f},        {0x7f, 0x9f},       {0xad, 0xad},        {0x34f, 0x34f},     {0x600, 0x605},
    {0x61c, 0x61c},     {0x6dd, 0x6dd},     {0x70f, 0x70f},      {0x890, 0x891},     {0x8e2, 0x8e2},
    {0x115f, 0x1160},   {0x17b4, 0x17b5},   {0x180b, 0x180f},    {0x200b, 0x200f},   {0x2028, 0x202e},
    {0x2060, 0x206f},   {0x3164, 0x3164},   {0xfe00, 0xfe0f},    {0xfeff, 0xfeff},   {0xffa0, 0xffa0},
    {0xfff0, 0xfffb},   {0xfffe, 0xffff},   {0x110bd, 0x110bd},  {0x110cd, 0x110cd}, {0x13430, 0x1343f},
    {0x1bca0, 0x1bca3}, {0x1d173, 0x1d17a}, {0xe0000, 0x10ffff},
};

void AppendVisible(std::string_view text, const Character& character, std::string* out) {
  if (character.is_valid && IsVisible(character.code)) {
    *out += text.substr(0, character.bytes);
  } else {
    *out += '?';
  }
}

}  // namespace

Character FirstCharacter(std::string_view text) {
  const auto byte = [&](size_t i) { return static_cast<unsigned char>(text[i]); };
  if (byte(0) < 0x80) return {byte(0), 1, true};
  const size_t bytes = byte(0) >= 0xf0 ? 4 : byte(0) >= 0xe0 ? 3 : 2;
  constexpr uint32_t kLeast[] = {0, 0, 0x80, 0x800, 0x10000};
  if (byte(0) < 0xc0 || byte(0) > 0xf7 || text.size() < bytes) return {};
  uint32_t code = byte(0) & (0xffu >> (bytes + 1));
  for (size_t i = 1; i < bytes; ++i) {
    if ((byte(i) & 0xc0) != 0x80) return {};
    code = code << 6 | (byte(i) & 0x3f);
  }
  const bool is_surrogate = code >= 0xd800 && code < 0xe000;
  if (code < kLeast[bytes] || code > 0x10ffff || is_surrogate) return {};
  return {code, bytes, true};
}

bool IsVisible(uint32_t code) {
  return std::none_of(std::begin(kInvisible), std::end(kInvisible),
                      [&](const Span& span) { return code >= span.first && code <= span.last; });
}

std::string OneLine(std::string_view text, size_t most) {
  std::string line;
  for (size_t at = 0; at < text.size();) {
    const Character next = FirstCharacter(text.substr(at));
    if (at + next.bytes > most) return line + "...";
    AppendVisible(text.substr(at), next, &line);
    at += next.bytes;
  }
  return line;
}

std::string VisibleLines(std::string_view text) {
  std::string lines;
  for (size_t at = 0; at < text.size();) {
    const Character next = FirstCharacter(text.substr(at));
    if (text[at] == '\n') {
      lines += '\n';
    } else {
      AppendVisible(text.substr(at), next, &lines);
    }
    at += next.bytes;
  }
  return lines;
}

}  // namespace reshard
