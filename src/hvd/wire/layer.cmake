# SPDX-License-Identifier: Apache-2.0
# control_generated.h is included by this layer's .cc files only, so being a source of hvd_wire is dependency enough.
set(HVD_CONTROL_SCHEMA ${CMAKE_CURRENT_LIST_DIR}/control.fbs)
set(HVD_CONTROL_HEADER ${PROJECT_BINARY_DIR}/generated/hvd/wire/control_generated.h)
add_custom_command(
  OUTPUT ${HVD_CONTROL_HEADER}
  COMMAND ${HVD_FLATC} --cpp --cpp-std c++17 --scoped-enums -o ${PROJECT_BINARY_DIR}/generated/hvd/wire
          ${HVD_CONTROL_SCHEMA}
  DEPENDS ${HVD_CONTROL_SCHEMA}
  COMMENT "Generating control_generated.h"
  VERBATIM)
target_sources(hvd_wire PRIVATE ${HVD_CONTROL_HEADER})
