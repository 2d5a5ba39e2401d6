// SPDX-License-Identifier: Apache-2.0
#pragma once
// Trees: parents and children, no I/O.

#include <algorithm>
#include <span>
#include <vector>

namespace hvd::collective::pattern {

struct TreeNode {
  int parent = -1;  // -1 for the root
  std::vector<int> children;
};

// Binomial tree over `members` with member `root` at its top. Depth ceil(log2 members).
inline TreeNode BinomialTree(int members, int root, int me) {
  const int relative = (me - root + members) % members;
  const auto absolute = [&](int r) { return (r + root) % members; };
  TreeNode node;
  int bit = 1;
  for (; bit < members; bit <<= 1) {
    if (relative & bit) {
      node.parent = absolute(relative - bit);
      break;
    }
  }
  // The largest subtrees first: they have the longest way to go.
  for (bit >>= 1; bit > 0; bit >>= 1) {
    if (relative + bit < members) node.children.push_back(absolute(relative + bit));
  }
  return node;
}

// A tree that enters every host once: binomial over the hosts' heads (the root, and the first member of every other
// host), and binomial from each head over its host. `members` lists those of one host after those of another, and
// `host_sizes` how many each has.
inline TreeNode HostTree(std::span<const int> members, std::span<const int> host_sizes, int root, int me) {
  std::vector<int> heads;
  std::span<const int> mine;
  int root_host = 0;
  int my_host = 0;
  for (const int size : host_sizes) {
    const auto host = members.first(size);
    members = members.subspan(size);
    const bool has_root = std::ranges::find(host, root) != host.end();
    if (has_root) root_host = static_cast<int>(heads.size());
    if (std::ranges::find(host, me) != host.end()) {
      my_host = static_cast<int>(heads.size());
      mine = host;
    }
    heads.push_back(has_root ? root : host.front());
  }
  const auto index = [&](int member) { return static_cast<int>(std::ranges::find(mine, member) - mine.begin()); };
  const int head = heads[my_host];
  const TreeNode here = BinomialTree(static_cast<int>(mine.size()), index(head), index(me));
  TreeNode node;
  if (me == head) {
    // What is farther away goes first.
    const TreeNode among = BinomialTree(static_cast<int>(heads.size()), root_host, my_host);
    if (among.parent >= 0) node.parent = heads[among.parent];
    for (const int host : among.children) node.children.push_back(heads[host]);
  } else {
    node.parent = mine[here.parent];
  }
  for (const int child : here.children) node.children.push_back(mine[child]);
  return node;
}

}  // namespace hvd::collective::pattern
