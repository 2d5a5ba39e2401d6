// SPDX-License-Identifier: Apache-2.0
// Conversions between float and the 16-bit types, and the floating-point mode.
#include "tests/unit/kernel/fixture.h"

#if defined(__x86_64__)
#include <xmmintrin.h>
#endif

namespace hvd::kernel {
namespace {

class ConvertTest : public KernelTest {
 protected:
  template <class Small>
  void CheckNarrow(DType type, const std::vector<uint32_t>& values) {
    std::vector<uint16_t> expected;
    for (uint32_t bits : values) expected.push_back(Small::Encode(std::bit_cast<float>(bits)));
    for (const Table& table : Tables()) {
      std::vector<uint16_t> got(values.size());
      table.narrow[static_cast<int>(type)](values.data(), got.data(), values.size());
      ExpectSame(type, expected.data(), got.data(), values.size(), std::string(table.name) + " narrow");
    }
  }

  // Every sixteen-bit prefix with the endings that decide rounding, and random bits.
  std::vector<uint32_t> ManyFloats() {
    std::vector<uint32_t> values;
    for (uint32_t upper = 0; upper < 0x10000; ++upper) {
      for (uint32_t lower : {0x0000u, 0x0001u, 0x0FFFu, 0x1000u, 0x1001u, 0x2000u, 0x3000u, 0x7FFFu, 0x8000u, 0x8001u,
                             0xB000u, 0xF000u, 0xFFFFu}) {
        values.push_back(upper << 16 | lower);
      }
      for (int k = 0; k < 8; ++k) values.push_back(upper << 16 | (random() & 0xFFFF));
    }
    return values;
  }
};

TEST_F(ConvertTest, NarrowRoundsToNearestEven) {
  const std::vector<uint32_t> values = ManyFloats();
  CheckNarrow<reference::Half>(DType::kFloat16, values);
  CheckNarrow<reference::Brain>(DType::kBFloat16, values);
}

TEST_F(ConvertTest, WidenIsExact) {
  std::vector<uint16_t> all(0x10000);
  for (size_t i = 0; i < all.size(); ++i) all[i] = static_cast<uint16_t>(i);
  for (const Table& table : Tables()) {
    std::vector<float> got(all.size());
    for (DType type : {DType::kFloat16, DType::kBFloat16}) {
      const bool half = type == DType::kFloat16;
      table.widen[static_cast<int>(type)](all.data(), got.data(), all.size());
      for (uint16_t bits : all) {
        const float expected = half ? reference::Half::Decode(bits) : reference::Brain::Decode(bits);
        // float16's signalling NaNs become quiet, as processors do it.
        const bool quiet = half && std::isnan(expected);
        ASSERT_EQ(std::bit_cast<uint32_t>(got[bits]),
                  std::bit_cast<uint32_t>(quiet ? reference::Quiet(expected) : expected))
            << table.name << " " << NameOf(type) << " " << bits;
      }
    }
  }
}

#if defined(__x86_64__)
// Frameworks flush denormals on their threads, and a user may have changed the rounding mode.
TEST_F(ConvertTest, CallersFloatingPointModeNeitherMattersNorChanges) {
  const unsigned before = _mm_getcsr();
  for (DType type : {DType::kFloat16, DType::kBFloat16, DType::kFloat32, DType::kFloat64, DType::kInt32}) {
    for (ReduceOp op : kOps) {
      const Sources in = MakeSources(type, 3, 777);
      const Scale scale{.pre = 1.1, .post = 0.3};
      const int groups[] = {1, 2};
      const Buffer expected = reference::Reduce(op, type, in.pointers, {3}, 777, scale);
      const Buffer expected_grouped = reference::Reduce(op, type, in.pointers, {1, 2}, 777, scale);
      for (const Table& table : Tables()) {
        ForceTable(&table);
        Buffer got(777 * SizeOf(type));
        Buffer got_grouped(777 * SizeOf(type));
        void* const to[] = {got.data()};
        void* const to_grouped[] = {got_grouped.data()};
        const unsigned strange = 0x1F80 | 0x8040 | 0x4000;  // flush both ways, round up
        _mm_setcsr(strange);
        Reduce(op, type, in.pointers, to, 777, scale);
        ReduceGrouped(op, type, in.pointers, groups, to_grouped, 777, scale);
        const unsigned after = _mm_getcsr();
        _mm_setcsr(before);
        EXPECT_EQ(after & ~0x3Fu, strange & ~0x3Fu);
        ExpectSame(type, expected.data(), got.data(), 777, Describe(table, op, type, 3, 777));
        ExpectSame(type, expected_grouped.data(), got_grouped.data(), 777, Describe(table, op, type, 3, 777));
      }
    }
  }
}
#endif

}  // namespace
}  // namespace hvd::kernel
