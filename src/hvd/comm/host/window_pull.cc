// SPDX-License-Identifier: Apache-2.0
// Allgather, broadcast and alltoall of large data: whether it is staged, or fetched out of its owners' memory.
#include "hvd/collective/window/chunked_pull.h"
#include "hvd/collective/window/fetched_pull.h"
#include "hvd/comm/host/window_communicator.h"
#include "hvd/comm/traffic.h"

namespace hvd::comm::host {

using collective::Machine;
using collective::Progress;
using collective::window::ChunkedPull;
using collective::window::FetchedPull;
using collective::window::Meeting;

namespace {

class TimedMachine final : public Machine {
 public:
  TimedMachine(std::unique_ptr<Machine> inner, const Clock* clock, Trial* trial, const Work& work, bool fetched)
      : inner_(std::move(inner)),
        clock_(clock),
        trial_(trial),
        op_(work.op),
        bytes_(work.payload.bytes()),
        fetched_(fetched),
        begun_(clock->Now()) {}

  Progress Step() override {
    const Progress progress = inner_->Step();
    if (progress == Progress::kDone) trial_->Measured(op_, bytes_, fetched_, clock_->Now() - begun_);
    return progress;
  }
  void CollectAwaited(std::vector<int>* members) const override { inner_->CollectAwaited(members); }
  Error error() const override { return inner_->error(); }

 private:
  const std::unique_ptr<Machine> inner_;
  const Clock* const clock_;
  Trial* const trial_;
  const OpKind op_;
  const size_t bytes_;
  const bool fetched_;
  const Time begun_;
};

}  // namespace

bool WindowCommunicator::MayBeFetched(const Work& work) const {
  return options_.clock != nullptr && work.direct && work.payload.pieces().size() == 1 &&
         options_.places.For(work.op).fetched.Has(work.payload.bytes());
}

uint64_t WindowCommunicator::Offer(uint64_t position, const Work& work, collective::window::Place place) {
  constexpr uint64_t kAble = 1;
  const size_t bytes = work.payload.bytes();
  if (place != collective::window::Place::kStaged) {
    const bool matters = options_.clock != nullptr && (bytes == 0 || options_.places.For(work.op).fetched.Has(bytes));
    return matters && options_.window->CanReadPeers() ? kAble : 0;
  }
  if (!MayBeFetched(work) || !options_.window->CanReadPeers()) return 0;
  const collective::Piece& piece = work.payload.pieces()[0];
  if (options_.places.For(work.op).fetched_on_trial && !trial_.Offers(work.op, piece.bytes, position)) return 0;
  return options_.window->Readable(piece.in, piece.bytes) ? reinterpret_cast<uint64_t>(piece.in) : 0;
}

std::unique_ptr<Machine> WindowCommunicator::BeginPull(const Meeting& meeting, const Work* work) {
  std::vector<ChunkedPull::Source> sources;
  const auto& pieces = work->payload.pieces();
  if (work->op == OpKind::kBroadcast) {
    const size_t bytes = work->payload.bytes();
    const bool copies = work->root != stream_.me() || pieces[0].out != pieces[0].in;
    sources.push_back({work->root, bytes, {0, bytes}, copies ? pieces[0].out : nullptr});
  } else {
    const Traffic traffic(*work, stream_.me());
    for (int m = 0; m < stream_.members(); ++m) {
      std::byte* to = work->result_to == nullptr ? nullptr : work->result_to + traffic.ResultAt(m);
      sources.push_back({m, traffic.Brings(m), traffic.Incoming(m), to});
    }
  }
  const bool fetched = IsFetched(meeting);
  std::unique_ptr<Machine> machine;
  if (fetched) {
    machine = std::make_unique<FetchedPull>(meeting, std::move(sources), pieces.empty() ? nullptr : pieces[0].in);
  } else {
    machine = std::make_unique<ChunkedPull>(meeting, std::move(sources), &work->payload);
  }
  // Who has nothing to offer has no say in it.
  const bool counts = options_.places.For(work->op).fetched_on_trial && MayBeFetched(*work) &&
                      meeting.header(stream_.me()).place == collective::window::Place::kStaged;
  if (!counts) return machine;
  return std::make_unique<TimedMachine>(std::move(machine), options_.clock, &trial_, *work, fetched);
}

}  // namespace hvd::comm::host
