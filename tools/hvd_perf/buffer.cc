// SPDX-License-Identifier: Apache-2.0
#include "hvd_perf/buffer.h"

#include <algorithm>
#include <cstdlib>
#include <cstring>
#include <string>

#include "hvd_perf/process.h"

namespace hvd_perf {
namespace {

constexpr uint64_t kHugePage = 2u << 20;

}  // namespace

Buffer::Buffer(uint64_t bytes, bool arena) : bytes_(bytes), arena_(arena) {
  const uint64_t rounded = std::max(kHugePage, (bytes + kHugePage - 1) / kHugePage * kHugePage);
  data_ = arena ? hvd_alloc(std::max<uint64_t>(bytes, 1)) : std::aligned_alloc(kHugePage, rounded);
  if (data_ == nullptr) Die("no memory for a buffer of " + std::to_string(bytes) + " bytes: " + hvd_last_error());
  std::memset(data_, 0x11, bytes);  // an all-zero page could be the kernel's shared one
  std::memset(data_, 0, bytes);
}

Buffer::~Buffer() {
  if (arena_) {
    hvd_free(data_);
  } else {
    std::free(data_);
  }
}

void Buffer::Clear() { std::memset(data_, 0, bytes_); }

}  // namespace hvd_perf
