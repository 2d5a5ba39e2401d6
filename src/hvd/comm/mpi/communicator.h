// SPDX-License-Identifier: Apache-2.0
#pragma once
// Carries out operations by MPI's non-blocking collectives (HOROVOD_CPU_OPERATIONS=mpi).
//
// MPI wants the collectives of a communicator to begin in the same order everywhere, and an operation may need several
// of them, so one operation at a time runs here: that of the lowest position. MPI moves data only inside its calls, so
// a running operation must be stepped again and again (polled).

#include <memory>
#include <vector>

#include "hvd/comm/communicator.h"
#include "hvd/comm/mpi/async_comm.h"

namespace hvd::comm::mpi {

struct Options {
  ::hvd::mpi::Library* library = nullptr;
  std::shared_ptr<AsyncMpiComm> group;
  int members = 0;
  int me = 0;
  size_t round_bytes = 8 << 20;  // staged at a time; far below the 2^31 that MPI counts to
};

class Communicator final : public comm::Communicator {
 public:
  explicit Communicator(Options options) : options_(std::move(options)) {}
  std::unique_ptr<collective::Machine> Start(uint64_t position, const Work* work) override;
  const ActivityNames& activities() const override { return kMpiActivities; }
  bool polled() const override { return running_ > 0; }

  // For its machines.
  const Options& options() const { return options_; }
  bool IsNext(uint64_t position) const { return position == next_; }
  void Begun() { ++running_; }
  void Finished() { ++next_; }
  void Gone() { --running_; }

 private:
  const Options options_;
  uint64_t next_ = 0;  // position that runs
  int running_ = 0;
};

}  // namespace hvd::comm::mpi
