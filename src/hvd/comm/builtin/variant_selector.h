// SPDX-License-Identifier: Apache-2.0
#pragma once
// Finds the faster of two variants on this machine by measuring: operations take both in turn until each was measured a
// few times, then the faster one; now and then the other is tried again, because machines change.
//
// Members of a process set each have their own figures. If the new variant needs all of them, it is taken if all offer
// it. So that they try it together, who tries what at which position is the same for all of them.
//
// Pure: a function of what was measured. Thread safety: none.

#include <array>
#include <cstddef>
#include <cstdint>
#include <map>
#include <utility>

#include "hvd/base/clock.h"
#include "hvd/base/types.h"

namespace hvd::comm::builtin {

class VariantSelector {
 public:
  // Measurements of each variant before the faster one is taken.
  static constexpr size_t kTries = 4;
  // One in so many operations tries the slower variant again: seldom enough that nobody notices, more seldom where it
  // was much slower.
  static constexpr uint64_t kSeldom = 64;
  static constexpr uint64_t kHardlyEver = 1024;

  // Whether an operation of so many bytes should take the new variant.
  bool Offers(OpKind op, size_t bytes, uint64_t position) const;
  // It took the new variant, or did not, and took so long.
  void Measured(OpKind op, size_t bytes, bool new_variant, Duration took);

 private:
  // The last few times, in nanoseconds per byte. The shortest counts: whatever comes between makes them longer only.
  struct Times {
    std::array<double, kTries> last{};
    size_t count = 0;
    double shortest() const;
  };
  struct Figures {
    Times old_variant;
    Times new_variant;
  };
  // Sizes within a factor of two share their figures.
  using Key = std::pair<OpKind, int>;
  static Key KeyOf(OpKind op, size_t bytes);

  std::map<Key, Figures> figures_;
};

}  // namespace hvd::comm::builtin
