// SPDX-License-Identifier: Apache-2.0
#pragma once
// What every file of this folder must agree on before it includes Highway. Highway is used as headers only: its own
// dispatcher lives in a library that we do not want beside other copies in a user's process, so dispatch.cc chooses.

// Nothing here needs these instructions, and some virtual machines hide them.
#define HWY_DISABLE_PCLMUL_AES
// Every machine with SSSE3 has SSE4, but for a few of 2006 (the plain target serves those); AVX3_DL adds nothing to
// AVX3.
#define HWY_DISABLED_TARGETS (HWY_SSSE3 | HWY_AVX3_DL)
#if !defined(__x86_64__)
// Elsewhere the baseline is good (NEON on aarch64) and the loops want vectors of a size known at compile time.
#define HWY_COMPILE_ONLY_STATIC
#endif

#include <hwy/detect_targets.h>
