// SPDX-License-Identifier: Apache-2.0
#pragma once
// An MPI library that was opened at run time: the few calls that the engine makes, whichever MPI it is. MPIs differ in
// what a handle is (Open MPI: an address, MPICH and its relatives: a number), so there is one table per ABI behind
// this.
//
// Thread safety: as the level of threads that MPI was initialised with allows.
// Lifetime: for ever. MPI cannot be closed or initialised twice.

#include <cstdint>
#include <optional>
#include <span>
#include <string>

#include "hvd/base/result.h"
#include "hvd/base/types.h"

namespace hvd::mpi {

enum class Family { kOpenMpi, kMpich };
std::string_view NameOf(Family family);

// An MPI_Comm or MPI_Request of either ABI.
using Handle = uintptr_t;

// MPI_THREAD_SINGLE ... are the same numbers in all MPIs.
enum class Threads { kSingle = 0, kFunneled = 1, kSerialized = 2, kMultiple = 3 };

class Library {
 public:
  virtual ~Library() = default;
  virtual Family family() const = 0;
  // "Open MPI v4.1.4 (libmpi.so.40)".
  const std::string& name() const { return name_; }

  virtual bool Initialized() = 0;
  virtual bool Finalized() = 0;
  virtual Status Init(Threads wanted) = 0;
  virtual Threads ThreadLevel() = 0;
  virtual void Finalize() = 0;
  // Ends the whole job.
  virtual void Abort(int status) = 0;

  virtual Handle World() = 0;
  // Reads an MPI_Comm of this ABI.
  virtual Handle CommAt(const void* address) = 0;
  virtual int Rank(Handle comm) = 0;
  virtual int Size(Handle comm) = 0;
  // Of these ranks of `comm`, which all call it and wait for each other; errors on it are returned. `tag` keeps several
  // that are made at once apart.
  virtual Result<Handle> MakeComm(Handle comm, std::span<const int> ranks, int tag) = 0;

  // These begin; Test says when they are over. Buffers stay valid until then. Counts are bytes.
  virtual Result<Handle> Broadcast(void* data, int bytes, int root, Handle comm) = 0;
  virtual Result<Handle> Gather(const void* mine, int bytes, void* all, const int* counts, const int* offsets,
                                Handle comm) = 0;
  virtual Result<Handle> Exchange(const void* out, const int* out_counts, const int* out_offsets, void* in,
                                  const int* in_counts, const int* in_offsets, Handle comm) = 0;
  // Whether MPI itself knows this reduction of this type, with the same meaning as the kernels.
  virtual bool Reduces(ReduceOp op, DType type) = 0;
  // In place. `count` elements.
  virtual Result<Handle> Reduce(void* data, int count, ReduceOp op, DType type, Handle comm) = 0;
  virtual Result<bool> Test(Handle* request) = 0;

 protected:
  std::string name_;
};

// One that this process has loaded already, else the one at `path`, else one of the usual names. `wanted`: what started
// the job; a library of another family is an error that names both (kFailedPrecondition), since each process would be a
// job of its own. kNotFound: there is none. Always gives the same.
Result<Library*> Open(std::optional<Family> wanted, const std::string& path);

}  // namespace hvd::mpi
