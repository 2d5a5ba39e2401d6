// SPDX-License-Identifier: Apache-2.0
#include <cstring>

#include "hvd/kernel/copy_method.h"
#include "tests/unit/kernel/fixture.h"

namespace hvd::kernel {
namespace {

constexpr size_t kLine = 64;

class CopyTest : public KernelTest {
 protected:
  // Copies `bytes` between these offsets in a line, and checks that nothing else changes.
  template <typename Copier>
  void Check(size_t to, size_t from, size_t bytes, Copier copy) {
    std::memset(to_.data(), 0xEE, 2 * kLine + bytes + to);
    copy(to_.data() + kLine + to, from_.data() + from, bytes);
    const uint8_t* const begin = to_.data() + kLine + to;
    ASSERT_EQ(std::memcmp(begin, from_.data() + from, bytes), 0) << bytes << " bytes from " << from << " to " << to;
    ASSERT_EQ(begin[-1], 0xEE) << bytes << " bytes to " << to;
    ASSERT_EQ(begin[bytes], 0xEE) << bytes << " bytes to " << to;
  }

  static constexpr size_t kMost = (1 << 20) + 4 * kLine;
  const Buffer random_ = reference::RandomElements(DType::kUInt8, kMost, random);
  std::vector<uint8_t> from_storage_ = std::vector<uint8_t>(kMost + kLine);
  std::vector<uint8_t> to_storage_ = std::vector<uint8_t>(kMost + kLine);
  std::span<uint8_t> from_ = Aligned(from_storage_);
  std::span<uint8_t> to_ = Aligned(to_storage_);

  void SetUp() override { std::memcpy(from_.data(), random_.data(), kMost); }

 private:
  static std::span<uint8_t> Aligned(std::vector<uint8_t>& storage) {
    const size_t skipped = kLine - reinterpret_cast<uintptr_t>(storage.data()) % kLine;
    return std::span(storage).subspan(skipped);
  }
};

TEST_F(CopyTest, EveryAlignmentBySizesAroundTheFirstThreshold) {
  for (const Table& table : Tables()) {
    SCOPED_TRACE(table.name);
    for (size_t to = 0; to < kLine; ++to) {
      for (size_t from = 0; from < kLine; ++from) {
        for (const size_t bytes : {kLeastTimedCopy, kLeastTimedCopy + 1, kLeastTimedCopy + 255}) {
          ASSERT_NO_FATAL_FAILURE(Check(to, from, bytes, table.copy));
        }
      }
    }
  }
}

TEST_F(CopyTest, EveryDestinationBySizesAroundAllThresholds) {
  for (size_t to = 0; to < kLine; ++to) {
    for (const size_t from : {0, 1, 16, 33, 63}) {
      for (const size_t threshold : {kLeastTimedCopy, kLongCopy, size_t{64} << 10}) {
        for (const size_t bytes : {threshold - 1, threshold, threshold + 1, threshold + 63, threshold + 257}) {
          ASSERT_NO_FATAL_FAILURE(Check(to, from, bytes, Copy));
        }
      }
    }
  }
}

TEST_F(CopyTest, ShortAndLargeCopies) {
  for (const size_t bytes : {size_t{0}, size_t{1}, size_t{63}, size_t{64}, size_t{4097}, size_t{1} << 20}) {
    ASSERT_NO_FATAL_FAILURE(Check(16, 0, bytes, Copy));
  }
  Copy(nullptr, nullptr, 0);
}

TEST_F(CopyTest, ChoosesForEverySizeAndAlignment) {
  const CopyMethods methods(Tables()[0]);
  for (const size_t bytes : {kLeastTimedCopy, kLongCopy - 1, kLongCopy}) {
    for (const size_t from : {0, 16}) {
      ASSERT_NO_FATAL_FAILURE(Check(0, from, bytes, methods.For(to_.data(), from_.data() + from, bytes)));
    }
  }
}

}  // namespace
}  // namespace hvd::kernel
