// SPDX-License-Identifier: Apache-2.0
// Per target. The one loop of all reductions: stripes of four registers are loaded from every source in turn, combined
// in registers, and stored to every destination. Memory is read and written once whatever the number of buffers; all
// sources of a stripe are read before any of its stores, so a destination may be a source. (Versions for fixed numbers
// of buffers were measured to be no faster, even in the first-level cache.)

#if defined(HVD_KERNEL_REDUCE_INL) == defined(HWY_TARGET_TOGGLE)
#ifdef HVD_KERNEL_REDUCE_INL
#undef HVD_KERNEL_REDUCE_INL
#else
#define HVD_KERNEL_REDUCE_INL
#endif

#include "hvd/base/fetch.h"

HWY_BEFORE_NAMESPACE();
namespace hvd::kernel::HWY_NAMESPACE {

// Scaling is a pair of functors; this one is for factors of 1.
template <class L>
struct NoScale {
  explicit NoScale(const ReduceArgs&) {}
  HWY_INLINE typename L::Reg Pre(typename L::Reg value) const { return value; }
  HWY_INLINE typename L::Reg Post(typename L::Reg value) const { return value; }
};

// L: lanes. Op: Do(accumulator, next).
template <class L, class Op, class Scaling>
class Reducer {
 public:
  using T = typename L::T;
  using Reg = typename L::Reg;

  explicit HWY_INLINE Reducer(const ReduceArgs& args) : args_(args), scaling_(args) {}

  HWY_INLINE void Run() const {
    constexpr size_t n = L::kLanes;
    const size_t count = args_.count;
    size_t i = 0;
    // A store to a line that the peer has written waits for it longer than a load, and large data for every line.
    if (count * sizeof(T) >= kFetchedBytes) {
      for (; (i + 4 * n) * sizeof(T) + kFetchAhead <= count * sizeof(T); i += 4 * n) {
        FetchFour(i);
        Four(i);
      }
    }
    for (; i + 4 * n <= count; i += 4 * n) Four(i);
    for (; i + n <= count; i += n) One(i);
    if (i < count) Last(i, count - i);
  }

 private:
  static constexpr size_t kFetchedBytes = 128 << 10;
  static constexpr size_t kFetchAhead = 2 << 10;
  static constexpr size_t kLine = 64;

  // What the stripe will store that is so far ahead.
  HWY_INLINE void FetchFour(size_t i) const {
    for (size_t k = 0; k < args_.destination_count; ++k) {
      const char* ahead = reinterpret_cast<const char*>(destination(k, i)) + kFetchAhead;
      for (size_t at = 0; at < 4 * L::kLanes * sizeof(T); at += kLine) FetchToWrite(ahead + at);
    }
  }

  HWY_INLINE const T* source(size_t k, size_t i) const {
    return static_cast<const T*>(args_.sources[k]) + args_.source_offset + i;
  }
  HWY_INLINE T* destination(size_t k, size_t i) const {
    return static_cast<T*>(args_.destinations[k]) + args_.destination_offset + i;
  }

  HWY_INLINE void Four(size_t i) const {
    constexpr size_t n = L::kLanes;
    const T* first = source(0, i);
    Reg a = scaling_.Pre(L::Load(first));
    Reg b = scaling_.Pre(L::Load(first + n));
    Reg c = scaling_.Pre(L::Load(first + 2 * n));
    Reg d = scaling_.Pre(L::Load(first + 3 * n));
    for (size_t k = 1; k < args_.source_count; ++k) {
      const T* next = source(k, i);
      a = Op::Do(a, scaling_.Pre(L::Load(next)));
      b = Op::Do(b, scaling_.Pre(L::Load(next + n)));
      c = Op::Do(c, scaling_.Pre(L::Load(next + 2 * n)));
      d = Op::Do(d, scaling_.Pre(L::Load(next + 3 * n)));
    }
    a = scaling_.Post(a);
    b = scaling_.Post(b);
    c = scaling_.Post(c);
    d = scaling_.Post(d);
    for (size_t k = 0; k < args_.destination_count; ++k) {
      T* to = destination(k, i);
      L::Store(a, to);
      L::Store(b, to + n);
      L::Store(c, to + 2 * n);
      L::Store(d, to + 3 * n);
    }
  }

  HWY_INLINE void One(size_t i) const {
    Reg a = scaling_.Pre(L::Load(source(0, i)));
    for (size_t k = 1; k < args_.source_count; ++k) a = Op::Do(a, scaling_.Pre(L::Load(source(k, i))));
    a = scaling_.Post(a);
    for (size_t k = 0; k < args_.destination_count; ++k) L::Store(a, destination(k, i));
  }

  HWY_INLINE void Last(size_t i, size_t rest) const {
    Reg a = scaling_.Pre(L::LoadFirst(rest, source(0, i)));
    for (size_t k = 1; k < args_.source_count; ++k) a = Op::Do(a, scaling_.Pre(L::LoadFirst(rest, source(k, i))));
    a = scaling_.Post(a);
    for (size_t k = 0; k < args_.destination_count; ++k) L::StoreFirst(rest, a, destination(k, i));
  }

  const ReduceArgs& args_;
  const Scaling scaling_;
};

template <class L, class Op, class Scaling = NoScale<L>>
void ReduceLoop(const ReduceArgs& args) {
  Reducer<L, Op, Scaling>(args).Run();
}

}  // namespace hvd::kernel::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#endif
