// SPDX-License-Identifier: Apache-2.0
#include "hvd/collective/window/marks.h"

#include <gtest/gtest.h>

#include <array>
#include <vector>

namespace hvd::collective::window {
namespace {

constexpr uint64_t kPosition = 37;

struct alignas(128) Block {
  std::array<std::byte, 128> bytes;
};

// Two members; this one is 0, and the other has put a mark.
class MarksTest : public ::testing::Test {
 protected:
  MarksTest() : memory_(MarkStream::Bytes(2, 256) / sizeof(Block)), stream_(memory_[0].bytes.data(), 2, 0, 256) {
    Header& header = theirs();
    const uint64_t mark = MarkStream::Mark(3, kPosition);
    stream_.counters(1, kPosition).echo = mark;
    header.uid = 5;
    header.first_dim = 7;
    header.location = DataLocation::kDirect;
    header.in_offset = 4096;
    header.out_offset = 8192;
    header.address = 0;
    header.check = header.CheckFor(mark);
    header.mark = mark;
  }

  Header& theirs() { return stream_.header(1, kPosition); }

  std::vector<Block> memory_;
  MarkStream stream_;
};

TEST_F(MarksTest, NothingIsDamaged) {
  EXPECT_TRUE(theirs().IsIntact());
  EXPECT_EQ(FirstDamaged(stream_, kPosition), -1);
  EXPECT_EQ(FirstDamaged(stream_, kPosition + 1), -1) << "no mark was put there yet";
}

TEST_F(MarksTest, EveryBitOfAHeaderCounts) {
  auto* const words = reinterpret_cast<uint64_t*>(&theirs());
  for (size_t word = 0; word < sizeof(Header) / sizeof(uint64_t); ++word) {
    for (int bit = 0; bit < 64; ++bit) {
      words[word] ^= uint64_t{1} << bit;
      EXPECT_FALSE(theirs().IsIntact()) << "word " << word << ", bit " << bit;
      EXPECT_EQ(FirstDamaged(stream_, kPosition), word == 0 ? 1 : -1);
      words[word] ^= uint64_t{1} << bit;
    }
  }
  EXPECT_TRUE(theirs().IsIntact());
}

TEST_F(MarksTest, AMarkThatIsJustBeingPutIsNotDamaged) {
  // As Publish does it: no mark, the next echo, the next mark.
  const uint64_t next = MarkStream::Mark(3, kPosition + MarkStream::kSlots);
  theirs().mark = 0;
  EXPECT_EQ(FirstDamaged(stream_, kPosition), -1);
  stream_.counters(1, kPosition).echo = next;
  EXPECT_EQ(FirstDamaged(stream_, kPosition), -1);
  theirs().mark = next;
  EXPECT_EQ(FirstDamaged(stream_, kPosition), -1);
}

TEST_F(MarksTest, AMarkIsReadOnce) {
  theirs().location = DataLocation::kInline;
  theirs().check = theirs().CheckFor(theirs().mark);
  Place places[2];
  PositionView view;
  view.stream = &stream_;
  view.position = kPosition;
  view.places = places;
  EXPECT_FALSE(ReadPlace(view, 1, {.in = 257}, &places[1])) << "more than there is room for";
  ASSERT_TRUE(ReadPlace(view, 1, {.in = 256}, &places[1]));
  theirs().location = DataLocation::kDirect;
  theirs().in_offset = ~uint64_t{0};
  EXPECT_EQ(view.Source(1, 5), stream_.payload(1, kPosition));
  EXPECT_FALSE(ReadPlace(view, 1, {}, &places[1])) << "the check word is of what was there before";
}

TEST_F(MarksTest, CountersBeyondTheLastChunkAreNotBelieved) {
  PositionView view;
  view.stream = &stream_;
  view.position = kPosition;
  view.most_chunks = 3;
  std::atomic<uint64_t>& in = stream_.counters(1, kPosition).in;
  in = MarkStream::Count(kPosition - MarkStream::kSlots, 7);
  EXPECT_EQ(view.In(1), 0u) << "an earlier position's";
  in = MarkStream::Count(kPosition, 3);
  EXPECT_EQ(view.In(1), 3u);
  EXPECT_EQ(view.FirstDamagedCounter(), -1);
  for (const uint64_t value : {MarkStream::Count(kPosition, 4), MarkStream::Count(kPosition + 1, 0), ~uint64_t{0}}) {
    in = value;
    EXPECT_EQ(view.In(1), 0u) << value;
    EXPECT_EQ(view.FirstDamagedCounter(), 1) << value;
  }
}

}  // namespace
}  // namespace hvd::collective::window
