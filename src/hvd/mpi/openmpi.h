// SPDX-License-Identifier: Apache-2.0
#pragma once
// Open MPI and Spectrum MPI: a handle is the address of an object, and the predefined ones are exported by name.

#include <dlfcn.h>

#include "hvd/mpi/library.h"

namespace hvd::mpi {

struct OpenMpi {
  static constexpr Family kFamily = Family::kOpenMpi;
  using Comm = void*;
  using Group = void*;
  using Request = void*;
  using Datatype = void*;
  using Op = void*;
  using Errhandler = void*;

  explicit OpenMpi(void* library)
      : world(dlsym(library, "ompi_mpi_comm_world")),
        errors_return(dlsym(library, "ompi_mpi_errors_return")),
        byte(dlsym(library, "ompi_mpi_byte")),
        int32(dlsym(library, "ompi_mpi_int32_t")),
        int64(dlsym(library, "ompi_mpi_int64_t")),
        float32(dlsym(library, "ompi_mpi_float")),
        float64(dlsym(library, "ompi_mpi_double")),
        sum(dlsym(library, "ompi_mpi_op_sum")),
        min(dlsym(library, "ompi_mpi_op_min")),
        max(dlsym(library, "ompi_mpi_op_max")),
        product(dlsym(library, "ompi_mpi_op_prod")) {}

  bool good() const {
    for (const void* handle : {world, errors_return, byte, int32, int64, float32, float64, sum, min, max, product}) {
      if (handle == nullptr) return false;
    }
    return true;
  }
  static void* InPlace() { return reinterpret_cast<void*>(1); }
  static void* StatusIgnore() { return nullptr; }

  Comm world;
  Errhandler errors_return;
  Datatype byte, int32, int64, float32, float64;
  Op sum, min, max, product;
};

}  // namespace hvd::mpi
