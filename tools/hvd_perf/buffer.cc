// SPDX-License-Identifier: Apache-2.0
#include "hvd_perf/buffer.h"

#include <sys/mman.h>

#include <algorithm>
#include <cstdlib>
#include <cstring>
#include <string>

#include "hvd_perf/options.h"
#include "hvd_perf/process.h"

namespace hvd_perf {
namespace {

constexpr uint64_t kPage = 4096;

}  // namespace

Buffer::Buffer(uint64_t bytes, bool arena, int offset) : bytes_(bytes), arena_(arena) {
  const bool placed = !arena && offset != kAsMalloc;
  block_ = arena ? hvd_alloc(std::max<uint64_t>(bytes, 1)) : std::malloc(bytes + (placed ? 2 * kPage : 1));
  if (block_ == nullptr) Die("no memory for a buffer of " + std::to_string(bytes) + " bytes: " + hvd_last_error());
  data_ = block_;
  if (placed) {
    const uint64_t begin = reinterpret_cast<uintptr_t>(block_);
    data_ = static_cast<char*>(block_) + (kPage - begin % kPage) + offset;
  }
  std::memset(data_, 0x11, bytes);  // an all-zero page could be the kernel's shared one
  std::memset(data_, 0, bytes);
}

Buffer::~Buffer() {
  if (arena_) {
    hvd_free(block_);
  } else {
    std::free(block_);
  }
}

void Buffer::Clear() { std::memset(data_, 0, bytes_); }

void Buffer::DropPages() {
  const uint64_t begin = reinterpret_cast<uintptr_t>(data_);
  const uint64_t first = (begin + kPage - 1) / kPage * kPage;
  const uint64_t end = (begin + bytes_) / kPage * kPage;
  if (first < end) madvise(reinterpret_cast<void*>(first), end - first, MADV_DONTNEED);
}

}  // namespace hvd_perf
