// SPDX-License-Identifier: Apache-2.0
#pragma once
// The floating-point mode of sums: round to nearest even, denormals kept, no traps. Frameworks flush denormals on their
// threads (and ours runs on whichever thread waits), but a sum must have the same bits on all ranks.

#include <cstdint>

#if defined(__x86_64__)
#include <xmmintrin.h>
#endif

namespace hvd::kernel {

// Thread safety: belongs to one thread. Costs a read of the control register when nothing needs to change.
class ScopedFpMode {
 public:
  ScopedFpMode() : saved_(Read()), changed_((saved_ & ~kStatusBits) != kDefault) {
    if (changed_) [[unlikely]]
      Write(kDefault);
  }
  ~ScopedFpMode() {
    if (changed_) [[unlikely]]
      Write(saved_);
  }
  ScopedFpMode(const ScopedFpMode&) = delete;
  ScopedFpMode& operator=(const ScopedFpMode&) = delete;

 private:
#if defined(__x86_64__)
  using Word = uint32_t;
  static constexpr Word kDefault = 0x1F80;
  static constexpr Word kStatusBits = 0x3F;
  static Word Read() { return _mm_getcsr(); }
  static void Write(Word word) { _mm_setcsr(word); }
#elif defined(__aarch64__)
  using Word = uint64_t;
  static constexpr Word kDefault = 0;
  static constexpr Word kStatusBits = 0;
  static Word Read() {
    Word word;
    asm volatile("mrs %0, fpcr" : "=r"(word));
    return word;
  }
  static void Write(Word word) { asm volatile("msr fpcr, %0" : : "r"(word)); }
#else
  using Word = uint32_t;
  static constexpr Word kDefault = 0;
  static constexpr Word kStatusBits = 0;
  static Word Read() { return 0; }
  static void Write(Word) {}
#endif

  const Word saved_;
  const bool changed_;
};

}  // namespace hvd::kernel
