// SPDX-License-Identifier: Apache-2.0
// Kernels for fuzzers, because clang 16 cannot compile the real ones. They touch the same bytes by memmove, whose
// accesses the sanitizers check; no fuzzer reads the results. Damaged marks can make areas of one arena overlap: then
// the data is wrong, but nothing outside of the areas is touched.
#include <cstdlib>
#include <cstring>
#include <vector>

#include "hvd/kernel/adasum.h"
#include "hvd/kernel/kernel.h"

namespace hvd::kernel {

void Copy(void* to, const void* from, size_t bytes) {
  if (bytes > 0) std::memmove(to, from, bytes);
}

void Reduce(ReduceOp, DType type, std::span<const void* const> sources, std::span<void* const> destinations,
            size_t count, Scale, Stores) {
  std::vector<std::byte> result(count * SizeOf(type));
  for (const void* source : sources) Copy(result.data(), source, result.size());
  for (void* to : destinations) Copy(to, result.data(), result.size());
}

void ReduceGrouped(ReduceOp op, DType type, std::span<const void* const> sources, std::span<const int>,
                   std::span<void* const> destinations, size_t count, Scale scale) {
  Reduce(op, type, sources, destinations, count, scale, Stores::kPlain);
}

// No fuzzer calls these.
void Narrow(DType, const void*, DType, void*, size_t) { std::abort(); }
void Widen(DType, const void*, DType, void*, size_t) { std::abort(); }
DType AdasumType(DType) { std::abort(); }
void AdasumLoad(DType, const void*, void*, size_t, double) { std::abort(); }
void AdasumStore(DType, const void*, void*, size_t, double) { std::abort(); }
Dots AdasumDots(DType, const void*, const void*, size_t) { std::abort(); }
void AdasumCombine(DType, void*, const void*, size_t, const Dots&) { std::abort(); }

}  // namespace hvd::kernel
