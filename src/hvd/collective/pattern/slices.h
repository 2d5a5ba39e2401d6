// SPDX-License-Identifier: Apache-2.0
#pragma once
// Pure arithmetic: which elements of a run belong to whom. No I/O.

#include <algorithm>
#include <cstddef>

namespace hvd::collective::pattern {

struct Range {
  size_t begin = 0;
  size_t end = 0;
  size_t size() const { return end - begin; }
};

// What lies in both; empty if nothing does.
inline Range Common(Range a, Range b) {
  const size_t begin = std::max(a.begin, b.begin);
  return {begin, std::max(begin, std::min(a.end, b.end))};
}

// Part `index` of `parts` of a run of `count` elements of `element` bytes. Parts are equal but for the last ones, begin
// at multiples of 64 bytes (no cache line has two owners if the run itself is aligned), and cover the run exactly.
inline Range Slice(size_t count, size_t element, int parts, int index) {
  const size_t align = std::max<size_t>(1, 64 / element);
  const size_t each = ((count + parts - 1) / parts + align - 1) / align * align;
  const size_t begin = std::min(count, each * static_cast<size_t>(index));
  return {begin, std::min(count, begin + each)};
}

// Number of chunks of at most `chunk` bytes in `bytes`; 0 for nothing.
inline size_t ChunkCount(size_t bytes, size_t chunk) { return (bytes + chunk - 1) / chunk; }

// Chunk `index` of `bytes`.
inline Range Chunk(size_t bytes, size_t chunk, size_t index) {
  const size_t begin = std::min(bytes, chunk * index);
  return {begin, std::min(bytes, begin + chunk)};
}

}  // namespace hvd::collective::pattern
