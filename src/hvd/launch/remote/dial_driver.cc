// SPDX-License-Identifier: Apache-2.0
#include "hvd/launch/remote/dial_driver.h"

#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <sys/socket.h>

#include <algorithm>
#include <thread>

#include "hvd/launch/remote/channel.h"
#include "hvd/net/deadline.h"
#include "hvd/net/socket.h"
#include "hvd/net/tls.h"

namespace hvd::launch {
namespace {

// For an address to answer; a silent one is tried again in the next round.
constexpr Duration kRound = std::chrono::seconds(3);
// Once one has answered, the others have this long: it is good to know about them, not necessary.
constexpr Duration kOthers = std::chrono::milliseconds(300);
constexpr Duration kDialPause = std::chrono::milliseconds(200);

struct Attempt {
  std::string text;
  net::Address address;
  net::Fd fd;  // while it goes on, and after success
  bool over = false;
  bool refused = false;  // nobody listens there
  std::string why{};
};

std::vector<Attempt> Begin(const std::vector<std::string>& addresses) {
  std::vector<Attempt> attempts;
  for (const std::string& text : addresses) {
    const auto where = net::ParseHostPort(text);
    const auto resolved = where ? net::Resolve(*where) : Result<std::vector<net::Address>>(Fail(where.error()));
    if (!resolved) {
      attempts.push_back({.text = text, .address = {}, .fd = {}, .over = true, .why = resolved.error().message});
      continue;
    }
    for (const net::Address& address : *resolved) {
      Attempt attempt{.text = text, .address = address, .fd = {}};
      if (auto fd = net::StartConnect(address)) {
        attempt.fd = std::move(*fd);
      } else {
        attempt.over = true;
        attempt.why = fd.error().message;
      }
      attempts.push_back(std::move(attempt));
    }
  }
  return attempts;
}

// Waits until all attempts are over, or the time is.
void Settle(std::vector<Attempt>& attempts, Time deadline) {
  while (true) {
    std::vector<pollfd> entries;
    std::vector<Attempt*> whose;
    for (Attempt& attempt : attempts) {
      if (attempt.over) continue;
      entries.push_back({attempt.fd.get(), POLLOUT, 0});
      whose.push_back(&attempt);
    }
    if (entries.empty() || net::Now() >= deadline) break;
    (void)::poll(entries.data(), entries.size(), net::PollMillis(deadline));
    for (size_t i = 0; i < entries.size(); ++i) {
      if (entries[i].revents == 0) continue;
      whose[i]->over = true;
      if (auto connected = net::FinishConnect(whose[i]->fd.get(), whose[i]->address); !connected) {
        whose[i]->fd.Reset();
        whose[i]->refused = connected.error().code == Code::kNotFound;
        whose[i]->why = connected.error().message;
      } else {
        deadline = std::min(deadline, net::DeadlineAfter(kOthers));
      }
    }
  }
  for (Attempt& attempt : attempts) {
    if (attempt.over) continue;
    attempt.over = true;
    attempt.fd.Reset();
    attempt.why = fmt::format("no answer from {}", attempt.address.ToString());
  }
}

// Whether or not this process sends anything, or runs at all: the kernel asks by itself.
void BreakWhenNotTaken(int fd, Duration silence) {
  const auto set = [&](int level, int name, int value) { (void)::setsockopt(fd, level, name, &value, sizeof value); };
  const auto millis = static_cast<int>(std::chrono::duration_cast<std::chrono::milliseconds>(silence).count());
  set(IPPROTO_TCP, TCP_USER_TIMEOUT, millis);
  if (millis == 0) return;
  set(SOL_SOCKET, SO_KEEPALIVE, 1);
  set(IPPROTO_TCP, TCP_KEEPIDLE, std::max(millis / 2000, 1));
  set(IPPROTO_TCP, TCP_KEEPINTVL, 1);
  set(IPPROTO_TCP, TCP_KEEPCNT, std::max(millis / 1000, 1));
}

}  // namespace

Result<Reached> DialDriver(const std::vector<std::string>& addresses, const net::Token& token, Duration timeout,
                           Duration silence, bool was_there) {
  HVD_ASSIGN_OR_RETURN(const auto tls, net::TlsContext::Create(net::TlsSide::kClient, token, kAgentRole, 0));
  const Time deadline = net::DeadlineAfter(timeout);
  while (true) {
    std::vector<Attempt> attempts = Begin(addresses);
    Settle(attempts, std::min(deadline, net::DeadlineAfter(kRound)));
    Reached reached;
    std::string why;
    bool denied = false;
    for (Attempt& attempt : attempts) {
      if (attempt.fd) reached.addresses.push_back(attempt.address.ToString());
      if (attempt.fd && reached.stream == nullptr) {
        HVD_ASSIGN_OR_RETURN(auto stream, net::TlsStream::Create(tls, std::move(attempt.fd)));
        const Status proven = net::Handshake(*stream, std::min(deadline, net::DeadlineAfter(kRound)));
        if (proven) {
          BreakWhenNotTaken(stream->fd(), silence);
          reached.stream = std::move(stream);
        } else {
          denied |= proven.error().code == Code::kPermissionDenied;
          attempt.why = fmt::format("{}: {}", attempt.text, proven.error().message);
          reached.addresses.pop_back();
        }
      }
      if (!attempt.why.empty()) why += fmt::format("{}{}", why.empty() ? "" : "; ", attempt.why);
    }
    if (reached.stream != nullptr) return reached;
    if (denied) return Fail(Code::kPermissionDenied, "{}", why);
    if (was_there && std::ranges::all_of(attempts, &Attempt::refused)) return Fail(Code::kNotFound, "{}", why);
    if (net::Left(deadline) <= kDialPause) {
      return Fail(Code::kDeadlineExceeded, "nobody answered within {:.3g} s ({})", net::InSeconds(timeout), why);
    }
    std::this_thread::sleep_for(kDialPause);
  }
}

}  // namespace hvd::launch
