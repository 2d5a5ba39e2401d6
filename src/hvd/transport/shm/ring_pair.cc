// SPDX-License-Identifier: Apache-2.0
#include "hvd/transport/shm/ring_pair.h"

#include <utility>

#include "hvd/transport/byte_stream.h"
#include "hvd/transport/framed_pair.h"
#include "hvd/transport/shm/ring.h"

namespace hvd::transport::shm {
namespace {

class RingStream final : public ByteStream {
 public:
  RingStream(RingProducer out, RingConsumer in, std::function<void()> ring_doorbell)
      : out_(out), in_(in), ring_doorbell_(std::move(ring_doorbell)) {}

  Result<size_t> TryWrite(std::span<const iovec> data, bool /*more*/) override {
    auto written = out_.Write(data);
    if (written && *written > 0) ring_doorbell_();
    return written;
  }

  Result<size_t> TryRead(std::span<const iovec> into) override {
    HVD_ASSIGN_OR_RETURN(const RingConsumer::Taken taken, in_.Read(into));
    if (taken.writer_waited) ring_doorbell_();
    return taken.bytes;
  }

  bool NothingToRead() const override { return in_.Idle(); }

  void ShutdownWrite() override {
    out_.End();
    ring_doorbell_();
  }

 private:
  RingProducer out_;
  RingConsumer in_;
  std::function<void()> ring_doorbell_;
};

}  // namespace

Result<std::unique_ptr<Pair>> CreateRingPair(Rank peer, std::span<std::byte> outgoing, std::span<std::byte> incoming,
                                             std::function<void()> ring_doorbell, loop::Loop* loop) {
  HVD_ASSIGN_OR_RETURN(const RingProducer out, RingProducer::Open(outgoing));
  HVD_ASSIGN_OR_RETURN(const RingConsumer in, RingConsumer::Open(incoming));
  return CreateFramedPair(peer, std::make_unique<RingStream>(out, in, std::move(ring_doorbell)), loop);
}

}  // namespace hvd::transport::shm
