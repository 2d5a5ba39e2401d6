// SPDX-License-Identifier: Apache-2.0
#include "hvd/engine/memory.h"

#include <cstdlib>
#include <cstring>

namespace hvd::engine {

std::byte* AllocateShared(size_t bytes, bool or_plain) {
  const size_t wanted = bytes > 0 ? bytes : 1;
  auto memory = transport::shm::Arena::Process().Allocate(wanted);
  if (memory) return *memory;
  if (!or_plain) return nullptr;
  void* plain = nullptr;
  if (posix_memalign(&plain, 64, wanted) != 0) return nullptr;
  return static_cast<std::byte*>(plain);
}

void FreeShared(void* memory) {
  if (memory != nullptr && !transport::shm::Arena::Process().Release(memory)) std::free(memory);
}

}  // namespace hvd::engine
