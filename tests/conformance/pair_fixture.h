// SPDX-License-Identifier: Apache-2.0
#pragma once
// Two connected ends in one process, over every kind of Pair: tcp by IPv4 and IPv6, tcp under TLS, rings in memory. The
// pair_*_test.cc beside it say what every Pair must do.

#include <gtest/gtest.h>

#include <chrono>
#include <cstdlib>
#include <cstring>
#include <memory>
#include <random>
#include <string>
#include <thread>
#include <vector>

#include "hvd/loop/loop.h"
#include "hvd/net/deadline.h"
#include "hvd/transport/frame.h"
#include "hvd/transport/pair.h"
#include "hvd/transport/shm/ring.h"
#include "hvd/transport/shm/ring_pair.h"
#include "hvd/transport/tcp/factory.h"

namespace hvd::transport {

inline constexpr Duration kPatience = std::chrono::seconds(120);

// Two ranks in one process: what both ends need, and the ends.
struct Ends {
  std::vector<std::byte*> memory;
  std::unique_ptr<loop::Loop> loop[2];
  std::unique_ptr<Pair> pair[2];

  Ends() = default;
  ~Ends() {
    Clear();
    for (std::byte* block : memory) std::free(block);
  }
  void Clear() {
    for (auto& end : pair) end.reset();
    for (auto& reactor : loop) reactor.reset();
  }
  void RunOnce(int side, Duration wait = Duration::zero()) {
    loop[side]->RunOnce(wait);
    if (pair[side]) pair[side]->Poll();
  }
};

using Maker = void (*)(Ends*);

inline void MakeTcp(Ends* ends, const char* host, bool encrypt) {
  const auto address = *net::Resolve({host, 0});
  std::vector<tcp::Listener> listeners;
  for (int i = 0; i < 2; ++i) listeners.push_back(std::move(*tcp::Listener::Create(address.at(0))));
  const auto token = net::Token::Generate();
  auto connect = [&](int rank) {
    tcp::ConnectOptions options{.rank = rank,
                                .size = 2,
                                .addresses = {listeners[0].address(), listeners[1].address()},
                                .token = &*token,
                                .generation = 3,
                                .loop = ends->loop[rank].get(),
                                .listener = &listeners[rank],
                                .deadline = net::DeadlineAfter(std::chrono::seconds(20)),
                                .socket = {.congestion = "cubic"},
                                .encrypt = encrypt};
    auto pairs = tcp::ConnectAll(options);
    ASSERT_TRUE(pairs) << pairs.error().message;
    ends->pair[rank] = std::move(pairs->at(1 - rank));
  };
  std::thread other([&] { connect(1); });
  connect(0);
  other.join();
}

inline void MakeV4(Ends* ends) { MakeTcp(ends, "127.0.0.1", false); }
inline void MakeV6(Ends* ends) { MakeTcp(ends, "::1", false); }
inline void MakeTls(Ends* ends) { MakeTcp(ends, "127.0.0.1", true); }

inline void MakeRing(Ends* ends) {
  constexpr size_t kBytes = shm::RingBytes(64 << 10);
  std::span<std::byte> rings[2];
  for (auto& ring : rings) {
    auto* block = static_cast<std::byte*>(std::aligned_alloc(128, kBytes));
    std::memset(block, 0, kBytes);
    ends->memory.push_back(block);
    ring = {block, kBytes};
  }
  for (int i = 0; i < 2; ++i) {
    loop::Loop* peer_loop = ends->loop[1 - i].get();
    auto pair = shm::CreateRingPair(
        1 - i, rings[i], rings[1 - i], [peer_loop] { peer_loop->Wake(); }, ends->loop[i].get());
    ASSERT_TRUE(pair) << pair.error().message;
    ends->pair[i] = std::move(*pair);
  }
}

struct Kind {
  const char* name;
  Maker make;
};

class PairTest : public ::testing::TestWithParam<Kind> {
 protected:
  void SetUp() override {
    for (auto& loop : ends_.loop) loop = std::move(*loop::CreateEpollLoop());
    GetParam().make(&ends_);
    if (HasFatalFailure()) return;
    for (int i = 0; i < 2; ++i) {
      ends_.pair[i]->OnClosed([this, i](const Error& error) { closed_[i].push_back(error); });
      ends_.pair[i]->OnMessage([this, i](std::span<const std::byte> m) {
        messages_[i].emplace_back(reinterpret_cast<const char*>(m.data()), m.size());
      });
    }
  }

  void TearDownAndSetUp() {
    ends_.Clear();
    SetUp();
  }

  template <typename Predicate>
  [[nodiscard]] bool RunUntil(Predicate predicate) {
    const Time deadline = net::DeadlineAfter(kPatience);
    while (!predicate()) {
      for (int side = 0; side < 2; ++side) ends_.RunOnce(side);
      if (net::Now() > deadline) return false;
    }
    return true;
  }
  // Until nothing moves for many turns.
  void Settle() {
    for (int i = 0; i < 300; ++i) {
      for (int side = 0; side < 2; ++side) ends_.RunOnce(side);
    }
  }

  Pair& pair(int side) { return *ends_.pair[side]; }

  Ends ends_;
  std::vector<Error> closed_[2];
  std::vector<std::string> messages_[2];
};

inline std::span<const std::byte> AsBytes(const std::string& text) { return std::as_bytes(std::span(text)); }

inline std::vector<iovec> Whole(std::string& buffer) { return {{buffer.data(), buffer.size()}}; }

inline std::string Pattern(uint64_t seed, size_t bytes) {
  std::string data(bytes, '\0');
  std::mt19937_64 random(seed);
  for (size_t i = 0; i < bytes; i += 8) {
    const uint64_t word = random();
    std::memcpy(data.data() + i, &word, std::min<size_t>(8, bytes - i));
  }
  return data;
}

struct Outcome {
  int runs = 0;
  Status status;
  Completion Note() {
    return [this](Status s) {
      ++runs;
      status = std::move(s);
    };
  }
  bool ok() const { return runs == 1 && status.has_value(); }
  Code code() const { return runs == 1 && !status ? status.error().code : Code::kOk; }
};

inline auto EveryKind() {
  return ::testing::Values(Kind{"TcpV4", MakeV4}, Kind{"TcpV6", MakeV6}, Kind{"Tls", MakeTls}, Kind{"Ring", MakeRing});
}
inline std::string NameOfKind(const ::testing::TestParamInfo<Kind>& info) { return info.param.name; }

}  // namespace hvd::transport
