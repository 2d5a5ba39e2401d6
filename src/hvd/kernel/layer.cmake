# SPDX-License-Identifier: Apache-2.0
# No -m flags here: Highway's pragmas widen the instruction set function by function, and only there.
set_source_files_properties(${CMAKE_CURRENT_LIST_DIR}/float.cc ${CMAKE_CURRENT_LIST_DIR}/half.cc
                            ${CMAKE_CURRENT_LIST_DIR}/integer.cc PROPERTIES COMPILE_OPTIONS "-O2")
# A compiler that knows the loop of a copy makes a call of memcpy of it.
set_source_files_properties(${CMAKE_CURRENT_LIST_DIR}/copy.cc PROPERTIES COMPILE_OPTIONS "-O2;-fno-builtin")
set_source_files_properties(${CMAKE_CURRENT_LIST_DIR}/integer_scale.cc PROPERTIES COMPILE_OPTIONS
                                                                                  "-O3;-fno-trapping-math")
