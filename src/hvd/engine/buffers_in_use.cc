// SPDX-License-Identifier: Apache-2.0
#include "hvd/engine/buffers_in_use.h"

#include <algorithm>
#include <iterator>
#include <utility>

#include "hvd/engine/operation.h"

namespace hvd::engine {

const BuffersInUse::Use* BuffersInUse::InTheWayOf(const void* begin, size_t bytes, bool writes) const {
  if (bytes == 0 || begin == nullptr) return nullptr;
  const auto from = reinterpret_cast<uintptr_t>(begin);
  const uintptr_t end = from + bytes;
  const auto after = written_.lower_bound(end);
  if (after != written_.begin()) {
    const Use& last = std::prev(after)->second;
    if (last.end > from) return &last;
  }
  if (!writes) return nullptr;
  for (auto at = read_.lower_bound(from - std::min(from, longest_read_)); at != read_.end() && at->first < end; ++at) {
    if (at->second.end > from) return &at->second;
  }
  return nullptr;
}

void BuffersInUse::Add(Operation* op, const void* begin, size_t bytes, bool writes) {
  if (bytes == 0 || begin == nullptr) return;
  const auto from = reinterpret_cast<uintptr_t>(begin);
  const Use use = {from, from + bytes, writes, op};
  if (writes) {
    written_.emplace(from, use);
    op->writes_from = from;
    return;
  }
  longest_read_ = std::max<uintptr_t>(read_.empty() ? 0 : longest_read_, bytes);
  read_.emplace(from, use);
  op->reads_from = from;
}

void BuffersInUse::Remove(Operation* op) {
  if (const uintptr_t from = std::exchange(op->writes_from, 0); from != 0) written_.erase(from);
  if (const uintptr_t from = std::exchange(op->reads_from, 0); from != 0) {
    auto at = read_.lower_bound(from);
    while (at->second.op != op) ++at;
    read_.erase(at);
  }
}

}  // namespace hvd::engine
