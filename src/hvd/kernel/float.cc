// SPDX-License-Identifier: Apache-2.0
// Loops for float32 and float64.
#include "hvd/kernel/dispatch.h"
#include "hvd/kernel/highway_config.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "hvd/kernel/float.cc"
#include <hwy/foreach_target.h>
#include <hwy/highway.h>

#include "hvd/kernel/lanes-inl.h"
#include "hvd/kernel/reduce-inl.h"
// After the loops.
#include "hvd/kernel/float_ops-inl.h"

HWY_BEFORE_NAMESPACE();
namespace hvd::kernel::HWY_NAMESPACE {

void FillFloat(Table& table) {
  FillFloatType<Lanes<float>, Lanes<float>>(table, DType::kFloat32);
  FillFloatType<Lanes<double>, Lanes<double>>(table, DType::kFloat64);
}

}  // namespace hvd::kernel::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();
