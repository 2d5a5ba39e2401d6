// SPDX-License-Identifier: Apache-2.0
#pragma once
// The process's arena, as the communicators and the engine use it.

#include "hvd/comm/builtin/window_communicator.h"
#include "hvd/transport/shm/arena.h"

namespace hvd::engine {

class ArenaMemory final : public comm::builtin::StagingSource {
 public:
  explicit ArenaMemory(transport::shm::Arena* arena) : arena_(arena) {}

  int64_t OffsetOf(const void* memory, size_t bytes) const override { return arena_->Contains(memory, bytes); }
  std::byte* Allocate(size_t bytes) override {
    auto memory = arena_->Allocate(bytes);
    if (memory) return *memory;
    // The budget is for what users ask for. Staging is small, and without it nothing large can be sent at all.
    arena_->SetBudget(arena_->committed() + 2 * bytes);
    memory = arena_->Allocate(bytes);
    return memory ? *memory : nullptr;
  }
  void Free(std::byte* memory) override { arena_->Release(memory); }

 private:
  transport::shm::Arena* arena_;
};

// Limits the arena to so many bytes; negative: to this rank's part of what the ranks of its host may have together.
void LimitArena(int64_t bytes, int local_size);
// Memory of hvd_alloc: of the arena. The error says whether it is full or this is a forked child.
Result<std::byte*> AllocateShared(size_t bytes);
// Memory of outputs that the engine owns: of the arena, or plain where that is exhausted. nullptr: there is none.
std::byte* AllocateOutput(size_t bytes);
// Takes memory of both, and nullptr.
void FreeShared(void* memory);

}  // namespace hvd::engine
