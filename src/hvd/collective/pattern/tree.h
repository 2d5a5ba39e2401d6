// SPDX-License-Identifier: Apache-2.0
#pragma once
// Binomial tree over `members` with member `root` at its top: parents and children, no I/O. Depth ceil(log2 members).

#include <vector>

namespace hvd::collective::pattern {

struct TreePlace {
  int parent = -1;  // -1 for the root
  std::vector<int> children;
};

inline TreePlace BinomialTree(int members, int root, int me) {
  const int relative = (me - root + members) % members;
  const auto absolute = [&](int r) { return (r + root) % members; };
  TreePlace place;
  int bit = 1;
  for (; bit < members; bit <<= 1) {
    if (relative & bit) {
      place.parent = absolute(relative - bit);
      break;
    }
  }
  // The largest subtrees first: they have the longest way to go.
  for (bit >>= 1; bit > 0; bit >>= 1) {
    if (relative + bit < members) place.children.push_back(absolute(relative + bit));
  }
  return place;
}

}  // namespace hvd::collective::pattern
