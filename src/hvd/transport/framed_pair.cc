// SPDX-License-Identifier: Apache-2.0
#include "hvd/transport/framed_pair.h"

#include <utility>

#include "hvd/transport/framed_pair_core.h"

namespace hvd::transport {
namespace {

class FramedPair final : public Pair {
 public:
  explicit FramedPair(std::shared_ptr<FramedPairCore> core) : core_(std::move(core)) {}
  ~FramedPair() override { core_->Detach(); }
  FramedPair(const FramedPair&) = delete;
  FramedPair& operator=(const FramedPair&) = delete;

  Rank peer() const override { return core_->peer(); }
  const PeerByteCounts& flow() const override { return core_->flow(); }
  void OnMessage(MessageHandler handler) override { core_->OnMessage(std::move(handler)); }
  void OnClosed(std::function<void(Error)> handler) override { core_->OnClosed(std::move(handler)); }
  void SendMessage(std::span<const std::byte> message) override { core_->SendMessage(message); }
  void SendMessageSoon(std::span<const std::byte> message) override { core_->SendMessageSoon(message); }
  void Send(Lane lane, std::vector<iovec> data, Completion done) override {
    core_->Send(lane, std::move(data), std::move(done));
  }
  void Recv(Lane lane, std::vector<iovec> into, PartialArrival on_bytes, Completion done) override {
    core_->Recv(lane, std::move(into), std::move(on_bytes), std::move(done));
  }
  bool Poll() override { return core_->Poll(); }
  void Close() override { core_->Close(); }
  bool IsSayingMore() const override { return core_->IsSayingMore(); }

 private:
  const std::shared_ptr<FramedPairCore> core_;
};

}  // namespace

Result<std::unique_ptr<Pair>> CreateFramedPair(Rank peer, std::unique_ptr<ByteStream> stream, loop::Loop* loop,
                                               std::unique_ptr<Seal> seal) {
  auto core = std::make_shared<FramedPairCore>(peer, std::move(stream), loop, std::move(seal));
  HVD_RETURN_IF_ERROR(core->Start());
  return std::unique_ptr<Pair>(std::make_unique<FramedPair>(std::move(core)));
}

}  // namespace hvd::transport
