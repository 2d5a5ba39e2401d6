// SPDX-License-Identifier: Apache-2.0
// Per target. How elements of one type lie in a register: a struct with
//   T         the type in memory
//   Reg       a register full of elements in the type that they are accumulated in
//   kLanes    how many elements a Reg holds
//   Load, Store, and for the last few elements of a buffer LoadFirst, StoreFirst, which touch no byte outside it.
// Vector bodies and tails run the same instructions, so an element's bits do not depend on where it stands.

#if defined(HVD_KERNEL_LANES_INL) == defined(HWY_TARGET_TOGGLE)
#ifdef HVD_KERNEL_LANES_INL
#undef HVD_KERNEL_LANES_INL
#else
#define HVD_KERNEL_LANES_INL
#endif

#include <string.h>

HWY_BEFORE_NAMESPACE();
namespace hvd::kernel::HWY_NAMESPACE {

namespace hn = hwy::HWY_NAMESPACE;

#if HWY_TARGET == HWY_SCALAR

template <class Element>
struct Lanes {
  using T = Element;
  using Reg = Element;
  static constexpr size_t kLanes = 1;

  static HWY_INLINE Reg Load(const T* from) {
    T value;
    memcpy(&value, from, sizeof(T));
    return value;
  }
  static HWY_INLINE void Store(Reg value, T* to) { memcpy(to, &value, sizeof(T)); }
  static HWY_INLINE Reg LoadFirst(size_t, const T* from) { return Load(from); }
  static HWY_INLINE void StoreFirst(size_t, Reg value, T* to) { Store(value, to); }
  static HWY_INLINE Reg Set(T value) { return value; }
};

#else

// D: Highway's tag for the elements as they lie in memory.
template <class D>
struct RawLanes {
  using T = hn::TFromD<D>;
  using Raw = hn::Vec<D>;

  static HWY_INLINE Raw Load(const T* from) { return hn::LoadU(D(), from); }
  static HWY_INLINE void Store(Raw value, T* to) { hn::StoreU(value, D(), to); }

#if HWY_CAP_GE512
  // Masked lanes do not fault here.
  static HWY_INLINE Raw LoadFirst(size_t n, const T* from) { return hn::MaskedLoad(hn::FirstN(D(), n), D(), from); }
  static HWY_INLINE void StoreFirst(size_t n, Raw value, T* to) {
    hn::BlendedStore(value, hn::FirstN(D(), n), D(), to);
  }
#else
  static HWY_INLINE Raw LoadFirst(size_t n, const T* from) {
    HWY_ALIGN T buffer[hn::MaxLanes(D())] = {};
    memcpy(buffer, from, n * sizeof(T));
    return hn::Load(D(), buffer);
  }
  static HWY_INLINE void StoreFirst(size_t n, Raw value, T* to) {
    HWY_ALIGN T buffer[hn::MaxLanes(D())];
    hn::Store(value, D(), buffer);
    memcpy(to, buffer, n * sizeof(T));
  }
#endif
};

template <class Element>
struct Lanes : RawLanes<hn::ScalableTag<Element> > {
  using D = hn::ScalableTag<Element>;
  using Reg = hn::Vec<D>;
  static constexpr size_t kLanes = hn::MaxLanes(D());

  static HWY_INLINE Reg Set(Element value) { return hn::Set(D(), value); }
};

#endif

}  // namespace hvd::kernel::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#endif
