// SPDX-License-Identifier: Apache-2.0
// Functions that glibc has got since 2.28 and that this project, libstdc++ or libgcc calls. Every library and program
// that is installed has its own hidden copy, so it runs from glibc 2.28 on, whatever the glibc of the build.
//
// Thread safety: as the functions of glibc.
#define _GNU_SOURCE
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <link.h>
#include <pthread.h>
#include <signal.h>
#include <stdint.h>
#include <string.h>
#include <sys/random.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

// 2.32. libstdc++ counts references without atomic instructions if it is set.
char __libc_single_threaded = 0;

// 2.33. On x86-64 the kernel fills the struct as glibc declares it.
int stat(const char* restrict path, struct stat* restrict out) {
  return (int)syscall(SYS_newfstatat, AT_FDCWD, path, out, 0);
}

int lstat(const char* restrict path, struct stat* restrict out) {
  return (int)syscall(SYS_newfstatat, AT_FDCWD, path, out, AT_SYMLINK_NOFOLLOW);
}

int fstat(int fd, struct stat* out) { return (int)syscall(SYS_fstat, fd, out); }

int fstat64(int fd, struct stat64* out) { return (int)syscall(SYS_fstat, fd, out); }

// 2.36, for std::random_device.
uint32_t arc4random(void) {
  uint32_t value;
  while (getrandom(&value, sizeof value, 0) != (ssize_t)sizeof value) {
  }
  return value;
}

// 2.29. The names of before set errno in more cases.
extern double OldExp(double x);
extern double OldExp2(double x);
extern double OldLog2(double x);
__asm__(".symver OldExp, exp@GLIBC_2.2.5");
__asm__(".symver OldExp2, exp2@GLIBC_2.2.5");
__asm__(".symver OldLog2, log2@GLIBC_2.2.5");

double exp(double x) { return OldExp(x); }

double exp2(double x) { return OldExp2(x); }

double log2(double x) { return OldLog2(x); }

// 2.30. A glibc that has the function is asked for it. An older one waits until a time of day: if the clock is set
// meanwhile, the wait ends early or late, and callers compare the monotonic time again.
int pthread_cond_clockwait(pthread_cond_t* restrict condition, pthread_mutex_t* restrict mutex, clockid_t clock,
                           const struct timespec* restrict until) {
  typedef int (*ClockWait)(pthread_cond_t*, pthread_mutex_t*, clockid_t, const struct timespec*);
  static const int64_t kSecond = 1000000000;
  static ClockWait from_glibc;  // threads that look it up at the same time find the same
  static int looked_up;
  if (!__atomic_load_n(&looked_up, __ATOMIC_ACQUIRE)) {
    __atomic_store_n(&from_glibc, (ClockWait)dlsym(RTLD_DEFAULT, "pthread_cond_clockwait"), __ATOMIC_RELAXED);
    __atomic_store_n(&looked_up, 1, __ATOMIC_RELEASE);
  }
  if (from_glibc != NULL) return from_glibc(condition, mutex, clock, until);
  struct timespec here, day;
  clock_gettime(clock, &here);
  clock_gettime(CLOCK_REALTIME, &day);
  const int64_t nanoseconds = (int64_t)day.tv_nsec + until->tv_nsec - here.tv_nsec;  // -1 s to 2 s
  day.tv_sec += until->tv_sec - here.tv_sec + (nanoseconds < 0 ? -1 : nanoseconds / kSecond);
  day.tv_nsec = (nanoseconds + kSecond) % kSecond;
  return pthread_cond_timedwait(condition, mutex, &day);
}

// 2.32.
const char* sigabbrev_np(int number) {
  static const char* const kNames[] = {
      [SIGHUP] = "HUP",   [SIGINT] = "INT",       [SIGQUIT] = "QUIT", [SIGILL] = "ILL",   [SIGTRAP] = "TRAP",
      [SIGABRT] = "ABRT", [SIGBUS] = "BUS",       [SIGFPE] = "FPE",   [SIGKILL] = "KILL", [SIGUSR1] = "USR1",
      [SIGSEGV] = "SEGV", [SIGUSR2] = "USR2",     [SIGPIPE] = "PIPE", [SIGALRM] = "ALRM", [SIGTERM] = "TERM",
      [SIGCHLD] = "CHLD", [SIGSTKFLT] = "STKFLT", [SIGCONT] = "CONT", [SIGSTOP] = "STOP", [SIGTSTP] = "TSTP",
      [SIGTTIN] = "TTIN", [SIGTTOU] = "TTOU",     [SIGURG] = "URG",   [SIGXCPU] = "XCPU", [SIGXFSZ] = "XFSZ",
      [SIGPROF] = "PROF", [SIGVTALRM] = "VTALRM", [SIGIO] = "POLL",   [SIGPWR] = "PWR",   [SIGWINCH] = "WINCH",
      [SIGSYS] = "SYS"};
  const int known = (int)(sizeof kNames / sizeof kNames[0]);
  return number > 0 && number < known ? kNames[number] : NULL;
}

struct Search {
  uintptr_t address;
  struct dl_find_object* result;
};

static int Examine(struct dl_phdr_info* object, size_t size, void* argument) {
  struct Search* search = argument;
  uintptr_t begin = UINTPTR_MAX, end = 0, frames = 0;
  int holds = 0;
  for (int i = 0; i < object->dlpi_phnum; ++i) {
    const ElfW(Phdr)* part = &object->dlpi_phdr[i];
    const uintptr_t first = object->dlpi_addr + part->p_vaddr;
    if (part->p_type == PT_GNU_EH_FRAME) frames = first;
    if (part->p_type != PT_LOAD) continue;
    holds = holds || (search->address >= first && search->address < first + part->p_memsz);
    if (first < begin) begin = first;
    if (first + part->p_memsz > end) end = first + part->p_memsz;
  }
  if (!holds) return 0;
  if (frames == 0) return -1;
  memset(search->result, 0, sizeof *search->result);
  search->result->dlfo_map_start = (void*)begin;
  search->result->dlfo_map_end = (void*)end;
  search->result->dlfo_eh_frame = (void*)frames;
  return 1;
}

// 2.35, for the unwinder of libgcc: where the object that holds an address keeps its tables. Nothing of ours reads the
// link map.
int _dl_find_object(void* address, struct dl_find_object* result) {
  struct Search search = {(uintptr_t)address, result};
  return dl_iterate_phdr(Examine, &search) == 1 ? 0 : -1;
}
