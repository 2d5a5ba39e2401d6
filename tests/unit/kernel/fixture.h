// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <gtest/gtest.h>

#include <span>
#include <string>

#include "hvd/kernel/dispatch.h"
#include "hvd/kernel/kernel.h"
#include "tests/unit/kernel/reference.h"

namespace hvd::kernel {

using reference::Buffer;

inline constexpr ReduceOp kOps[] = {ReduceOp::kAverage, ReduceOp::kSum, ReduceOp::kMin, ReduceOp::kMax,
                                    ReduceOp::kProduct};

// Every test of this fixture is deterministic: `random` starts from a seed that is printed with each failure.
class KernelTest : public testing::Test {
 protected:
  ~KernelTest() override { ForceTable(nullptr); }

  struct Sources {
    std::vector<Buffer> buffers;
    std::vector<const void*> pointers;
  };
  // `shift` bytes are put before the elements, to make them unaligned.
  Sources MakeSources(DType type, size_t sources, size_t count, size_t shift = 0) {
    Sources result;
    for (size_t k = 0; k < sources; ++k) {
      Buffer buffer = reference::RandomElements(type, count, random);
      buffer.insert(buffer.begin(), shift, 0xEE);
      result.buffers.push_back(std::move(buffer));
    }
    for (const Buffer& buffer : result.buffers) result.pointers.push_back(buffer.data() + shift);
    return result;
  }

  static constexpr uint64_t kSeed = 20240611;
  std::mt19937_64 random{kSeed};
};

inline std::string Describe(const Table& table, ReduceOp op, DType type, size_t sources, size_t count) {
  return std::string(table.name) + " " + std::string(NameOf(op)) + " " + std::string(NameOf(type)) + " sources " +
         std::to_string(sources) + " count " + std::to_string(count);
}

inline void ExpectSame(DType type, const void* expected, const void* got, size_t count, const std::string& what) {
  const size_t size = SizeOf(type);
  if (count == 0 || std::memcmp(expected, got, count * size) == 0) return;
  for (size_t i = 0; i < count; ++i) {
    uint64_t a = 0;
    uint64_t b = 0;
    std::memcpy(&a, static_cast<const char*>(expected) + i * size, size);
    std::memcpy(&b, static_cast<const char*>(got) + i * size, size);
    ASSERT_EQ(a, b) << what << ", element " << i << std::hex << ": expected 0x" << a << ", got 0x" << b;
  }
}

}  // namespace hvd::kernel
