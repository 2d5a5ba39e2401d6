// SPDX-License-Identifier: Apache-2.0
#include "hvd/comm/mpi/communicator.h"

#include <optional>

#include "hvd/comm/mpi/steps.h"

namespace hvd::comm::mpi {
namespace {

using collective::Progress;

class Operation final : public collective::Machine {
 public:
  Operation(Communicator* communicator, uint64_t position, const Work* work)
      : communicator_(communicator), position_(position), steps_(MakeSteps(communicator->options(), work)) {
    communicator_->Begun();
  }
  ~Operation() override {
    communicator_->Gone();
    // MPI may still read and write its buffers: nobody else gets them, ever.
    if (in_flight_) (void)steps_.release();
  }

  Progress Step() override {
    if (!communicator_->IsNext(position_)) return Progress::kWaiting;
    const AsyncMpiComm& group = *communicator_->options().group;
    if (group.failed()) return GiveUp(group.error());
    if (!group.ready()) return Progress::kWaiting;
    if (in_flight_) {
      const auto over = communicator_->options().library->Test(&request_);
      if (!over) return GiveUp(over.error());
      if (!*over) return Progress::kWaiting;
      in_flight_ = false;
    }
    const auto more = steps_->Next(group.comm(), &request_);
    if (!more) return GiveUp(more.error());
    in_flight_ = *more;
    if (in_flight_) return Progress::kMoved;
    communicator_->Finished();
    return Progress::kDone;
  }

  void CollectAwaited(std::vector<int>* members) const override {
    for (int m = 0; m < communicator_->options().members; ++m) {
      if (m != communicator_->options().me) members->push_back(m);
    }
  }
  Error error() const override { return error_; }

 private:
  Progress GiveUp(const Error& error) {
    error_ = error;
    return Progress::kFailed;
  }

  Communicator* const communicator_;
  const uint64_t position_;
  std::unique_ptr<Steps> steps_;
  ::hvd::mpi::Handle request_ = 0;
  bool in_flight_ = false;
  Error error_;
};

}  // namespace

std::unique_ptr<collective::Machine> Communicator::Start(uint64_t position, const Work* work) {
  return std::make_unique<Operation>(this, position, work);
}

}  // namespace hvd::comm::mpi
