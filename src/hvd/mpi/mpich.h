// SPDX-License-Identifier: Apache-2.0
#pragma once
// MPICH and those that share its ABI (Intel MPI, MVAPICH, Cray MPICH): a handle is a number. The values are those of
// the common ABI that these libraries agreed on.

#include "hvd/mpi/library.h"

namespace hvd::mpi {

struct Mpich {
  static constexpr Family kFamily = Family::kMpich;
  using Comm = int;
  using Group = int;
  using Request = int;
  using Datatype = int;
  using Op = int;
  using Errhandler = int;

  explicit Mpich(void* /*library*/) {}
  static bool good() { return true; }
  static void* InPlace() { return reinterpret_cast<void*>(-1); }
  static void* StatusIgnore() { return reinterpret_cast<void*>(1); }

  Comm world = 0x44000000;
  Errhandler errors_return = 0x54000001;
  Datatype byte = 0x4c00010d;
  Datatype int32 = 0x4c000439;
  Datatype int64 = 0x4c00083a;
  Datatype float32 = 0x4c00040a;
  Datatype float64 = 0x4c00080b;
  Op sum = 0x58000003;
  Op min = 0x58000002;
  Op max = 0x58000001;
  Op product = 0x58000004;
};

}  // namespace hvd::mpi
