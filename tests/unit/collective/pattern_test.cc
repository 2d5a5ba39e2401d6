// SPDX-License-Identifier: Apache-2.0
#include <gtest/gtest.h>
#include <rapidcheck.h>
#include <rapidcheck/gtest.h>

#include <algorithm>
#include <bit>
#include <numeric>
#include <random>
#include <vector>

#include "hvd/collective/pattern/slices.h"
#include "hvd/collective/pattern/tree.h"

namespace hvd::collective::pattern {
namespace {

RC_GTEST_PROP(Slices, CoverTheRunInOrderAndBeginAtCacheLines, ()) {
  const auto count = *rc::gen::inRange<size_t>(0, 100'000);
  const size_t element = size_t{1} << *rc::gen::inRange(0, 4);
  const int parts = *rc::gen::inRange(1, 70);
  size_t at = 0;
  size_t largest = 0;
  for (int i = 0; i < parts; ++i) {
    const Range slice = Slice(count, element, parts, i);
    RC_ASSERT(slice.begin == at);
    RC_ASSERT(slice.end >= slice.begin);
    if (slice.size() > 0) RC_ASSERT(slice.begin * element % 64 == 0U);
    largest = std::max(largest, slice.size());
    at = slice.end;
  }
  RC_ASSERT(at == count);
  // Nobody has more than a fair share and one cache line.
  RC_ASSERT(largest <= count / parts + 1 + 64 / element);
}

RC_GTEST_PROP(Chunks, CoverTheBytesInOrderAndAreNeverEmpty, ()) {
  const auto bytes = *rc::gen::inRange<size_t>(0, 1 << 20);
  const auto chunk = *rc::gen::inRange<size_t>(64, 1 << 17);
  size_t at = 0;
  for (size_t i = 0; i < ChunkCount(bytes, chunk); ++i) {
    const Range range = Chunk(bytes, chunk, i);
    RC_ASSERT(range.begin == at);
    RC_ASSERT(range.size() > 0U && range.size() <= chunk);
    at = range.end;
  }
  RC_ASSERT(at == bytes);
}

RC_GTEST_PROP(BinomialTree, ReachesEverybodyOnceInLogarithmicallyManySteps, ()) {
  const int members = *rc::gen::inRange(1, 300);
  const int root = *rc::gen::inRange(0, members);
  std::vector<int> depth(members, -1);
  std::vector<int> reached{root};
  depth[root] = 0;
  RC_ASSERT(BinomialTree(members, root, root).parent == -1);
  for (size_t i = 0; i < reached.size(); ++i) {
    for (const int child : BinomialTree(members, root, reached[i]).children) {
      RC_ASSERT(depth[child] == -1);
      RC_ASSERT(BinomialTree(members, root, child).parent == reached[i]);
      depth[child] = depth[reached[i]] + 1;
      RC_ASSERT(depth[child] <= std::bit_width(static_cast<unsigned>(members - 1)));
      reached.push_back(child);
    }
  }
  RC_ASSERT(reached.size() == static_cast<size_t>(members));
}

RC_GTEST_PROP(HostTree, ReachesEverybodyOnceAndEveryHostByOneWay, ()) {
  const auto sizes = *rc::gen::nonEmpty(rc::gen::container<std::vector<int>>(rc::gen::inRange(1, 9)));
  std::vector<int> host_of;
  for (size_t host = 0; host < sizes.size(); ++host) host_of.insert(host_of.end(), sizes[host], static_cast<int>(host));
  const int members = static_cast<int>(host_of.size());
  // Members are dealt out among hosts in any way.
  std::vector<int> order(members);
  std::iota(order.begin(), order.end(), 0);
  std::shuffle(order.begin(), order.end(), std::mt19937(*rc::gen::arbitrary<unsigned>()));
  std::vector<int> host_by_member(members);
  for (int i = 0; i < members; ++i) host_by_member[order[i]] = host_of[i];
  const int root = *rc::gen::inRange(0, members);
  std::vector<int> reached{root};
  std::vector<int> entered(sizes.size(), 0);
  entered[host_by_member[root]] = 1;
  RC_ASSERT(HostTree(order, sizes, root, root).parent == -1);
  for (size_t i = 0; i < reached.size(); ++i) {
    for (const int child : HostTree(order, sizes, root, reached[i]).children) {
      RC_ASSERT(HostTree(order, sizes, root, child).parent == reached[i]);
      if (host_by_member[child] != host_by_member[reached[i]]) ++entered[host_by_member[child]];
      reached.push_back(child);
      RC_ASSERT(reached.size() <= static_cast<size_t>(members));
    }
  }
  RC_ASSERT(reached.size() == static_cast<size_t>(members));
  RC_ASSERT(entered == std::vector<int>(sizes.size(), 1));
}

}  // namespace
}  // namespace hvd::collective::pattern
