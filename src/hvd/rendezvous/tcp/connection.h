// SPDX-License-Identifier: Apache-2.0
#pragma once
// The server's end of one client: TLS handshake, preface, then one request and its answer at a time. Nothing is read
// while an answer is owed, so a client that does not read its answers cannot make the server hold more than one.
//
// Thread safety: on the server's loop.

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>

#include "hvd/base/result.h"
#include "hvd/net/stream.h"
#include "hvd/rendezvous/tcp/protocol.h"

namespace hvd::rendezvous::tcp {

class Connection {
 public:
  using OnRequest = std::function<void(Request)>;

  // `on_request` may call Respond before it returns.
  Connection(std::unique_ptr<net::Stream> stream, OnRequest on_request)
      : stream_(std::move(stream)), on_request_(std::move(on_request)) {}

  // Does everything that can be done now. An error: the connection is of no more use.
  Status Advance(uint32_t epoll_events);
  // Call Advance afterwards.
  void Respond(const Response& response);

  int fd() const { return stream_->fd(); }
  // epoll events to wait for.
  uint32_t interest() const;
  // The client has proven to be one of ours.
  bool open() const { return state_ == State::kOpen; }
  bool said_goodbye() const { return said_goodbye_; }
  // Part of an answer lies here because the client does not take it.
  bool has_output() const { return sent_ < output_.size(); }

 private:
  enum class State { kHandshake, kPreface, kOpen };

  Status Open();
  Status ReadPreface();
  Status Serve();
  // False: nothing more to read now.
  Result<bool> ReadSome();
  Status Flush();
  Result<net::Transfer> Noted(Result<net::Transfer> moved);

  std::unique_ptr<net::Stream> stream_;
  OnRequest on_request_;
  State state_ = State::kHandshake;
  net::Want want_ = net::Want::kRead;
  std::string preface_;
  FrameCutter input_{kMaxRequestBytes};
  std::string output_;
  size_t sent_ = 0;
  bool answer_owed_ = false;
  bool said_goodbye_ = false;
};

}  // namespace hvd::rendezvous::tcp
