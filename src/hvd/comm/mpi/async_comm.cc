// SPDX-License-Identifier: Apache-2.0
#include "hvd/comm/mpi/async_comm.h"

#include "hvd/mpi/session.h"

namespace hvd::comm::mpi {

std::shared_ptr<AsyncMpiComm> AsyncMpiComm::Make(::hvd::mpi::Library* library, ::hvd::mpi::Handle job,
                                                 std::vector<int> ranks, int tag) {
  auto group = std::make_shared<AsyncMpiComm>();
  ::hvd::mpi::InOrder([group, library, job, ranks = std::move(ranks), tag] {
    auto made = library->MakeComm(job, ranks, tag);
    if (made) {
      group->comm_ = *made;
    } else {
      group->error_ = made.error();
    }
    group->state_.store(made ? State::kReady : State::kFailed, std::memory_order_release);
  });
  return group;
}

}  // namespace hvd::comm::mpi
