// SPDX-License-Identifier: Apache-2.0
#pragma once
// Carries out agreed operations of one process set. Who is ready for what was decided above; here only data moves.
//
// Completion: a started operation is over when its machine says kDone: then its outputs are written, and neither a peer
// nor a kernel touches any of its buffers again. Thread safety: call with the progress token.

#include <cstdint>
#include <memory>
#include <vector>

#include "hvd/algorithms/table.h"
#include "hvd/base/result.h"
#include "hvd/base/types.h"
#include "hvd/collective/machine.h"
#include "hvd/collective/payload.h"
#include "hvd/kernel/kernel.h"

namespace hvd::comm {

// One agreed operation as this member sees it. Equal on all members but for the payload and the outputs.
struct Work {
  OpKind op = OpKind::kBarrier;
  DType dtype = DType::kUInt8;
  ReduceOp reduce_op = ReduceOp::kSum;
  kernel::Scale scale;
  int root = -1;  // member index; broadcast
  // Allreduce: inputs and outputs. Broadcast: input on the root, output elsewhere (and on the root). Else: the input.
  collective::Payload payload;
  // Allgather, alltoall: where what comes from all members goes, one after the other; reducescatter: where this
  // member's part of the result goes. nullptr: not wanted.
  std::byte* result_to = nullptr;
  // Allgather: every member's bytes. Reducescatter: of every member's part, in order, together the input.
  std::vector<size_t> member_bytes;
  // Alltoall: bytes from member i to member j at [i * members + j]; an input holds the parts in the order of j.
  std::vector<size_t> exchange_bytes;
  bool direct = true;  // peers may use arena memory in place; false for an operation that may be given up half-way
  bool alone = false;  // nothing else of this rank waits for it
};

// What a timeline calls the movement of data. Names are those of Horovod's timelines, behind the transport's.
struct ActivityNames {
  const char* allreduce;
  const char* adasum;
  const char* allgather;
  const char* broadcast;
  const char* alltoall;
  const char* reducescatter;
};

inline constexpr ActivityNames kShmActivities{"SHM_ALLREDUCE", "SHM_ADASUM_ALLREDUCE", "SHM_ALLGATHER",
                                              "SHM_BCAST",     "SHM_ALLTOALL",         "SHM_REDUCESCATTER"};
inline constexpr ActivityNames kTcpActivities{"TCP_ALLREDUCE", "TCP_ADASUM_ALLREDUCE", "TCP_ALLGATHER",
                                              "TCP_BCAST",     "TCP_ALLTOALL",         "TCP_REDUCESCATTER"};
inline constexpr ActivityNames kMpiActivities{"MPI_ALLREDUCE", "MPI_ADASUM_ALLREDUCE", "MPI_ALLGATHER",
                                              "MPI_BCAST",     "MPI_ALLTOALL",         "MPI_REDUCESCATTER"};

class Communicator {
 public:
  virtual ~Communicator() = default;
  // Begins `work` at `position`. All members begin the same work at the same positions, in ascending order, each once.
  // `work` stays the caller's until the machine is done.
  virtual std::unique_ptr<collective::Machine> Start(uint64_t position, const Work* work) = 0;
  // From position `from` on, which nobody has started yet, the sizes of this table count; all members say so for the
  // same position. Below `oldest` everything is over.
  virtual void Retune(uint64_t /*from*/, uint64_t /*oldest*/, const algorithms::Table& /*table*/) {}
  // The names of its activities in a timeline.
  virtual const ActivityNames& activities() const = 0;
  // Whether something that was started moves only when it is stepped, because nothing announces that it could.
  virtual bool polled() const { return false; }
};

}  // namespace hvd::comm
