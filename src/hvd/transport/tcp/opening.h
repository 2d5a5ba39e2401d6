// SPDX-License-Identifier: Apache-2.0
#pragma once
// A data connection that is being opened: connect, TLS where asked for, then the handshake that proves who both ends
// are. It moves as far as it can in each step and never waits, so that a stranger who says nothing holds nobody up.
//
// Thread safety: one thread at a time.

#include <memory>
#include <optional>
#include <string>

#include "hvd/base/result.h"
#include "hvd/base/types.h"
#include "hvd/net/address.h"
#include "hvd/net/crypto.h"
#include "hvd/net/handshake.h"
#include "hvd/net/stream.h"
#include "hvd/net/tls.h"
#include "hvd/transport/byte_stream.h"
#include "hvd/transport/seal.h"

namespace hvd::transport::tcp {

// What all openings of one mesh share.
struct OpeningContext {
  net::Key key;
  bool has_token = false;                       // else the key is no secret
  net::handshake::Identity self;                // `to` and `from` are filled in per connection
  std::shared_ptr<net::TlsContext> tls_client;  // null: plain
  std::shared_ptr<net::TlsContext> tls_server;
};

class Opening {
 public:
  // The context outlives the opening.
  static Result<std::unique_ptr<Opening>> Connect(const OpeningContext* context, Rank peer,
                                                  const net::Address& address);
  static Result<std::unique_ptr<Opening>> Accept(const OpeningContext* context, net::Fd fd);

  int fd() const { return stream_->fd(); }
  // kNothing: it is open. Else what the socket must become before the next step.
  Result<net::Want> Step();
  bool connects() const { return connector_.has_value(); }
  // The rank at the other end: whom we connect to, or, once open, who is proven to have connected.
  Rank peer() const { return peer_; }
  const std::string& where() const { return where_; }
  // Once open.
  std::unique_ptr<ByteStream> TakeStream();
  // Once open: what authenticates its control messages. nullptr where TLS does that, or nobody has a key.
  Result<std::unique_ptr<Seal>> MakeSeal() const;

 private:
  enum class Phase { kConnect, kTls, kWrite, kRead, kOpen };

  Opening(const OpeningContext* context, Phase phase, Rank peer, const net::Address& address)
      : context_(context), phase_(phase), peer_(peer), address_(address), where_(address.ToString()) {}
  Status SetStream(net::Fd fd);
  void Write(net::Bytes bytes);
  void Read(size_t bytes);
  Result<net::Want> Transfer();
  // A part was written or read as a whole: what comes next.
  Status OnWritten();
  Status OnRead();

  const OpeningContext* const context_;
  Phase phase_;
  Rank peer_;
  net::Address address_;
  std::string where_;
  net::Fd plain_;  // without TLS; a TLS stream owns its socket
  std::unique_ptr<net::Stream> stream_;
  std::optional<net::handshake::Connector> connector_;
  std::optional<net::handshake::Acceptor> acceptor_;
  net::handshake::Nonce nonce_{};  // this end's, if it accepts
  net::Key session_;
  bool said_last_ = false;  // what is being written or read is the last part
  std::string part_;
  size_t moved_ = 0;
};

}  // namespace hvd::transport::tcp
