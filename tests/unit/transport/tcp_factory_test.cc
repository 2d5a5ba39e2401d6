// SPDX-License-Identifier: Apache-2.0
#include <gtest/gtest.h>

#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "hvd/net/deadline.h"
#include "hvd/net/socket.h"
#include "hvd/transport/tcp/factory.h"

namespace hvd::transport::tcp {
namespace {

net::Address Loopback() { return (*net::Resolve({"127.0.0.1", 0})).at(0); }

class FactoryTest : public ::testing::Test {
 protected:
  void SetUpRanks(int size) {
    for (int r = 0; r < size; ++r) {
      listeners_.push_back(std::move(*Listener::Create(Loopback())));
      loops_.push_back(std::move(*loop::CreateEpollLoop()));
      addresses_.push_back(listeners_.back().address());
    }
    pairs_.resize(size);
    status_.resize(size);
  }
  ConnectOptions Options(Rank rank, Duration patience = std::chrono::seconds(60)) {
    return {.rank = rank,
            .size = static_cast<int>(addresses_.size()),
            .addresses = addresses_,
            .token = &token_,
            .generation = 1,
            .loop = loops_[rank].get(),
            .listener = &listeners_[rank],
            .deadline = net::DeadlineAfter(patience),
            .socket = {.congestion = "no such algorithm"}};
  }
  void Connect(const ConnectOptions& options) {
    auto made = ConnectAll(options);
    if (made) {
      pairs_[options.rank] = std::move(*made);
    } else {
      status_[options.rank] = Fail(made.error());
    }
  }
  void ConnectThreads(std::vector<ConnectOptions> all) {
    std::vector<std::thread> threads;
    for (auto& options : all) threads.emplace_back([this, &options] { Connect(options); });
    for (auto& thread : threads) thread.join();
  }

  const net::Token token_ = *net::Token::Generate();
  std::vector<Listener> listeners_;
  std::vector<std::unique_ptr<loop::Loop>> loops_;
  std::vector<net::Address> addresses_;
  std::vector<std::vector<std::unique_ptr<Pair>>> pairs_;
  std::vector<Status> status_;
};

TEST_F(FactoryTest, EveryRankReachesEveryOther) {
  constexpr int kSize = 5;
  SetUpRanks(kSize);
  std::vector<ConnectOptions> all;
  for (int r = 0; r < kSize; ++r) all.push_back(Options(r));
  ConnectThreads(std::move(all));
  int heard = 0;
  for (int r = 0; r < kSize; ++r) {
    ASSERT_TRUE(status_[r]) << status_[r].error().message;
    for (int p = 0; p < kSize; ++p) {
      ASSERT_EQ(pairs_[r][p] == nullptr, p == r);
      if (p == r) continue;
      EXPECT_EQ(pairs_[r][p]->peer(), p);
      pairs_[r][p]->OnMessage([&heard, p](std::span<const std::byte> m) {
        ASSERT_EQ(m.size(), 1u);
        EXPECT_EQ(static_cast<int>(m[0]), p);
        ++heard;
      });
      const auto me = static_cast<std::byte>(r);
      pairs_[r][p]->SendMessage({&me, 1});
    }
  }
  const Time deadline = net::DeadlineAfter(std::chrono::seconds(60));
  while (heard < kSize * (kSize - 1) && net::Now() < deadline) {
    for (auto& loop : loops_) loop->RunOnce(Duration::zero());
  }
  EXPECT_EQ(heard, kSize * (kSize - 1));
}

TEST_F(FactoryTest, ARankAloneNeedsNobody) {
  SetUpRanks(1);
  Connect(Options(0));
  ASSERT_TRUE(status_[0]);
  EXPECT_EQ(pairs_[0].size(), 1u);
}

TEST_F(FactoryTest, RanksWithoutAnAddressAreLeftOut) {
  SetUpRanks(3);
  addresses_[1] = {};
  ConnectThreads({Options(0), Options(2)});
  ASSERT_TRUE(status_[0] && status_[2]);
  EXPECT_EQ(pairs_[0][1], nullptr);
  EXPECT_NE(pairs_[0][2], nullptr);
}

TEST_F(FactoryTest, AMissingRankIsNamedWithItsAddress) {
  SetUpRanks(3);
  const std::string where = addresses_[0].ToString();
  listeners_[0] = std::move(*Listener::Create(Loopback()));  // nobody listens where rank 0 said
  Connect(Options(1, std::chrono::milliseconds(200)));
  ASSERT_FALSE(status_[1]);
  EXPECT_EQ(status_[1].error().code, Code::kDeadlineExceeded);
  const std::string& text = status_[1].error().message;
  EXPECT_NE(text.find("rank 0 at " + where), std::string::npos) << text;
  EXPECT_NE(text.find("rank 2 (" + addresses_[2].ToString() + ") did not connect"), std::string::npos) << text;
}

TEST_F(FactoryTest, StrangersHoldNobodyUp) {
  SetUpRanks(2);
  std::vector<net::Fd> silent;
  for (int i = 0; i < 400; ++i) silent.push_back(std::move(*net::StartConnect(addresses_[0])));
  net::Fd loud = std::move(*net::Connect(addresses_[0], net::DeadlineAfter(std::chrono::seconds(60))));
  const std::string noise(200, 'x');
  ASSERT_TRUE(net::WriteFull(loud.get(), net::AsBytes(noise), net::DeadlineAfter(std::chrono::seconds(60))));
  ConnectThreads({Options(0), Options(1)});
  EXPECT_TRUE(status_[0]) << status_[0].error().message;
  EXPECT_TRUE(status_[1]) << status_[1].error().message;
}

TEST_F(FactoryTest, AnotherTokenOrGenerationIsTurnedAway) {
  SetUpRanks(2);
  const net::Token other = *net::Token::Generate();
  auto wrong_token = Options(1, std::chrono::seconds(1));
  wrong_token.token = &other;
  ConnectThreads({Options(0, std::chrono::milliseconds(300)), wrong_token});
  EXPECT_FALSE(status_[0]);
  ASSERT_FALSE(status_[1]);
  EXPECT_NE(status_[1].error().message.find("rank 0 at "), std::string::npos);
  auto wrong_generation = Options(1, std::chrono::seconds(1));
  wrong_generation.generation = 2;
  status_ = std::vector<Status>(2);
  ConnectThreads({Options(0, std::chrono::milliseconds(300)), wrong_generation});
  EXPECT_FALSE(status_[0]);
  EXPECT_FALSE(status_[1]);
}

TEST_F(FactoryTest, EncryptionWithoutATokenIsRefused) {
  SetUpRanks(2);
  auto options = Options(0);
  options.token = nullptr;
  options.encrypt = true;
  Connect(options);
  ASSERT_FALSE(status_[0]);
  EXPECT_EQ(status_[0].error().code, Code::kFailedPrecondition);
}

TEST(Listener, AWildcardAddressIsRefused) { EXPECT_FALSE(Listener::Create((*net::Resolve({"0.0.0.0", 0})).at(0))); }

}  // namespace
}  // namespace hvd::transport::tcp
