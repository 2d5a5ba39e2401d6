// SPDX-License-Identifier: Apache-2.0
#pragma once
// The connection between horovodrun and one agent: TLS 1.3 with a key from the job's token, so both have proven
// themselves before the first message, and messages in both directions. Each side says something at least once a
// second; one that is silent for too long has gone, or the way to it has. This is the one place where something wakes
// up periodically: only so the loss of a host is noticed that nobody waits for.
//
// Thread safety: none; on one loop.
// Completion: after on_end nothing is called any more. Handlers may destroy nothing but what they own; destroy the
// channel later (Loop::Defer).

#include <functional>
#include <memory>
#include <optional>
#include <string>

#include "hvd/base/clock.h"
#include "hvd/base/result.h"
#include "hvd/launch/remote/agent_protocol.h"
#include "hvd/loop/loop.h"
#include "hvd/net/stream.h"
#include "hvd/net/tls.h"

namespace hvd::launch {

// The keys of this connection are no other service's.
inline constexpr const char* kAgentRole = "agent";
inline constexpr double kDefaultSilenceSeconds = 5;

class Channel {
 public:
  struct Handlers {
    std::function<void(Message)> on_message;
    // kPermissionDenied and the like: it never proved itself. kDeadlineExceeded: silent. kCancelled: it closed.
    std::function<void(const Error&)> on_end;
    // What waited to be sent is below kMuchUnsent again; may be empty.
    std::function<void()> on_drained{};
  };
  static constexpr size_t kMuchUnsent = 1 << 20;

  // `silence` zero: never too long.
  Channel(std::unique_ptr<net::Stream> stream, Duration silence, loop::Loop* loop, Handlers handlers);
  ~Channel();
  Channel(const Channel&) = delete;
  Channel& operator=(const Channel&) = delete;

  Status Start();
  void Send(const Message& message);
  size_t unsent() const { return output_.size() - sent_; }
  bool over() const { return over_; }
  int fd() const { return stream_->fd(); }
  // Ends it from this side, without on_end. What was not sent is lost.
  void Close();
  // Waits, turning nothing, until all is sent; for a last word. Gives up after `patience`.
  void Flush(Duration patience);

 private:
  void Advance();
  // The same in the next turn.
  void Later();
  Status Receive();
  Status CutMessages();
  Status TrySend();
  void End(const Error& error);
  void OnBeat();
  void Rearm();

  std::unique_ptr<net::Stream> stream_;
  const Duration silence_;
  loop::Loop* const loop_;
  const Handlers handlers_;
  std::string input_, output_;
  size_t sent_ = 0;
  net::Want want_ = net::Want::kRead;
  bool open_ = false, over_ = false, stuffed_ = false;
  bool sent_since_beat_ = false;
  Time heard_{}, beat_{};
  std::optional<loop::TimerId> timer_;
  const std::shared_ptr<int> alive_ = std::make_shared<int>();  // for what is deferred
};

}  // namespace hvd::launch
