// SPDX-License-Identifier: Apache-2.0
#include "hvd/engine/buffers_in_use.h"

#include <gtest/gtest.h>

#include <deque>
#include <random>
#include <vector>

#include "hvd/engine/operation.h"

namespace hvd::engine {
namespace {

struct Range {
  size_t begin, bytes;
  bool writes;
  bool Together(const Range& other) const {
    return !(writes || other.writes) || begin >= other.begin + other.bytes || other.begin >= begin + bytes;
  }
};

const void* At(size_t offset) { return reinterpret_cast<const void*>(0x10000 + offset); }

// Against a list that is looked through from the begin to the end.
TEST(BuffersInUse, FindsExactlyWhatIsInTheWay) {
  std::mt19937 random(1);
  const auto below = [&](size_t most) { return std::uniform_int_distribution<size_t>(0, most - 1)(random); };
  std::deque<Operation> operations(40);
  std::vector<std::vector<Range>> held(operations.size());
  BuffersInUse buffers;
  int refused = 0;
  for (int turn = 0; turn < 20'000; ++turn) {
    const size_t which = below(operations.size());
    if (!held[which].empty()) {
      buffers.Remove(&operations[which]);
      held[which].clear();
      continue;
    }
    for (const bool writes : {true, false}) {
      const Range wanted = {below(1000), below(10) == 0 ? below(400) : below(20), writes};
      bool expected = true;
      for (size_t i = 0; i < held.size(); ++i) {
        for (const Range& other : held[i]) expected = expected && wanted.Together(other);
      }
      expected = expected || wanted.bytes == 0;
      const auto* use = buffers.InTheWayOf(At(wanted.begin), wanted.bytes, writes);
      ASSERT_EQ(use == nullptr, expected);
      refused += use != nullptr;
      if (use != nullptr || wanted.bytes == 0) continue;
      buffers.Add(&operations[which], At(wanted.begin), wanted.bytes, writes);
      held[which].push_back(wanted);
    }
  }
  EXPECT_GT(refused, 1000);
}

TEST(BuffersInUse, NothingTakesNoMemory) {
  Operation first, second;
  BuffersInUse buffers;
  buffers.Add(&first, nullptr, 8, true);
  buffers.Add(&first, At(0), 0, false);
  EXPECT_EQ(buffers.InTheWayOf(At(0), 8, true), nullptr);
  EXPECT_EQ(buffers.InTheWayOf(nullptr, 8, true), nullptr);
  buffers.Remove(&first);
  buffers.Remove(&second);
}

TEST(BuffersInUse, SaysWhoIsInTheWay) {
  Operation writer, reader;
  BuffersInUse buffers;
  buffers.Add(&writer, At(64), 64, true);
  buffers.Add(&reader, At(0), 64, false);
  EXPECT_EQ(buffers.InTheWayOf(At(127), 1, false)->op, &writer);
  EXPECT_EQ(buffers.InTheWayOf(At(63), 1, true)->op, &reader);
  EXPECT_EQ(buffers.InTheWayOf(At(63), 1, false), nullptr);
  buffers.Remove(&reader);
  EXPECT_EQ(buffers.InTheWayOf(At(63), 1, true), nullptr);
}

}  // namespace
}  // namespace hvd::engine
