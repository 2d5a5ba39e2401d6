// SPDX-License-Identifier: Apache-2.0
#include <fcntl.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <signal.h>
#include <unistd.h>

#include <random>
#include <thread>

#include "hvd/launch/output/label.h"
#include "hvd/launch/output/lines.h"
#include "hvd/launch/output/sink.h"
#include "hvd/launch/output/tail.h"
#include "hvd/net/fd.h"

namespace hvd::launch {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;

class Lines : public testing::Test {
 protected:
  void Feed(std::string_view bytes, int second = 1) { cutter_.Feed(bytes, Time(std::chrono::seconds(second))); }

  std::vector<std::string> lines_;
  LineCutter cutter_{[this](std::string_view line) { lines_.emplace_back(line); }};
};

TEST_F(Lines, AreWholeHoweverTheyCome) {
  for (const char byte : std::string("one\n\ntw\xc3\xb6\nrest")) Feed({&byte, 1});
  EXPECT_THAT(lines_, ElementsAre("one", "", "tw\xc3\xb6"));
  cutter_.End();
  EXPECT_EQ(lines_.back(), "rest");
}

TEST_F(Lines, OfAProgressBarOnlyTheLastStateIsShown) {
  Feed("\r 1%\r 2%\r100%\nnext\r\n");
  EXPECT_THAT(lines_, ElementsAre("100%", "next"));
}

TEST_F(Lines, AProgressBarThatEndsInAReturnIsShownToo) {
  Feed("10%\r20%\r");
  cutter_.End();
  EXPECT_THAT(lines_, ElementsAre("20%"));
}

TEST_F(Lines, ALongProgressBarShowsUpNowAndThen) {
  Feed("1%\r", 1);
  Feed("2%\r", 2);
  Feed("3%\r", 7);
  Feed("4%\r", 8);
  EXPECT_THAT(lines_, ElementsAre("3%"));
  Feed("5%\n", 9);
  EXPECT_THAT(lines_, ElementsAre("3%", "5%"));
}

TEST_F(Lines, ThatNeverEndAreCutBetweenCharacters) {
  std::string endless;
  while (endless.size() < 3 * LineCutter::kLongest) endless += "\xe2\x82\xac";
  Feed(endless);
  cutter_.End();
  std::string together;
  for (const std::string& line : lines_) {
    EXPECT_LE(line.size(), LineCutter::kLongest);
    EXPECT_EQ(line.size() % 3, 0U);
    together += line;
  }
  EXPECT_EQ(together, endless);
}

TEST_F(Lines, DoNotDependOnThePiecesTheyComeIn) {
  std::mt19937 random(20261115);
  for (int round = 0; round < 200; ++round) {
    std::string text;
    for (unsigned i = random() % 60; i > 0; --i) text += std::string("ab\r\n\xc3\xb6\r\r\n\n").substr(random() % 10, 3);
    if (round % 20 == 0) text += std::string(LineCutter::kLongest + random() % 100, 'x') + "\n";
    Feed(text);
    cutter_.End();
    const std::vector<std::string> whole = std::exchange(lines_, {});
    for (size_t at = 0; at < text.size();) {
      const size_t size = 1 + random() % (round % 20 == 0 ? 5000 : 7);
      Feed(std::string_view(text).substr(at, size));
      at += size;
    }
    cutter_.End();
    ASSERT_EQ(std::exchange(lines_, {}), whole) << "round " << round;
  }
}

const Slot kSlot{.host = "node1", .rank = 3, .local_rank = 1};

TEST(Labels, AreUpstreamsUnlessTheUserWantsOthers) {
  EXPECT_EQ(Label(*MakeLabelStyle({}, false), kSlot, 9, "stdout").Text({}), "[3]<stdout>:");
  EXPECT_EQ(Label(*MakeLabelStyle("{host}:{rank}", false), kSlot, 9, "stderr").Text({}), "node1:3 | ");
  EXPECT_EQ(Label(*MakeLabelStyle("{local_rank} {pid} {stream}", false), kSlot, 9, "stderr").Text({}), "1 9 stderr | ");
  EXPECT_EQ(Label(*MakeLabelStyle("", false), kSlot, 9, "stdout").Text({}), "");
  EXPECT_THAT(Label(*MakeLabelStyle({}, true), kSlot, 9, "stdout").Text({}), testing::EndsWith("[3]<stdout>:"));
  EXPECT_THAT(Label(*MakeLabelStyle({}, true), kSlot, 9, "stdout").Text({}),
              testing::MatchesRegex("[0-9]{4}-[0-9]{2}-[0-9]{2} [0-9:]{8}[.]000\\[3]<stdout>:"));
}

TEST(Labels, ATimeStandsApart) {
  EXPECT_THAT(Label(*MakeLabelStyle("{rank}", true), kSlot, 9, "stdout").Text({}), testing::EndsWith("0 3 | "));
  EXPECT_THAT(Label(*MakeLabelStyle("", true), kSlot, 9, "stdout").Text({}), testing::EndsWith("0 "));
}

TEST(Labels, AWrongNameIsRefused) {
  EXPECT_THAT(MakeLabelStyle("{hots}", false).error().message, HasSubstr("did you mean host?"));
  EXPECT_FALSE(MakeLabelStyle("{rank", false));
}

TEST(Labels, ARankKeepsItsColor) {
  LabelStyle style = *MakeLabelStyle({}, false);
  style.color = true;
  EXPECT_EQ(Label(style, kSlot, 9, "stdout").Text({}), "\033[35m[3]<stdout>:\033[0m");
}

TEST(Tails, ShowTheWholeTraceback) {
  Tail tail;
  tail.Add("before");
  tail.Add("Traceback (most recent call last):");
  for (int i = 0; i < 30; ++i) tail.Add("  frame");
  tail.Add("ValueError: x");
  EXPECT_EQ(tail.Last(20).size(), 32U);
  EXPECT_EQ(tail.Last(20).front(), "Traceback (most recent call last):");
}

TEST(Tails, AreBounded) {
  Tail tail;
  for (size_t i = 0; i < 3 * Tail::kMostLines; ++i) tail.Add(std::string(5000, 'x'));
  EXPECT_EQ(tail.Last(1000000).size(), Tail::kMostLines);
  EXPECT_EQ(tail.Last(1).front().size(), Tail::kMostLineBytes);
}

class Sinks : public testing::Test {
 protected:
  void SetUp() override {
    int ends[2];
    ASSERT_EQ(pipe2(ends, O_CLOEXEC), 0);
    in_.Reset(ends[0]);
    out_.Reset(ends[1]);
  }
  std::string ReadAll() {
    std::string text;
    char buffer[4096];
    for (ssize_t count; (count = read(in_.get(), buffer, sizeof buffer)) > 0;) text.append(buffer, count);
    return text;
  }

  net::Fd in_, out_;
};

TEST_F(Sinks, NobodyWaitsForASlowReader) {
  constexpr size_t kMost = 1 << 20;
  Sink sink(out_.get(), kMost);
  const std::string line = std::string(999, 'x') + "\n";
  for (int i = 0; i < 5000; ++i) sink.Write(line);  // five times what it keeps; nobody reads
  std::thread reader;
  std::string text;
  reader = std::thread([&] { text = ReadAll(); });
  EXPECT_TRUE(sink.Flush(std::chrono::seconds(60)));
  out_.Reset();
  reader.join();
  EXPECT_THAT(text.substr(text.size() - 200), HasSubstr("lines were dropped here"));
  EXPECT_LT(text.size(), kMost + (128 << 10) + 200);
  // Whole lines only.
  EXPECT_EQ(text.find(line), 0U);
}

TEST_F(Sinks, AFullDiskIsKnown) {
  const net::Fd full(::open("/dev/full", O_WRONLY | O_CLOEXEC));
  Sink sink(full.get());
  for (int i = 0; i < 3; ++i) sink.Write("line\n");
  EXPECT_TRUE(sink.Flush(std::chrono::seconds(60)));
  EXPECT_EQ(sink.failure(), ENOSPC);
}

TEST_F(Sinks, AReaderThatWentAwayIsNoError) {
  signal(SIGPIPE, SIG_IGN);
  Sink sink(out_.get());
  in_.Reset();
  for (int i = 0; i < 100; ++i) sink.Write("line\n");
  EXPECT_TRUE(sink.Flush(std::chrono::seconds(60)));
  EXPECT_EQ(sink.failure(), 0);
}

}  // namespace
}  // namespace hvd::launch
