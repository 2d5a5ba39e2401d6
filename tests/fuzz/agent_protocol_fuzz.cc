// SPDX-License-Identifier: Apache-2.0
// Messages between horovodrun and its agents: whatever comes is decoded or refused, and what was decoded can be said
// again.

#include <cstddef>
#include <cstdint>
#include <cstdlib>

#include "hvd/launch/remote/agent_protocol.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using namespace hvd::launch;
  const auto message = DecodeMessage(hvd::net::Bytes(data, size));
  if (!message) return 0;
  const std::string frame = Encode(*message);
  const auto again = DecodeMessage(hvd::net::AsBytes(frame).subspan(4));
  if (!again || Encode(*again) != frame) std::abort();
  return 0;
}
