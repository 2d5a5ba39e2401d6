// SPDX-License-Identifier: Apache-2.0
#pragma once
// The arithmetic of Adasum: two gradients a and b become
//   (1 - a.b / (2 a.a)) a + (1 - a.b / (2 b.b)) b
// their sum where they are orthogonal, their mean where they are parallel. Vectors are held in float (float16,
// bfloat16, float32) or double (float64); dot products and combinations are formed in double, element after element.
//
// Thread safety: pure functions of memory.

#include <cstddef>
#include <span>

#include "hvd/base/types.h"

namespace hvd::kernel {

struct Dots {
  double ab = 0;
  double aa = 0;
  double bb = 0;
};

// Whether Adasum exists for this type: floating-point ones.
bool SupportsAdasum(DType type);
// The type in which vectors of `type` are held.
DType AdasumType(DType type);

// to[i] = from[i] * factor, from `type` to AdasumType(type).
void AdasumLoad(DType type, const void* from, void* to, size_t count, double factor);
// The way back, rounded to nearest even.
void AdasumStore(DType type, const void* from, void* to, size_t count, double factor);

// `held` is AdasumType of the tensor's type.
Dots AdasumDots(DType held, const void* a, const void* b, size_t count);
// a = the combination of a and b, given the dot products of the whole vectors.
void AdasumCombine(DType held, void* a, const void* b, size_t count, const Dots& dots);

}  // namespace hvd::kernel
