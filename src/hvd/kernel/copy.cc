// SPDX-License-Identifier: Apache-2.0
// The copy loop: whole registers with aligned stores, four at a time. Unlike the C library's it never uses string
// instructions, whose speed depends on the alignment on some processors.
#include "hvd/kernel/dispatch.h"
#include "hvd/kernel/highway_config.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "hvd/kernel/copy.cc"
#include <hwy/foreach_target.h>
#include <hwy/highway.h>

#include "hvd/kernel/lanes-inl.h"

HWY_BEFORE_NAMESPACE();
namespace hvd::kernel::HWY_NAMESPACE {

#if HWY_TARGET == HWY_SCALAR

void CopyLoop(void* to, const void* from, size_t bytes) { memcpy(to, from, bytes); }

#else

void CopyLoop(void* to, const void* from, size_t bytes) {
  const hn::ScalableTag<uint8_t> d;
  constexpr size_t n = hn::MaxLanes(d);
  auto* const out = static_cast<uint8_t*>(to);
  const auto* const in = static_cast<const uint8_t*>(from);
  // The ends are unaligned registers that overlap the body. They are loaded before the first store.
  const auto head = hn::LoadU(d, in);
  const auto tail = hn::LoadU(d, in + bytes - n);
  size_t i = n - reinterpret_cast<uintptr_t>(out) % n;
  for (; i + 4 * n <= bytes; i += 4 * n) {
    const auto a = hn::LoadU(d, in + i);
    const auto b = hn::LoadU(d, in + i + n);
    const auto c = hn::LoadU(d, in + i + 2 * n);
    const auto e = hn::LoadU(d, in + i + 3 * n);
    hn::Store(a, d, out + i);
    hn::Store(b, d, out + i + n);
    hn::Store(c, d, out + i + 2 * n);
    hn::Store(e, d, out + i + 3 * n);
  }
  for (; i + n <= bytes; i += n) hn::Store(hn::LoadU(d, in + i), d, out + i);
  hn::StoreU(head, d, out);
  hn::StoreU(tail, d, out + bytes - n);
}

#endif

void FillCopy(Table& table) { table.copy = CopyLoop; }

}  // namespace hvd::kernel::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();
