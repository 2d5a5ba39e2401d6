// SPDX-License-Identifier: Apache-2.0
#include "hvd/kernel/adasum.h"

#include <gtest/gtest.h>

#include <cstdint>
#include <cstring>
#include <vector>

#include "hvd/kernel/half.h"

#if defined(__x86_64__)
#include <xmmintrin.h>
#endif

namespace hvd::kernel {
namespace {

TEST(Adasum, EveryHalfComesBack) {
  std::vector<uint16_t> all(1 << 16), back(all.size());
  for (size_t i = 0; i < all.size(); ++i) all[i] = static_cast<uint16_t>(i);
  std::vector<float> held(all.size());
  for (const DType type : {DType::kFloat16, DType::kBFloat16}) {
    AdasumLoad(type, all.data(), held.data(), all.size(), 1.0);
    AdasumStore(type, held.data(), back.data(), all.size(), 1.0);
    for (size_t i = 0; i < all.size(); ++i) {
      if (held[i] == held[i]) {
        ASSERT_EQ(back[i], all[i]) << i;
      }
    }
  }
}

TEST(Adasum, OrthogonalVectorsAddAndParallelOnesAverage) {
  std::vector<double> a = {3, 0}, b = {0, 5}, c = {1, 2}, d = {1, 2};
  AdasumCombine(DType::kFloat64, a.data(), b.data(), 2, AdasumDots(DType::kFloat64, a.data(), b.data(), 2));
  EXPECT_EQ(a, (std::vector<double>{3, 5}));
  AdasumCombine(DType::kFloat64, c.data(), d.data(), 2, AdasumDots(DType::kFloat64, c.data(), d.data(), 2));
  EXPECT_EQ(c, (std::vector<double>{1, 2}));
}

#if defined(__x86_64__)
// Frameworks flush denormals on their threads: the same gradient must not depend on the thread that reduces it.
TEST(Adasum, CallersFloatingPointModeNeitherMattersNorChanges) {
  const auto run = [] {
    const uint16_t halves[] = {1, 0x3ff, 0x8001, 0x3c01};  // three denormals and a normal one
    std::vector<float> a(4), b(4);
    std::vector<uint16_t> out(4);
    AdasumLoad(DType::kFloat16, halves, a.data(), 4, 1.1);
    AdasumLoad(DType::kFloat16, halves, b.data(), 4, 0.3);
    const Dots dots = AdasumDots(DType::kFloat32, a.data(), b.data(), 4);
    AdasumCombine(DType::kFloat32, a.data(), b.data(), 4, dots);
    AdasumStore(DType::kFloat16, a.data(), out.data(), 4, 0.7);
    return out;
  };
  const auto expected = run();
  const unsigned before = _mm_getcsr();
  const unsigned strange = 0x1F80 | 0x8040 | 0x4000;  // flush both ways, round up
  _mm_setcsr(strange);
  const auto got = run();
  const unsigned after = _mm_getcsr();
  _mm_setcsr(before);
  EXPECT_EQ(got, expected);
  EXPECT_EQ(after & ~0x3Fu, strange & ~0x3Fu);
}
#endif

}  // namespace
}  // namespace hvd::kernel
