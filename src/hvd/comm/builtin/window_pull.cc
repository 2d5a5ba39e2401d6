// SPDX-License-Identifier: Apache-2.0
// Allgather, broadcast and alltoall of large data: whether it is staged, or read out of its owners' memory (CMA).
#include "hvd/collective/window/chunked_pull.h"
#include "hvd/collective/window/cma_pull.h"
#include "hvd/comm/builtin/window_communicator.h"
#include "hvd/comm/exchange_layout.h"

namespace hvd::comm::builtin {

using collective::Machine;
using collective::Progress;
using collective::window::ChunkedPull;
using collective::window::CmaPull;
using collective::window::PositionView;

namespace {

class TimedMachine final : public Machine {
 public:
  TimedMachine(std::unique_ptr<Machine> inner, const Clock* clock, VariantSelector* selector, const Work& work,
               bool cma)
      : inner_(std::move(inner)),
        clock_(clock),
        selector_(selector),
        op_(work.op),
        bytes_(work.payload.bytes()),
        cma_(cma),
        begun_(clock->Now()) {}

  Progress Step() override {
    const Progress progress = inner_->Step();
    if (progress == Progress::kDone) selector_->Measured(op_, bytes_, cma_, clock_->Now() - begun_);
    return progress;
  }
  void CollectAwaited(std::vector<int>* members) const override { inner_->CollectAwaited(members); }
  int Damaged() const override { return inner_->Damaged(); }
  Error error() const override { return inner_->error(); }

 private:
  const std::unique_ptr<Machine> inner_;
  const Clock* const clock_;
  VariantSelector* const selector_;
  const OpKind op_;
  const size_t bytes_;
  const bool cma_;
  const Time begun_;
};

}  // namespace

bool WindowCommunicator::MayBeCma(const Work& work) const {
  return options_.clock != nullptr && work.direct && work.payload.pieces().size() == 1 &&
         options_.locations.For(work.op).cma.Has(work.payload.bytes());
}

uint64_t WindowCommunicator::Offer(uint64_t position, const Work& work, collective::window::DataLocation location) {
  constexpr uint64_t kAble = 1;
  const size_t bytes = work.payload.bytes();
  if (location != collective::window::DataLocation::kStaged) {
    const bool matters = options_.clock != nullptr && (bytes == 0 || options_.locations.For(work.op).cma.Has(bytes));
    return matters && options_.window->CanReadPeers() ? kAble : 0;
  }
  if (!MayBeCma(work) || !options_.window->CanReadPeers()) return 0;
  const collective::Piece& piece = work.payload.pieces()[0];
  if (options_.locations.For(work.op).cma_on_trial && !selector_.Offers(work.op, piece.bytes, position)) return 0;
  return options_.window->Readable(piece.in, piece.bytes) ? reinterpret_cast<uint64_t>(piece.in) : 0;
}

std::unique_ptr<Machine> WindowCommunicator::BeginPull(const PositionView& view, const Work* work) {
  std::vector<ChunkedPull::Source> sources;
  const auto& pieces = work->payload.pieces();
  if (work->op == OpKind::kBroadcast) {
    const size_t bytes = work->payload.bytes();
    const bool copies = work->root != stream_.me() || pieces[0].out != pieces[0].in;
    sources.push_back({work->root, bytes, {0, bytes}, copies ? pieces[0].out : nullptr});
  } else {
    const ExchangeLayout traffic(*work, stream_.me());
    for (int m = 0; m < stream_.members(); ++m) {
      std::byte* to = work->result_to == nullptr ? nullptr : work->result_to + traffic.ResultAt(m);
      sources.push_back({m, traffic.Brings(m), traffic.Incoming(m), to});
    }
  }
  const bool cma = IsCma(view);
  std::unique_ptr<Machine> machine;
  if (cma) {
    machine = std::make_unique<CmaPull>(view, std::move(sources), pieces.empty() ? nullptr : pieces[0].in);
  } else {
    machine = std::make_unique<ChunkedPull>(view, std::move(sources), &work->payload);
  }
  // Who has nothing to offer has no say in it.
  const bool counts = options_.locations.For(work->op).cma_on_trial && MayBeCma(*work) &&
                      view.place(stream_.me()).location == collective::window::DataLocation::kStaged;
  if (!counts) return machine;
  return std::make_unique<TimedMachine>(std::move(machine), options_.clock, &selector_, *work, cma);
}

}  // namespace hvd::comm::builtin
