// SPDX-License-Identifier: Apache-2.0
// A sum has the same bits by every road: a small allreduce and the same elements in the middle of a large one take
// different ones, above all on several hosts.
#include <gtest/gtest.h>

#include <cstring>
#include <random>

#include "tests/support/job.h"
#include "tests/support/reductions.h"
#include "tests/support/request.h"

namespace hvd::test {
namespace {

struct Type {
  int32_t dtype;
  size_t bytes;
};
constexpr Type kTypes[] = {{HVD_FLOAT16, 2}, {HVD_BFLOAT16, 2}, {HVD_FLOAT32, 4}, {HVD_FLOAT64, 8},
                           {HVD_INT8, 1},    {HVD_INT32, 4},    {HVD_INT64, 8}};

// Any bits, but no NaN and no infinity among 16-bit floats: which NaN comes out is nobody's promise.
std::vector<uint8_t> Bits(int rank, const Type& type, size_t count) {
  std::mt19937 random(static_cast<unsigned>(rank * 100 + type.dtype));
  std::vector<uint8_t> bits(count * type.bytes);
  for (size_t i = 0; i < count; ++i) {
    const double value = static_cast<double>(static_cast<int32_t>(random())) / (1u << 30);
    const auto integer = static_cast<int64_t>(random() % 100);
    const float narrow = static_cast<float>(value);
    uint16_t half =
        static_cast<uint16_t>(random() % 0x3c00 | (random() & 0x8000));  // both formats: magnitude below 1.x
    uint8_t* to = bits.data() + i * type.bytes;
    switch (type.dtype) {
      case HVD_FLOAT16:
      case HVD_BFLOAT16:
        std::memcpy(to, &half, 2);
        break;
      case HVD_FLOAT32:
        std::memcpy(to, &narrow, 4);
        break;
      case HVD_FLOAT64:
        std::memcpy(to, &value, 8);
        break;
      default:
        std::memcpy(to, &integer, type.bytes);  // little-endian, as all machines that this runs on
    }
  }
  return bits;
}

int Reduce(hvd_context* ctx, const std::string& name, const Type& type, const Reduction& reduction, uint8_t* data,
           size_t count) {
  const auto shape = static_cast<int64_t>(count);
  Request request(HVD_ALLREDUCE, name);
  request->dtype = type.dtype;
  request->reduce_op = reduction.op;
  request->prescale = reduction.prescale;
  request->postscale = reduction.postscale;
  request->ndim = 1;
  request->shape = &shape;
  request->input = request->output = {data, count * type.bytes, HVD_CPU, 0};
  return hvd_run(ctx, request, nullptr);
}

class SameBitsTest : public ::testing::TestWithParam<int> {};
INSTANTIATE_TEST_SUITE_P(Ranks, SameBitsTest, ::testing::Values(2, 3, 4));

TEST_P(SameBitsTest, InSmallAndInLargeAllreduces) {
  constexpr size_t kLarge = 300'001;  // several chunks, the last one odd
  constexpr size_t kSmall = 1000;
  RunThreads(GetParam(), [&](int rank, hvd_context* ctx) {
    for (const Type& type : kTypes) {
      for (const Reduction& reduction : kReductions) {
        const std::string name = std::to_string(type.dtype) + "." + std::to_string(&reduction - kReductions);
        const std::vector<uint8_t> mine = Bits(rank, type, kLarge);
        std::vector<uint8_t> large = mine;
        ASSERT_EQ(Reduce(ctx, "l" + name, type, reduction, large.data(), kLarge), HVD_OK) << hvd_last_error();
        for (const size_t at : {size_t{0}, kLarge / 2, kLarge - kSmall}) {
          const auto from = mine.begin() + static_cast<ptrdiff_t>(at * type.bytes);
          std::vector<uint8_t> small(from, from + static_cast<ptrdiff_t>(kSmall * type.bytes));
          ASSERT_EQ(Reduce(ctx, "s" + name, type, reduction, small.data(), kSmall), HVD_OK) << hvd_last_error();
          ASSERT_EQ(std::memcmp(small.data(), large.data() + at * type.bytes, small.size()), 0)
              << "type " << type.dtype << ", reduction " << name << ", at element " << at;
        }
      }
    }
  });
}

// Again and again under one name: agreed on by messages, then by marks, then the fast path, where it is reduced in
// slices.
TEST_P(SameBitsTest, TheFirstTimeAndLater) {
  constexpr size_t kCount = 9001;  // 9 to 72 KiB, the last slice odd
  RunThreads(GetParam(), [&](int rank, hvd_context* ctx) {
    for (const Type& type : kTypes) {
      for (const Reduction& reduction : kReductions) {
        const std::string name = std::to_string(type.dtype) + "." + std::to_string(&reduction - kReductions);
        const std::vector<uint8_t> mine = Bits(rank, type, kCount);
        std::vector<uint8_t> expected = mine;
        ASSERT_EQ(Reduce(ctx, "first" + name, type, reduction, expected.data(), kCount), HVD_OK) << hvd_last_error();
        auto* arena = static_cast<uint8_t*>(hvd_alloc(mine.size()));
        std::vector<uint8_t> elsewhere(mine.size());
        for (int time = 0; time < 8; ++time) {
          uint8_t* data = time < 4 ? arena : elsewhere.data();
          std::memcpy(data, mine.data(), mine.size());
          EXPECT_EQ(Reduce(ctx, "later" + name, type, reduction, data, kCount), HVD_OK) << hvd_last_error();
          EXPECT_EQ(std::memcmp(data, expected.data(), expected.size()), 0)
              << "type " << type.dtype << ", reduction " << name << ", time " << time;
        }
        hvd_free(arena);
      }
    }
  });
}

// Large ones in the arena, where each rank has a slice in one piece: how their results are stored is on trial, so it
// differs from time to time and, with times of their own, from rank to rank.
TEST_P(SameBitsTest, InTheArenaHoweverStored) {
  constexpr Type kType = {HVD_FLOAT32, 4};
  for (const size_t count : {size_t{250'001}, size_t{800'003}}) {  // the fast path; by a machine; both in odd chunks
    RunThreads(GetParam(), [&](int rank, hvd_context* ctx) {
      const std::vector<uint8_t> mine = Bits(rank, kType, count);
      std::vector<uint8_t> expected = mine;
      ASSERT_EQ(Reduce(ctx, "elsewhere", kType, kReductions[0], expected.data(), count), HVD_OK) << hvd_last_error();
      auto* arena = static_cast<uint8_t*>(hvd_alloc(mine.size()));
      for (int time = 0; time < 40; ++time) {
        std::memcpy(arena, mine.data(), mine.size());
        EXPECT_EQ(Reduce(ctx, "arena", kType, kReductions[0], arena, count), HVD_OK) << hvd_last_error();
        EXPECT_EQ(std::memcmp(arena, expected.data(), expected.size()), 0) << count << " elements, time " << time;
      }
      hvd_free(arena);
    });
  }
}

}  // namespace
}  // namespace hvd::test
