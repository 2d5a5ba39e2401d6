// SPDX-License-Identifier: Apache-2.0
// Whatever bytes a peer writes, the receiving half of a pair stays within its buffers and ends with an event or an
// error. The first bytes choose which Recvs are posted and how the rest is cut into reads.
#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <vector>

#include "hvd/transport/framed_pair_inbox.h"
#include "hvd/transport/framed_pair_outbox.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using namespace hvd::transport;
  if (size < 4) return 0;
  Outbox outbox;
  Inbox inbox(&outbox);
  std::vector<std::vector<char>> buffers;
  for (int i = 0; i < 2; ++i) buffers.emplace_back(static_cast<size_t>(data[i]) * data[i] * 4);
  for (size_t i = 0; i < buffers.size(); ++i) {
    const auto posted = inbox.Post(i, {{buffers[i].data(), buffers[i].size()}}, nullptr, [](hvd::Status) {});
    if (!posted) return 0;
  }
  const size_t step = data[2] + 1;
  DueCalls due;
  for (size_t at = 4; at < size;) {
    size_t filled = 0;
    for (const iovec& piece : inbox.Targets()) {
      const size_t length = std::min({piece.iov_len, size - at, step - filled});
      std::memcpy(piece.iov_base, data + at, length);
      at += length;
      filled += length;
    }
    inbox.Filled(filled);
    while (true) {
      auto event = inbox.Next();
      if (!event) {
        inbox.AbortRecvs({}, /*keep_arrivals=*/false, &due);
        return 0;
      }
      if (event->kind == InboxEvent::kFail || event->kind == InboxEvent::kBye) {
        inbox.AbortRecvs({}, /*keep_arrivals=*/true, &due);
        // What came whole before may be asked for later.
        for (size_t i = 0; i < buffers.size(); ++i) {
          if (!inbox.HasForLate(i, buffers[i].size())) continue;
          (void)inbox.Post(i, {{buffers[i].data(), buffers[i].size()}}, nullptr, [](hvd::Status) {});
        }
        return 0;
      }
      if (event->kind == InboxEvent::kNothing) break;
      if (event->kind == InboxEvent::kGrant && !outbox.OnGrant(event->lane, event->total)) return 0;
      if (event->kind == InboxEvent::kCredit && !outbox.OnCredit(event->total)) return 0;
    }
  }
  inbox.AbortRecvs({}, /*keep_arrivals=*/false, &due);
  return 0;
}
