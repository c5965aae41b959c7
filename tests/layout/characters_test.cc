// Which characters of untrusted text are shown, and as what.
#include "reshard/layout/characters.h"

#include <string>

#include "tests/catch.h"

namespace reshard::layout {

TEST_CASE("text of any language is shown as it is") {
  for (const char* text : {"plain \"text\" ~",
                           "Gr\xc3\xb6\xc3\x9f"
                           "e",
                           "\xe6\xa8\xa1\xe5\x9e\x8b", "\xd9\x85\xd8\xb1", "\xf0\x9f\xa6\x99"}) {
    CHECK(OneLine(text, 100) == text);
    CHECK(VisibleLines(text) == text);
  }
}

TEST_CASE("what commands a terminal, turns the writing around or is not UTF-8 is shown as ?") {
  // Controls (C0, DEL, C1), bidirectional controls, characters without width, tags, and a byte order mark.
  for (const char* text : {"\x1b", "\x07", "\x7f", "\xc2\x9b", "\xe2\x80\xae", "\xe2\x81\xa6", "\xd8\x9c",
                           "\xe2\x80\x8b", "\xe2\x80\xa8", "\xef\xbb\xbf", "\xf3\xa0\x80\x81"}) {
    INFO(text);
    CHECK(OneLine(std::string("a") + text + "b", 100) == "a?b");
    CHECK(VisibleLines(std::string("a") + text + "b") == "a?b");
  }
  // Bytes that are none, forms that are too long, surrogates, what is cut off, and beyond the last character.
  CHECK(OneLine("\xff", 9) == "?");
  CHECK(OneLine("\xc0\xaf", 9) == "??");
  CHECK(OneLine("\xe0\x80\xaf", 9) == "???");
  CHECK(OneLine("\xed\xa0\x80", 9) == "???");
  CHECK(OneLine("\xe6\xa8", 9) == "??");
  CHECK(OneLine("\xf4\x90\x80\x80", 9) == "????");
  CHECK(OneLine("a\nb", 9) == "a?b");
  CHECK(VisibleLines("a\nb\r") == "a\nb?");
}

TEST_CASE("a long text ends behind a whole character") {
  CHECK(OneLine("abc", 3) == "abc");
  CHECK(OneLine("abcd", 3) == "abc...");
  CHECK(OneLine("ab\xc3\xb6", 3) == "ab...");
  CHECK(OneLine("ab\xc3\xb6", 4) == "ab\xc3\xb6");
  CHECK(OneLine("", 0).empty());
}

}  // namespace reshard::layout
