# SPDX-License-Identifier: Apache-2.0
# What is installed runs from glibc 2.28 on (RHEL 8, Debian 10, Ubuntu 20.04), although a newer glibc and its headers build
# it. src/glibc has the functions that 2.28 lacks. Its symbols.txt lists the names that 2.28 has in other libraries or
# under other versions; this file makes empty libraries of these names to link against. A program finds glibc's own ones.
include(CheckCSourceCompiles)
check_c_source_compiles("#include <features.h>
#if !defined(__x86_64__) || !__GLIBC_PREREQ(2, 35)
#error
#endif
int main(void) { return 0; }" HVD_IS_NEW_GLIBC)
if(HVD_IS_NEW_GLIBC AND NOT HVD_SANITIZE AND NOT HVD_FUZZ)
  set(HVD_OLD_GLIBC_DEFAULT ON)
endif()
option(HVD_OLD_GLIBC "Make what is installed for glibc 2.28 and newer" ${HVD_OLD_GLIBC_DEFAULT})

set(HVD_STUBS)
if(HVD_OLD_GLIBC)
  set(symbols ${PROJECT_SOURCE_DIR}/src/glibc/symbols.txt)
  set_property(DIRECTORY APPEND PROPERTY CMAKE_CONFIGURE_DEPENDS ${symbols})
  file(STRINGS ${symbols} lines REGEX "^[^#]")
  foreach(line IN LISTS lines)
    separate_arguments(words UNIX_COMMAND "${line}")
    list(POP_FRONT words library version)
    list(APPEND libraries ${library})
    list(APPEND versions_${library} ${version})
    list(APPEND names_${library}_${version} ${words})
  endforeach()
  list(REMOVE_DUPLICATES libraries)
  foreach(library IN LISTS libraries)
    set(source "")
    set(map "")
    list(REMOVE_DUPLICATES versions_${library})
    foreach(version IN LISTS versions_${library})
      list(JOIN names_${library}_${version} "; " names)
      string(APPEND map "${version} { ${names}; };\n")
      list(TRANSFORM names_${library}_${version} REPLACE "(.+)" "void \\1(void) {}\n" OUTPUT_VARIABLE functions)
      list(JOIN functions "" functions)
      string(APPEND source "${functions}")
    endforeach()
    set(base ${PROJECT_BINARY_DIR}/glibc/${library})
    file(CONFIGURE OUTPUT ${base}.c CONTENT "${source}" @ONLY)
    file(CONFIGURE OUTPUT ${base}.map CONTENT "${map}" @ONLY)
    add_custom_command(
      OUTPUT ${base}
      COMMAND ${CMAKE_C_COMPILER} -shared -fPIC -fno-builtin -w -nostdlib -Wl,-soname,${library}
              -Wl,--version-script,${base}.map -o ${base} ${base}.c
      DEPENDS ${base}.c ${base}.map
      VERBATIM)
    list(APPEND HVD_STUBS ${base})
  endforeach()
  add_custom_target(hvd_stubs DEPENDS ${HVD_STUBS})
endif()

# Makes a library or program that is installed run from glibc 2.28 on.
function(hvd_run_on_old_glibc target)
  if(NOT HVD_OLD_GLIBC)
    return()
  endif()
  target_sources(${target} PRIVATE ${PROJECT_SOURCE_DIR}/src/glibc/functions.c)
  get_target_property(type ${target} TYPE)
  if(type STREQUAL EXECUTABLE)
    target_sources(${target} PRIVATE ${PROJECT_SOURCE_DIR}/src/glibc/start.c)
  endif()
  set_source_files_properties(${PROJECT_SOURCE_DIR}/src/glibc/functions.c ${PROJECT_SOURCE_DIR}/src/glibc/start.c
                              TARGET_DIRECTORY ${target} PROPERTIES SKIP_UNITY_BUILD_INCLUSION ON
                              COMPILE_OPTIONS "-ffunction-sections;-fno-builtin")
  # As options: CMake would let programs of the build tree look for a library in its folder.
  target_link_options(${target} PRIVATE -Wl,--push-state,--no-as-needed ${HVD_STUBS} -Wl,--pop-state)
  set_property(TARGET ${target} APPEND PROPERTY LINK_DEPENDS ${HVD_STUBS})
  add_dependencies(${target} hvd_stubs)
endfunction()
