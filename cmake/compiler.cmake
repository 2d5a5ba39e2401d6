# SPDX-License-Identifier: Apache-2.0
# One place for flags. Kernels must not contract a*b+c: sums are bit-identical everywhere.
set(CMAKE_CXX_STANDARD 20)
set(CMAKE_CXX_STANDARD_REQUIRED ON)
set(CMAKE_CXX_EXTENSIONS OFF)
set(CMAKE_POSITION_INDEPENDENT_CODE ON)
set(CMAKE_C_VISIBILITY_PRESET hidden)
set(CMAKE_CXX_VISIBILITY_PRESET hidden)
set(CMAKE_VISIBILITY_INLINES_HIDDEN ON)
set(CMAKE_EXPORT_COMPILE_COMMANDS ON)

# Eight files of a folder are compiled as one: most of the time went into the headers that they share. A file must compile
# alone, too: -DCMAKE_UNITY_BUILD=OFF.
set(CMAKE_UNITY_BUILD ON CACHE BOOL "Compile several files of a target at once")
set(CMAKE_UNITY_BUILD_BATCH_SIZE 8 CACHE STRING "How many at once; 0: all of a target")

add_compile_options(-Wall -Wextra -Wno-unused-parameter -Wno-missing-field-initializers -ffp-contract=off -fno-math-errno)
if(HVD_SANITIZE)
  add_compile_options(-fsanitize=${HVD_SANITIZE} -fno-sanitize-recover=all -fno-omit-frame-pointer -g1)
  add_link_options(-fsanitize=${HVD_SANITIZE})
  # What the sanitizer puts between hides from GCC that a string is initialised (its manual warns of this). The release
  # build has the warning.
  add_compile_options($<$<CXX_COMPILER_ID:GNU>:-Wno-maybe-uninitialized>)
endif()
if(HVD_FUZZ)
  # The libraries too tell the fuzzer which of their branches an input took.
  add_compile_options(-fsanitize=fuzzer-no-link)
endif()

find_program(HVD_CCACHE ccache)
if(HVD_CCACHE)
  # Objects do not depend on where the clone lies: another clone on this machine compiles nothing twice.
  set(HVD_CCACHE_LAUNCHER env CCACHE_NOHASHDIR=1 CCACHE_BASEDIR=${PROJECT_SOURCE_DIR} ${HVD_CCACHE})
  set(CMAKE_C_COMPILER_LAUNCHER ${HVD_CCACHE_LAUNCHER})
  set(CMAKE_CXX_COMPILER_LAUNCHER ${HVD_CCACHE_LAUNCHER})
endif()
