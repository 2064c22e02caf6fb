// Claims: nothing that printable() returns can move a cursor, change a terminal or reverse text;
// what is harmless stays as it is.
#include "properties/process/terminal.h"

#include <gtest/gtest.h>

namespace lockstep::properties {
namespace {

TEST(Terminal, HarmlessTextStaysAsItIs) {
  for (const char* const text : {"", "plain words, 100 %\n\tand a tab",
                                 "Grüße, 漢字, \xf0\x9f\x99\x82", "\\u001b, spelled out"})
    EXPECT_EQ(printable(text), text);
}

TEST(Terminal, EveryControlCharacterIsSpelledOut) {
  for (unsigned code = 0; code < 0x100; ++code) {
    const bool is_control = code < 0x20 || (code >= 0x7f && code < 0xa0);
    std::string text(1, static_cast<char>(code));
    if (code >= 0x80)  // in UTF-8
      text = {static_cast<char>(0xc0 | code >> 6), static_cast<char>(0x80 | (code & 0x3f))};
    const bool is_kept = !is_control || code == '\n' || code == '\t';
    EXPECT_EQ(printable(text) == text, is_kept) << code;
    EXPECT_EQ(printable_line(text) == text, !is_control) << code;
  }
  EXPECT_EQ(printable("\x1b]0;title\x07"), "\\u001b]0;title\\u0007");
  EXPECT_EQ(printable_line("a\nlockstep: ok\tb"), "a\\nlockstep: ok\\tb");
}

TEST(Terminal, BytesThatAreNoUtf8AreSpelledOut) {
  EXPECT_EQ(printable("\x9b"
                      "31m"),
            "\\x9b31m");                           // a control of eight bits
  EXPECT_EQ(printable("\xc0\x9b"), "\\xc0\\x9b");  // more bytes than are needed
  EXPECT_EQ(printable("\xed\xa0\x80"), "\\xed\\xa0\\x80");
  EXPECT_EQ(printable("\xf4\x90\x80\x80"), "\\xf4\\x90\\x80\\x80");
  EXPECT_EQ(printable("cut off: \xe6\xbc"), "cut off: \\xe6\\xbc");
}

TEST(Terminal, TextCannotBeReversedOrHidden) {
  EXPECT_EQ(printable("\xe2\x80\xae"
                      "drow"),
            "\\u202edrow");
  EXPECT_EQ(printable("\xe2\x81\xa6x\xe2\x81\xa9"), "\\u2066x\\u2069");
  EXPECT_EQ(printable("\xe2\x80\xa8"), "\\u2028");
  EXPECT_EQ(printable("\xf3\xa0\x81\x81"), "\\ue0041");
}

}  // namespace
}  // namespace lockstep::properties
