// SPDX-License-Identifier: Apache-2.0
// Conversions between float and the 16-bit types, and the floating-point mode.
#include "hvd/kernel/half.h"
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

  template <class Scalar>
  void CheckBothWays(DType type, const std::vector<float>& floats, const std::string& what) {
    const size_t count = floats.size();
    std::vector<uint16_t> expected(count);
    std::vector<float> back(count);
    for (size_t i = 0; i < count; ++i) {
      expected[i] = Scalar::Narrow(floats[i]);
      back[i] = Scalar::Widen(expected[i]);
    }
    for (const size_t shift : {0, 1, 2}) {
      Buffer in(shift + count * sizeof(float));
      Buffer small(shift + count * sizeof(uint16_t));
      Buffer doubles(shift + count * sizeof(double));
      if (count > 0) std::memcpy(in.data() + shift, floats.data(), count * sizeof(float));
      Narrow(DType::kFloat32, in.data() + shift, type, small.data() + shift, count);
      ExpectSame(type, expected.data(), small.data() + shift, count, what + " narrow");
      Widen(type, small.data() + shift, DType::kFloat32, in.data() + shift, count);
      ExpectSame(DType::kFloat32, back.data(), in.data() + shift, count, what + " widen");
      // Through float64, which has all of these numbers; of a NaN only that it is one is promised there.
      Widen(type, small.data() + shift, DType::kFloat64, doubles.data() + shift, count);
      Narrow(DType::kFloat64, doubles.data() + shift, type, small.data() + shift, count);
      ExpectSame(type, expected.data(), small.data() + shift, count, what + " float64");
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

// What Payload does: all counts around the length of a register and of a block, from any address.
TEST_F(ConvertTest, NarrowAndWidenAgreeWithTheScalarCode) {
  const std::vector<uint32_t> many = ManyFloats();
  for (const Table& table : Tables()) {
    ForceTable(&table);
    for (const size_t count : {0, 1, 7, 15, 16, 17, 33, 1023, 1024, 1025, 5000}) {
      std::vector<float> floats(count);
      for (size_t i = 0; i < count; ++i) floats[i] = std::bit_cast<float>(many[random() % many.size()]);
      CheckBothWays<ScalarFloat16>(DType::kFloat16, floats, table.name);
      CheckBothWays<ScalarBFloat16>(DType::kBFloat16, floats, table.name);
    }
  }
}

// Half-way between two numbers of the smaller type, and one double beside: a detour by float would round twice.
TEST_F(ConvertTest, Float64IsRoundedOnce) {
  const auto check = [](DType type, double value, double expected) {
    for (const double sign : {1.0, -1.0}) {
      const double in = sign * value;
      uint16_t small = 0;
      double out = 0;
      Narrow(DType::kFloat64, &in, type, &small, 1);
      Widen(type, &small, DType::kFloat64, &out, 1);
      EXPECT_EQ(out, sign * expected) << NameOf(type) << " " << in;
    }
  };
  const auto above = [](double value) { return std::nextafter(value, 1e300); };
  const auto below = [](double value) { return std::nextafter(value, 0.0); };
  constexpr double kInfinity = std::numeric_limits<double>::infinity();
  for (const Table& table : Tables()) {
    ForceTable(&table);
    for (const auto& [type, unit] : {std::pair{DType::kFloat16, 0x1p-10}, {DType::kBFloat16, 0x1p-7}}) {
      const double even = 1 + unit / 2;        // between 1, which is even, and the next
      const double odd = 1 + unit + unit / 2;  // between two of which the upper is even
      check(type, even, 1);
      check(type, above(even), 1 + unit);
      check(type, below(even), 1);
      check(type, odd, 1 + 2 * unit);
      check(type, below(odd), 1 + unit);
      check(type, 0, 0);
      check(type, 1e-300, 0);
      check(type, 1e300, kInfinity);
      check(type, kInfinity, kInfinity);
    }
    check(DType::kFloat16, below(65520), 65504);
    check(DType::kFloat16, 65520, kInfinity);
    check(DType::kFloat16, 0x1p-25, 0);  // half of the smallest denormal
    check(DType::kFloat16, above(0x1p-25), 0x1p-24);
    check(DType::kBFloat16, above(0x1p-134), 0x1p-133);
    check(DType::kBFloat16, std::numeric_limits<float>::max(), kInfinity);
    const double nan = std::nan("");
    uint16_t small = 0;
    double out = 0;
    Narrow(DType::kFloat64, &nan, DType::kFloat16, &small, 1);
    Widen(DType::kFloat16, &small, DType::kFloat64, &out, 1);
    EXPECT_TRUE(std::isnan(out));
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
