// SPDX-License-Identifier: Apache-2.0
// Gives this process's arena to the preloaded libhvd_heap.so, if there is one, as soon as this library is loaded.
#include <dlfcn.h>

#include "hvd/base/config.h"
#include "hvd/engine/memory.h"
#include "hvd/heap/source.h"

namespace {

using hvd::transport::shm::Arena;

__attribute__((constructor)) void AttachHeap() {
  const auto attach = reinterpret_cast<hvd_heap_attach_fn>(::dlsym(RTLD_DEFAULT, "hvd_heap_attach"));
  if (attach == nullptr) return;
  static hvd_heap_source source{
      .begin = nullptr,
      .bytes = 0,
      .allocate = [](uint64_t bytes, int* zeroed) -> void* {
        const Arena::Block block = Arena::Process().AllocateBlock(bytes);
        *zeroed = block.zeroed;
        return block.data;
      },
      .bytes_of = [](const void* block) -> uint64_t { return Arena::Process().BytesOf(block); },
      .release = [](void* block) { Arena::Process().Release(block); },
  };
  const Arena& arena = Arena::Process();
  // A variable that is wrong is reported by hvd_init, which sets the limit again.
  if (const auto config = hvd::ConfigFromEnvironment()) {
    hvd::engine::LimitArena(config->arena_bytes, config->local_size);
  }
  source.begin = reinterpret_cast<const char*>(arena.base());
  source.bytes = arena.capacity();
  if (arena.shareable()) attach(&source);
}

}  // namespace
