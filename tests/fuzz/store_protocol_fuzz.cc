// SPDX-License-Identifier: Apache-2.0
// Everything a store server or client decodes: no input may crash it, and what it accepts must encode to the same
// bytes.

#include <cstddef>
#include <cstdint>
#include <cstdlib>

#include "hvd/rendezvous/tcp/protocol.h"
#include "hvd/rendezvous/tcp/store_state.h"

namespace {

using namespace hvd::rendezvous::tcp;

void Require(bool condition) {
  if (!condition) std::abort();
}

template <typename Message>
void RequireSame(const Message& message, hvd::net::Bytes body) {
  const std::string frame = Encode(message);
  Require(hvd::net::AsText(body) == std::string_view(frame).substr(kLengthBytes));
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  const hvd::net::Bytes input(data, size);
  if (auto request = DecodeRequest(input)) RequireSame(*request, input);
  if (auto response = DecodeResponse(input)) RequireSame(*response, input);

  // As a stream of frames into the server's mind, fed in two parts.
  int answers = 0;
  StoreState state([&](ClientId, const Response&) { ++answers; });
  FrameCutter cutter(kMaxRequestBytes);
  const size_t half = size / 2;
  hvd::Time now{std::chrono::seconds(1)};
  ClientId client = 0;
  for (const auto& part : {input.first(half), input.subspan(half)}) {
    cutter.Append(part);
    for (;;) {
      auto body = cutter.Next();
      if (!body) return 0;
      if (!*body) break;
      auto request = DecodeRequest(**body);
      if (!request) return 0;
      state.Handle(++client, std::move(*request), now);
    }
  }
  state.Expire(hvd::Time::max());
  Require(!state.NextDeadline());
  return 0;
}
