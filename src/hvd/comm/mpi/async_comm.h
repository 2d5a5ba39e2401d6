// SPDX-License-Identifier: Apache-2.0
#pragma once
// The MPI communicator of a process set. Making one waits for all members, so it is made on another thread, and
// operations begin when it is there.
//
// Thread safety: any thread.
// Lifetime: shared with that thread, which may outlive everything else if a member never comes.

#include <atomic>
#include <memory>
#include <vector>

#include "hvd/mpi/library.h"

namespace hvd::comm::mpi {

class AsyncMpiComm {
 public:
  // `ranks` of `job`, all of which do the same; `tag` is equal for them, and no other group in the making has it.
  static std::shared_ptr<AsyncMpiComm> Make(::hvd::mpi::Library* library, ::hvd::mpi::Handle job,
                                            std::vector<int> ranks, int tag);

  bool ready() const { return state_.load(std::memory_order_acquire) == State::kReady; }
  bool failed() const { return state_.load(std::memory_order_acquire) == State::kFailed; }
  // Each of them when it is so.
  ::hvd::mpi::Handle comm() const { return comm_; }
  const Error& error() const { return error_; }

 private:
  enum class State { kMaking, kReady, kFailed };
  std::atomic<State> state_{State::kMaking};
  ::hvd::mpi::Handle comm_ = 0;
  Error error_;
};

}  // namespace hvd::comm::mpi
