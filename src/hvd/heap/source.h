/* SPDX-License-Identifier: Apache-2.0 */
#pragma once
/* Between libhvd.so, which has an arena, and libhvd_heap.so, which takes large blocks of malloc from it. Both come from
 * one build. When libhvd.so is loaded it looks for hvd_heap_attach and hvd_heap_at_fork, which are there only in a
 * preloaded process.
 *
 * Thread safety: all functions may run on any thread. Lifetime: the source lives until the process ends. */
#include <stddef.h>
#include <stdint.h>

struct hvd_heap_source {
  const char* begin; /* addresses of blocks are in [begin, begin + bytes) */
  uint64_t bytes;
  /* Returns page-aligned memory, or NULL: then the block is the other allocator's. *zeroed: whether all of it is 0. */
  void* (*allocate)(uint64_t bytes, int* zeroed);
  uint64_t (*bytes_of)(const void* block);
  void (*release)(void* block);
};

typedef void (*hvd_heap_attach_fn)(const struct hvd_heap_source* source);

/* As pthread_atfork, whose signature it has, but as if called when the process started: `prepare` runs after the
 * handlers of libraries that were loaded later, `parent` and `child` before them. Call it once. */
typedef int (*hvd_heap_at_fork_fn)(void (*prepare)(void), void (*parent)(void), void (*child)(void));
