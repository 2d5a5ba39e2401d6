// SPDX-License-Identifier: Apache-2.0
#include "hvd/engine/memory.h"

#include <algorithm>
#include <cstdlib>
#include <cstring>

namespace hvd::engine {

void LimitArena(int64_t bytes, int local_size) {
  auto& arena = transport::shm::Arena::Process();
  const auto ranks = static_cast<uint64_t>(std::max(local_size, 1));
  arena.SetBudget(bytes >= 0 ? static_cast<uint64_t>(bytes) : arena.capacity() / ranks);
}

Result<std::byte*> AllocateShared(size_t bytes) {
  return transport::shm::Arena::Process().Allocate(bytes > 0 ? bytes : 1);
}

std::byte* AllocateOutput(size_t bytes) {
  auto& arena = transport::shm::Arena::Process();
  if (bytes >= transport::shm::Arena::kLeastBlock) {
    if (const auto block = arena.AllocateBlock(bytes); block.data != nullptr) return block.data;
  }
  if (auto memory = AllocateShared(bytes); memory) return *memory;
  void* plain = nullptr;
  if (posix_memalign(&plain, 64, bytes > 0 ? bytes : 1) != 0) return nullptr;
  return static_cast<std::byte*>(plain);
}

void FreeShared(void* memory) {
  if (memory != nullptr && !transport::shm::Arena::Process().Release(memory)) std::free(memory);
}

}  // namespace hvd::engine
