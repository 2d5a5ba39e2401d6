/* SPDX-License-Identifier: Apache-2.0 */
/* libhvd_heap.so: malloc and its family for preloaded ranks. A block of at least kLeast bytes comes from the arena of
 * libhvd.so once that is loaded; every other block comes from the allocator that the program has without this library.
 * An address tells whose block it is, so blocks may be freed at any time, in any thread and after hvd.shutdown().
 * In a process without libhvd.so this library passes every call on. */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <errno.h>
#include <malloc.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "hvd/heap/source.h"

#define API __attribute__((visibility("default")))

/* Smaller blocks are not worth a lock, and the allocator of the program serves them without page faults. */
static const size_t kLeast = 256 << 10;

static struct {
  void* (*malloc)(size_t);
  void* (*calloc)(size_t, size_t);
  void* (*realloc)(void*, size_t);
  void (*free)(void*);
  void* (*memalign)(size_t, size_t);
  int (*posix_memalign)(void**, size_t, size_t);
  void* (*aligned_alloc)(size_t, size_t);
  void* (*valloc)(size_t);
  void* (*pvalloc)(size_t);
  size_t (*malloc_usable_size)(void*);
} next;

/* dlsym allocates. What it asks for before the other allocator is known lies here, and is never freed. */
static _Alignas(16) char early[64 << 10];
static _Atomic size_t early_used;
static __thread int finding __attribute__((tls_model("initial-exec")));
static __thread int inside __attribute__((tls_model("initial-exec"))); /* a call of the source is running */

static _Atomic(const struct hvd_heap_source*) source;

static void* Early(size_t bytes) {
  const size_t at = atomic_fetch_add(&early_used, (bytes + 15) / 16 * 16 + 16);
  if (at + bytes + 16 > sizeof early) abort();
  memcpy(early + at, &bytes, sizeof bytes); /* for realloc */
  return early + at + 16;
}

static int IsEarly(const void* block) { return (uintptr_t)block - (uintptr_t)early < sizeof early; }

static size_t EarlyBytes(const void* block) {
  size_t bytes;
  memcpy(&bytes, (const char*)block - 16, sizeof bytes);
  return bytes;
}

__attribute__((constructor)) static void Find(void) {
  if (next.free != NULL || finding) return;
  finding = 1;
  next.malloc = dlsym(RTLD_NEXT, "malloc");
  next.calloc = dlsym(RTLD_NEXT, "calloc");
  next.realloc = dlsym(RTLD_NEXT, "realloc");
  next.memalign = dlsym(RTLD_NEXT, "memalign");
  next.posix_memalign = dlsym(RTLD_NEXT, "posix_memalign");
  next.aligned_alloc = dlsym(RTLD_NEXT, "aligned_alloc");
  next.valloc = dlsym(RTLD_NEXT, "valloc");
  next.pvalloc = dlsym(RTLD_NEXT, "pvalloc");
  next.malloc_usable_size = dlsym(RTLD_NEXT, "malloc_usable_size");
  next.free = dlsym(RTLD_NEXT, "free");
  finding = 0;
}

static int Found(void) {
  if (__builtin_expect(next.free == NULL, 0)) Find();
  return !finding;
}

static int IsOurs(const void* block) {
  const struct hvd_heap_source* from = atomic_load_explicit(&source, memory_order_acquire);
  return from != NULL && (uintptr_t)block - (uintptr_t)from->begin < from->bytes;
}

/* A block of the arena, or NULL. */
static void* Allocate(size_t bytes, int* zeroed) {
  if (__builtin_expect(bytes < kLeast, 1)) return NULL;
  const struct hvd_heap_source* from = atomic_load_explicit(&source, memory_order_acquire);
  if (from == NULL || inside) return NULL;
  const int before = errno;
  inside = 1;
  void* const block = from->allocate(bytes, zeroed);
  inside = 0;
  errno = before;
  return block;
}

static size_t OurBytes(const void* block) { return atomic_load(&source)->bytes_of(block); }

static void Release(void* block) {
  const int before = errno;
  const int outer = inside;
  inside = 1;
  atomic_load(&source)->release(block);
  inside = outer;
  errno = before;
}

/* Called by libhvd.so when it is loaded. */
API void hvd_heap_attach(const struct hvd_heap_source* from) {
  const char* const wanted = getenv("HOROVOD_HEAP");
  if (wanted != NULL && strcmp(wanted, "arena") != 0) return;
  static const char* const kSanitizers[] = {"__asan_init", "__tsan_init", "__msan_init", "__lsan_init"};
  for (size_t i = 0; i < sizeof kSanitizers / sizeof *kSanitizers; ++i) {
    if (dlsym(RTLD_DEFAULT, kSanitizers[i]) == NULL) continue;
    fputs("hvd: the arena heap is off, because a sanitizer has the heap of this process\n", stderr);
    return;
  }
  atomic_store_explicit(&source, from, memory_order_release);
}

static struct {
  void (*prepare)(void);
  void (*parent)(void);
  void (*child)(void);
} fork_handlers;
static atomic_int has_fork_handlers;
static __thread int prepared __attribute__((tls_model("initial-exec"))); /* the fork began with handlers */

static void PrepareFork(void) {
  prepared = atomic_load_explicit(&has_fork_handlers, memory_order_acquire);
  if (prepared) fork_handlers.prepare();
}

static void EndForkInParent(void) {
  if (prepared) fork_handlers.parent();
}

static void EndForkInChild(void) {
  if (prepared) fork_handlers.child();
}

__attribute__((constructor)) static void RegisterFork(void) {
  /* Makes the other allocator register its handlers first. A thread that has hvd's locks may want the allocator's, so
   * a fork must take them in that order, too: the last that is registered is the first that prepares. */
  free(malloc(1));
  pthread_atfork(PrepareFork, EndForkInParent, EndForkInChild);
}

/* Called by libhvd.so when it is loaded. */
API int hvd_heap_at_fork(void (*prepare)(void), void (*parent)(void), void (*child)(void)) {
  fork_handlers.prepare = prepare;
  fork_handlers.parent = parent;
  fork_handlers.child = child;
  atomic_store_explicit(&has_fork_handlers, 1, memory_order_release);
  return 0;
}

API void* malloc(size_t bytes) {
  int zeroed;
  void* const block = Allocate(bytes, &zeroed);
  if (block != NULL) return block;
  return Found() ? next.malloc(bytes) : Early(bytes);
}

API void free(void* block) {
  if (IsOurs(block)) {
    Release(block);
  } else if (!IsEarly(block) && Found()) {
    next.free(block);
  }
}

API void* calloc(size_t count, size_t size) {
  size_t bytes;
  if (__builtin_mul_overflow(count, size, &bytes)) {
    errno = ENOMEM;
    return NULL;
  }
  int zeroed = 0;
  void* const block = Allocate(bytes, &zeroed);
  if (block != NULL) return zeroed ? block : memset(block, 0, bytes);
  return Found() ? next.calloc(count, size) : Early(bytes);
}

API void* realloc(void* block, size_t bytes) {
  const int ours = IsOurs(block);
  if (!ours && !IsEarly(block)) {
    if (block == NULL) return malloc(bytes);
    /* Where it is the other allocator may grow it without a copy. */
    return Found() ? next.realloc(block, bytes) : NULL;
  }
  if (ours && bytes == 0) {
    Release(block);
    return NULL;
  }
  const size_t has = ours ? OurBytes(block) : EarlyBytes(block);
  if (bytes <= has && bytes >= has / 2) return block;
  void* const moved = malloc(bytes);
  if (moved == NULL) return NULL;
  memcpy(moved, block, bytes < has ? bytes : has);
  free(block);
  return moved;
}

API void* reallocarray(void* block, size_t count, size_t size) {
  size_t bytes;
  if (__builtin_mul_overflow(count, size, &bytes)) {
    errno = ENOMEM;
    return NULL;
  }
  return realloc(block, bytes);
}

/* Blocks of the arena begin at a page. */
static void* AllocateAligned(size_t alignment, size_t bytes) {
  int zeroed;
  return alignment <= 4096 ? Allocate(bytes, &zeroed) : NULL;
}

API int posix_memalign(void** to, size_t alignment, size_t bytes) {
  const int valid = alignment >= sizeof(void*) && (alignment & (alignment - 1)) == 0;
  void* const block = valid ? AllocateAligned(alignment, bytes) : NULL;
  if (block == NULL) return Found() ? next.posix_memalign(to, alignment, bytes) : ENOMEM;
  *to = block;
  return 0;
}

API void* aligned_alloc(size_t alignment, size_t bytes) {
  void* const block = AllocateAligned(alignment, bytes);
  if (block != NULL) return block;
  return Found() ? next.aligned_alloc(alignment, bytes) : NULL;
}

API void* memalign(size_t alignment, size_t bytes) {
  void* const block = AllocateAligned(alignment, bytes);
  if (block != NULL) return block;
  return Found() ? next.memalign(alignment, bytes) : NULL;
}

API void* valloc(size_t bytes) { return Found() ? next.valloc(bytes) : NULL; }

API void* pvalloc(size_t bytes) { return Found() ? next.pvalloc(bytes) : NULL; }

API size_t malloc_usable_size(void* block) {
  if (IsOurs(block)) return OurBytes(block);
  if (IsEarly(block)) return EarlyBytes(block);
  return Found() ? next.malloc_usable_size(block) : 0;
}
