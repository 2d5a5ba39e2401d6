// SPDX-License-Identifier: Apache-2.0
#pragma once
// Reductions with and without factors, for tests that try each of them on the same data.

#include <cstdint>

#include "hvd/hvd.h"

namespace hvd::test {

struct Reduction {
  int32_t op;
  double prescale;
  double postscale;
};
inline constexpr Reduction kReductions[] = {{HVD_SUM, 1, 1}, {HVD_SUM, 0.3, 7.1}, {HVD_AVERAGE, 1, 1},
                                            {HVD_MIN, 1, 1}, {HVD_MAX, 0.5, 1},   {HVD_PRODUCT, 1, 1}};

}  // namespace hvd::test
