// SPDX-License-Identifier: Apache-2.0
#include "hvd/trace/escape.h"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include "tests/unit/trace/strict_json.h"

namespace hvd::trace {
namespace {

std::string Cut(std::string_view name, size_t capacity) {
  std::string out(capacity, '\0');
  out.resize(CutName(name, out.data(), capacity));
  return out;
}

TEST(Text, ANameThatFitsIsKept) {
  EXPECT_EQ(Cut("", 8), "");
  EXPECT_EQ(Cut("12345678", 8), "12345678");
}

TEST(Text, OfALongNameBothEndsAreKept) { EXPECT_EQ(Cut("optimizer/layer_12", 8), "opt~r_12"); }

TEST(Text, EscapesAreWhatJsonWants) {
  EXPECT_EQ(Escaped("a/b.c_1"), "a/b.c_1");
  EXPECT_EQ(Escaped("a\"b\\c"), "a\\\"b\\\\c");
  EXPECT_EQ(Escaped(std::string_view("\n\0\x7f", 3)), "\\u000a\\u0000\\u007f");
  EXPECT_EQ(Escaped("größe 重み 🙂"), "größe 重み 🙂");
}

TEST(Text, WhatIsNoUtf8IsReplaced) {
  EXPECT_EQ(Escaped("\xff"), "\\ufffd");
  EXPECT_EQ(Escaped("\xc3"), "\\ufffd");                        // cut short
  EXPECT_EQ(Escaped("\xc0\xaf"), "\\ufffd\\ufffd");             // overlong
  EXPECT_EQ(Escaped("\xed\xa0\x80"), "\\ufffd\\ufffd\\ufffd");  // a surrogate
  EXPECT_EQ(Escaped("\xf4\x90\x80\x80z"), "\\ufffd\\ufffd\\ufffd\\ufffdz");
  EXPECT_EQ(Escaped("a\x80z"), "a\\ufffdz");
}

TEST(Text, EveryNameBecomesAJsonString) {
  for (int first = 0; first < 256; ++first) {
    for (int second = 0; second < 256; ++second) {
      const char name[] = {'a', static_cast<char>(first), static_cast<char>(second), 'z'};
      EXPECT_TRUE(JsonReader::Parse("\"" + Escaped({name, 4}) + "\"")) << first << " " << second;
    }
  }
}

TEST(Text, LinesAreWrittenWholeThroughASmallBuffer) {
  const TempFolder folder;
  const int fd = ::open(folder.File("lines").c_str(), O_WRONLY | O_CREAT, 0600);
  char buffer[7];
  LineWriter out(fd, buffer, sizeof(buffer));
  std::string name;
  for (int i = 0; i < 50; ++i) name += "重";
  out.Open().Key("number").Number(-1234567890123).Key("name").String(name).Key("inner").Open();
  out.Key("a").Number(1).Close().Key("b").Number(2).Close().Text("\n");
  EXPECT_TRUE(out.Flush());
  ::close(fd);
  EXPECT_EQ(ReadFile(folder.File("lines")),
            "{\"number\":-1234567890123,\"name\":\"" + name + "\",\"inner\":{\"a\":1},\"b\":2}\n");
}

TEST(Text, AWriterSaysWhenItCannotWrite) {
  char buffer[64];
  LineWriter out(-1, buffer, sizeof(buffer));
  out.Text("lost");
  EXPECT_FALSE(out.Flush());
}

}  // namespace
}  // namespace hvd::trace
