// SPDX-License-Identifier: Apache-2.0
#include "hvd/kernel/copy_method.h"

#include <algorithm>
#include <cstdint>
#include <cstring>
#include <memory>

#include "hvd/base/clock.h"
#include "hvd/kernel/kernel.h"

namespace hvd::kernel {
namespace {

constexpr int kTries = 4;
// Where large blocks of glibc's malloc begin, relative to a page.
constexpr size_t kMallocOffset = 16;

void CopyByLibrary(void* to, const void* from, size_t bytes) { std::memcpy(to, from, bytes); }

// The shortest of a few times: whatever interrupts a copy makes it longer only.
Duration Shortest(CopyFn copy, std::byte* to, const std::byte* from, size_t bytes) {
  const SteadyClock clock;
  Duration shortest = Duration::max();
  for (int i = 0; i < kTries; ++i) {
    const Time begun = clock.Now();
    copy(to, from, bytes);
    shortest = std::min(shortest, Duration(clock.Now() - begun));
  }
  return shortest;
}

}  // namespace

CopyMethods::CopyMethods(const Table& table) {
  constexpr size_t kSizes[] = {kLeastTimedCopy * 4, kLongCopy * 2};
  constexpr size_t kPage = 4096;
  constexpr size_t kRoom = kSizes[1] + kPage;
  const auto memory = std::make_unique<std::byte[]>(2 * kRoom + kPage);
  const uintptr_t begin = reinterpret_cast<uintptr_t>(memory.get());
  std::byte* const from = memory.get() + (kPage - begin % kPage);
  std::byte* const to = from + kRoom;
  for (const bool is_long : {false, true}) {
    for (const bool same : {false, true}) {
      const std::byte* const source = from + (same ? 0 : kMallocOffset);
      const Duration library = Shortest(CopyByLibrary, to, source, kSizes[is_long]);
      const Duration loop = Shortest(table.copy, to, source, kSizes[is_long]);
      by_[is_long][same] = loop < library ? table.copy : CopyByLibrary;
    }
  }
}

void Copy(void* to, const void* from, size_t bytes) {
  if (bytes < kLeastTimedCopy) {
    if (bytes > 0) std::memcpy(to, from, bytes);  // nothing may be copied from or to nowhere
    return;
  }
  static const CopyMethods methods(ActiveTable());
  methods.For(to, from, bytes)(to, from, bytes);
}

}  // namespace hvd::kernel
