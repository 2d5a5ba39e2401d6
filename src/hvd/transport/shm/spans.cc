// SPDX-License-Identifier: Apache-2.0
#include "hvd/transport/shm/spans.h"

#include "hvd/transport/shm/memory.h"

namespace hvd::transport::shm {

Spans::Spans(uint64_t bytes) {
  if (bytes > 0) Insert(0, bytes);
}

void Spans::Insert(uint64_t offset, uint64_t bytes) {
  by_offset_.emplace(offset, bytes);
  by_bytes_.emplace(bytes, offset);
}

void Spans::Erase(std::map<uint64_t, uint64_t>::iterator span) {
  by_bytes_.erase({span->second, span->first});
  by_offset_.erase(span);
}

int64_t Spans::Take(uint64_t bytes, uint64_t align) {
  for (auto fit = by_bytes_.lower_bound({bytes, 0}); fit != by_bytes_.end(); ++fit) {
    const auto [size, offset] = *fit;
    const uint64_t start = RoundUp(offset, align);
    const uint64_t skipped = start - offset;
    if (size < skipped + bytes) continue;
    Erase(by_offset_.find(offset));
    if (skipped > 0) Insert(offset, skipped);
    if (size > skipped + bytes) Insert(start + bytes, size - skipped - bytes);
    return static_cast<int64_t>(start);
  }
  return -1;
}

void Spans::Give(uint64_t offset, uint64_t bytes) {
  auto next = by_offset_.lower_bound(offset);
  if (next != by_offset_.end() && next->first == offset + bytes) {
    bytes += next->second;
    const auto merged = next++;
    Erase(merged);
  }
  if (next != by_offset_.begin()) {
    const auto before = std::prev(next);
    if (before->first + before->second == offset) {
      offset = before->first;
      bytes += before->second;
      Erase(before);
    }
  }
  Insert(offset, bytes);
}

}  // namespace hvd::transport::shm
