# SPDX-License-Identifier: Apache-2.0
# For C and C++ programs outside this tree: library, headers, hvdConfig.cmake and hvd.pc, all movable with their prefix.
#
#   cmake --install build/release --prefix PREFIX --component dev
#
# Python's wheel takes component python alone, see src/hvd/CMakeLists.txt.
include(GNUInstallDirs)
include(CMakePackageConfigHelpers)

add_library(hvd::hvd ALIAS hvd)
target_include_directories(hvd INTERFACE $<BUILD_INTERFACE:${PROJECT_SOURCE_DIR}/include>
                                         $<INSTALL_INTERFACE:${CMAKE_INSTALL_INCLUDEDIR}>)
target_compile_features(hvd INTERFACE cxx_std_20)  # for hvd.hpp; C is not touched by it

set(HVD_CMAKE_DIR ${CMAKE_INSTALL_LIBDIR}/cmake/hvd)
configure_package_config_file(cmake/hvdConfig.cmake.in ${PROJECT_BINARY_DIR}/hvdConfig.cmake
                              INSTALL_DESTINATION ${HVD_CMAKE_DIR})
# Below 1.0 the minor number stands for what a program must be compiled for.
write_basic_package_version_file(${PROJECT_BINARY_DIR}/hvdConfigVersion.cmake COMPATIBILITY SameMinorVersion)
file(RELATIVE_PATH HVD_PC_TO_PREFIX /${CMAKE_INSTALL_LIBDIR}/pkgconfig /)  # ends with a slash
configure_file(cmake/hvd.pc.in ${PROJECT_BINARY_DIR}/hvd.pc @ONLY)

install(TARGETS hvd EXPORT hvdTargets LIBRARY DESTINATION ${CMAKE_INSTALL_LIBDIR} COMPONENT dev)
install(DIRECTORY include/hvd DESTINATION ${CMAKE_INSTALL_INCLUDEDIR} COMPONENT dev)
install(EXPORT hvdTargets NAMESPACE hvd:: DESTINATION ${HVD_CMAKE_DIR} COMPONENT dev)
install(FILES ${PROJECT_BINARY_DIR}/hvdConfig.cmake ${PROJECT_BINARY_DIR}/hvdConfigVersion.cmake
        DESTINATION ${HVD_CMAKE_DIR} COMPONENT dev)
install(FILES ${PROJECT_BINARY_DIR}/hvd.pc DESTINATION ${CMAKE_INSTALL_LIBDIR}/pkgconfig COMPONENT dev)
