// SPDX-License-Identifier: Apache-2.0
// For programs. Their first instructions come from the glibc of the build and leave it to glibc to call the program's
// constructors, which only glibc 2.34 and newer do. They call this function instead; it starts the program as programs
// made with an older glibc start, and such programs bring along what calls their constructors.
#include <stddef.h>

typedef int (*Main)(int, char**, char**);
typedef void (*Function)(int, char**, char**);

extern int StartOldProgram(Main main, int argc, char** argv, Function init, void (*fini)(void), void (*rtld_fini)(void),
                           void* stack_end);
__asm__(".symver StartOldProgram, __libc_start_main@GLIBC_2.2.5");

extern void _init(void);
extern Function __init_array_start[] __attribute__((visibility("hidden")));
extern Function __init_array_end[] __attribute__((visibility("hidden")));

static void CallConstructors(int argc, char** argv, char** environment) {
  _init();
  const ptrdiff_t count = __init_array_end - __init_array_start;
  for (ptrdiff_t i = 0; i < count; ++i) __init_array_start[i](argc, argv, environment);
}

int __libc_start_main(Main main, int argc, char** argv, Function init, void (*fini)(void), void (*rtld_fini)(void),
                      void* stack_end) {
  return StartOldProgram(main, argc, argv, CallConstructors, fini, rtld_fini, stack_end);
}
