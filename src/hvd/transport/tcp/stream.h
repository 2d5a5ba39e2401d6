// SPDX-License-Identifier: Apache-2.0
#pragma once
// ByteStreams over a connected TCP socket: plain, and under TLS.

#include <memory>

#include "hvd/net/fd.h"
#include "hvd/net/stream.h"
#include "hvd/transport/byte_stream.h"

namespace hvd::transport::tcp {

std::unique_ptr<ByteStream> CreateSocketStream(net::Fd fd);
// `stream` has finished its handshake. Owns it, and its descriptor through it.
std::unique_ptr<ByteStream> CreateTlsByteStream(std::unique_ptr<net::Stream> stream);

}  // namespace hvd::transport::tcp
