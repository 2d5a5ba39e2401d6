// SPDX-License-Identifier: Apache-2.0
// The data connection's handshake: no bytes of a stranger may crash either side or be taken for a proof.

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstdlib>

#include "hvd/net/handshake.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using namespace hvd::net::handshake;
  static const hvd::net::Key key = [] {
    hvd::net::Key made;
    made.bytes.fill(0x5a);
    return made;
  }();
  constexpr Nonce kNonce{1, 2, 3};
  const Identity who{.generation = 1, .from = 0, .to = 1, .size = 2, .channel = 0};
  const hvd::net::Bytes input(data, size);

  if (auto identity = DecodeHello(input)) {
    Nonce nonce;
    std::copy(input.end() - kNonceBytes, input.end(), nonce.begin());
    const Hello again = EncodeHello(*identity, nonce);
    if (!std::equal(again.begin(), again.end(), input.begin(), input.end())) std::abort();
  }

  const Connector connector(key, who, kNonce);
  if (connector.OnReply(input)) std::abort();

  Acceptor acceptor(key, who, kNonce);
  const size_t cut = std::min(size, kHelloBytes);
  (void)acceptor.OnHello(input.first(cut));
  if (acceptor.OnConfirm(input.subspan(cut))) std::abort();
  // A well-formed hello in front of whatever follows.
  Acceptor second(key, who, kNonce);
  if (!second.OnHello(connector.hello())) std::abort();
  if (second.OnConfirm(input)) std::abort();
  return 0;
}
