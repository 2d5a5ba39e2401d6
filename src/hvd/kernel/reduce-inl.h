// SPDX-License-Identifier: Apache-2.0
// Per target. The one loop of all reductions: stripes of four registers are loaded from every source in turn, combined
// in registers, and stored to every destination. Memory is read and written once whatever the number of buffers; all
// sources of a stripe are read before any of its stores, so a destination may be a source.
//
// Where the number of buffers is fixed, their addresses stay in registers. That is done for two ranks: when these are
// two threads of one core, their data is in its caches and every instruction counts (a fifth of the time was those).

#if defined(HVD_KERNEL_REDUCE_INL) == defined(HWY_TARGET_TOGGLE)
#ifdef HVD_KERNEL_REDUCE_INL
#undef HVD_KERNEL_REDUCE_INL
#else
#define HVD_KERNEL_REDUCE_INL
#endif

#include "hvd/base/prefetch.h"

HWY_BEFORE_NAMESPACE();
namespace hvd::kernel::HWY_NAMESPACE {

// Scaling is a pair of functors; this one is for factors of 1.
template <class L>
struct NoScale {
  explicit NoScale(const ReduceArgs&) {}
  HWY_INLINE typename L::Reg Pre(typename L::Reg value) const { return value; }
  HWY_INLINE typename L::Reg Post(typename L::Reg value) const { return value; }
};

// Where a reduction's elements are.
template <class T>
class AnyBuffers {
 public:
  explicit HWY_INLINE AnyBuffers(const ReduceArgs& args) : args_(args) {}
  HWY_INLINE size_t sources() const { return args_.source_count; }
  HWY_INLINE size_t destinations() const { return args_.destination_count; }
  HWY_INLINE const T* source(size_t k, size_t i) const {
    return static_cast<const T*>(args_.sources[k]) + args_.source_offset + i;
  }
  HWY_INLINE T* destination(size_t k, size_t i) const {
    return static_cast<T*>(args_.destinations[k]) + args_.destination_offset + i;
  }

 private:
  const ReduceArgs& args_;
};

template <class T, size_t kSources, size_t kDestinations>
class FixedBuffers {
 public:
  explicit HWY_INLINE FixedBuffers(const ReduceArgs& args) {
    const AnyBuffers<T> any(args);
    for (size_t k = 0; k < kSources; ++k) sources_[k] = any.source(k, 0);
    for (size_t k = 0; k < kDestinations; ++k) destinations_[k] = any.destination(k, 0);
  }
  static constexpr size_t sources() { return kSources; }
  static constexpr size_t destinations() { return kDestinations; }
  HWY_INLINE const T* source(size_t k, size_t i) const { return sources_[k] + i; }
  HWY_INLINE T* destination(size_t k, size_t i) const { return destinations_[k] + i; }

 private:
  const T* sources_[kSources];
  T* destinations_[kDestinations];
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
    const AnyBuffers<T> any(args_);
    size_t i = count - count % (4 * n);
    if (args_.source_count == 2 && args_.destination_count == 2) {
      Stripes(FixedBuffers<T, 2, 2>(args_), i);
    } else if (args_.source_count == 2 && args_.destination_count == 1) {
      Stripes(FixedBuffers<T, 2, 1>(args_), i);
    } else {
      Stripes(any, i);
    }
    for (; i + n <= count; i += n) One(any, i);
    if (i < count) Last(any, i, count - i);
  }

 private:
  static constexpr size_t kFetchAhead = 2 << 10;
  static constexpr size_t kLine = 64;

  // Elements 0 .. end, which are whole stripes.
  template <class Buffers>
  HWY_INLINE void Stripes(const Buffers& buffers, size_t end) const {
    constexpr size_t n = L::kLanes;
    size_t i = 0;
    if (args_.stores == Stores::kPrefetched) {
      for (; (i + 4 * n) * sizeof(T) + kFetchAhead <= end * sizeof(T); i += 4 * n) {
        FetchFour(buffers, i);
        Four(buffers, i);
      }
    }
    for (; i < end; i += 4 * n) Four(buffers, i);
  }

  // What the stripe will store that is so far ahead.
  template <class Buffers>
  HWY_INLINE void FetchFour(const Buffers& buffers, size_t i) const {
    for (size_t k = 0; k < buffers.destinations(); ++k) {
      const char* ahead = reinterpret_cast<const char*>(buffers.destination(k, i)) + kFetchAhead;
      for (size_t at = 0; at < 4 * L::kLanes * sizeof(T); at += kLine) PrefetchForWrite(ahead + at);
    }
  }

  template <class Buffers>
  HWY_INLINE void Four(const Buffers& buffers, size_t i) const {
    constexpr size_t n = L::kLanes;
    const T* first = buffers.source(0, i);
    Reg a = scaling_.Pre(L::Load(first));
    Reg b = scaling_.Pre(L::Load(first + n));
    Reg c = scaling_.Pre(L::Load(first + 2 * n));
    Reg d = scaling_.Pre(L::Load(first + 3 * n));
    for (size_t k = 1; k < buffers.sources(); ++k) {
      const T* next = buffers.source(k, i);
      a = Op::Do(a, scaling_.Pre(L::Load(next)));
      b = Op::Do(b, scaling_.Pre(L::Load(next + n)));
      c = Op::Do(c, scaling_.Pre(L::Load(next + 2 * n)));
      d = Op::Do(d, scaling_.Pre(L::Load(next + 3 * n)));
    }
    a = scaling_.Post(a);
    b = scaling_.Post(b);
    c = scaling_.Post(c);
    d = scaling_.Post(d);
    for (size_t k = 0; k < buffers.destinations(); ++k) {
      T* to = buffers.destination(k, i);
      L::Store(a, to);
      L::Store(b, to + n);
      L::Store(c, to + 2 * n);
      L::Store(d, to + 3 * n);
    }
  }

  HWY_INLINE void One(const AnyBuffers<T>& any, size_t i) const {
    Reg a = scaling_.Pre(L::Load(any.source(0, i)));
    for (size_t k = 1; k < any.sources(); ++k) a = Op::Do(a, scaling_.Pre(L::Load(any.source(k, i))));
    a = scaling_.Post(a);
    for (size_t k = 0; k < any.destinations(); ++k) L::Store(a, any.destination(k, i));
  }

  HWY_INLINE void Last(const AnyBuffers<T>& any, size_t i, size_t rest) const {
    Reg a = scaling_.Pre(L::LoadFirst(rest, any.source(0, i)));
    for (size_t k = 1; k < any.sources(); ++k) a = Op::Do(a, scaling_.Pre(L::LoadFirst(rest, any.source(k, i))));
    a = scaling_.Post(a);
    for (size_t k = 0; k < any.destinations(); ++k) L::StoreFirst(rest, a, any.destination(k, i));
  }

  const ReduceArgs args_;  // a copy: the stores could change what a reference shows
  const Scaling scaling_;
};

template <class L, class Op, class Scaling = NoScale<L>>
void ReduceLoop(const ReduceArgs& args) {
  Reducer<L, Op, Scaling>(args).Run();
}

}  // namespace hvd::kernel::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#endif
