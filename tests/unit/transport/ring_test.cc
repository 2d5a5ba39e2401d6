// SPDX-License-Identifier: Apache-2.0
#include "hvd/transport/shm/ring.h"

#include <gtest/gtest.h>

#include <cstdlib>
#include <cstring>
#include <memory>
#include <random>
#include <string>
#include <thread>

namespace hvd::transport::shm {
namespace {

class RingTest : public ::testing::Test {
 protected:
  static constexpr size_t kCapacity = 1024;
  RingTest() : memory_(static_cast<std::byte*>(std::aligned_alloc(128, 2048)), &std::free) {
    std::memset(memory_.get(), 0, 2048);
  }
  std::span<std::byte> memory() { return {memory_.get(), RingBytes(kCapacity)}; }
  void Poke(size_t offset, uint64_t value) { std::memcpy(memory_.get() + offset, &value, sizeof value); }

  static size_t Write(RingProducer& ring, std::string text) {
    const iovec piece{text.data(), text.size()};
    return *ring.Write({&piece, 1});
  }
  static std::string Read(RingConsumer& ring, size_t bytes, bool* waited = nullptr) {
    std::string text(bytes, '\0');
    const iovec piece{text.data(), text.size()};
    const auto taken = ring.Read({&piece, 1});
    EXPECT_TRUE(taken);
    if (waited != nullptr) *waited = taken->writer_waited;
    text.resize(taken->bytes);
    return text;
  }

  std::unique_ptr<std::byte, decltype(&std::free)> memory_;
};

TEST_F(RingTest, BytesComeOutInOrderAcrossTheEdge) {
  auto out = *RingProducer::Open(memory());
  auto in = *RingConsumer::Open(memory());
  std::string sent, got;
  std::mt19937 random(5);
  for (int i = 0; i < 500; ++i) {
    std::string text(random() % 300, static_cast<char>('a' + i % 26));
    text.resize(Write(out, text));
    sent += text;
    got += Read(in, random() % 300);
  }
  got += Read(in, kCapacity);
  EXPECT_EQ(got, sent);
}

TEST_F(RingTest, AFullRingTakesNothingAndTheReaderLearnsThatTheWriterWaits) {
  auto out = *RingProducer::Open(memory());
  auto in = *RingConsumer::Open(memory());
  EXPECT_EQ(Write(out, std::string(2000, 'x')), kCapacity);
  bool waited = true;
  Read(in, 0, &waited);
  EXPECT_FALSE(waited);
  EXPECT_EQ(Write(out, "y"), 0u);
  EXPECT_EQ(Read(in, 1, &waited), "x");
  EXPECT_TRUE(waited);
  Read(in, 1, &waited);
  EXPECT_FALSE(waited);
  EXPECT_EQ(Write(out, "y"), 1u);
}

TEST_F(RingTest, TheEndComesAfterTheLastByte) {
  auto out = *RingProducer::Open(memory());
  auto in = *RingConsumer::Open(memory());
  Write(out, "last");
  out.End();
  EXPECT_EQ(Read(in, 10), "last");
  char byte;
  const iovec piece{&byte, 1};
  EXPECT_EQ(in.Read({&piece, 1}).error().code, Code::kUnknown);
}

TEST_F(RingTest, AnImpossibleIndexOfThePeerIsAnErrorNotACopy) {
  auto out = *RingProducer::Open(memory());
  auto in = *RingConsumer::Open(memory());
  std::string text(100, 'x');
  const iovec piece{text.data(), text.size()};
  for (const uint64_t nonsense : {uint64_t{kCapacity + 1}, uint64_t{1} << 40, ~uint64_t{0}}) {
    Poke(0, nonsense);
    EXPECT_EQ(in.Read({&piece, 1}).error().code, Code::kInternal);
  }
  Poke(0, 0);
  EXPECT_EQ(Write(out, std::string(kCapacity, 'y')), kCapacity);
  for (const uint64_t nonsense : {uint64_t{kCapacity + 1}, uint64_t{1} << 40, ~uint64_t{0}}) {
    Poke(128, nonsense);
    EXPECT_EQ(out.Write({&piece, 1}).error().code, Code::kInternal);
  }
}

TEST_F(RingTest, MemoryThatIsTooSmallOrMisalignedIsRefused) {
  EXPECT_FALSE(RingProducer::Open(memory().first(RingBytes(kCapacity) - 1)));
  EXPECT_FALSE(RingConsumer::Open({memory_.get() + 8, RingBytes(kCapacity)}));
}

TEST_F(RingTest, TwoThreadsAgreeOnEveryByte) {
  constexpr size_t kTotal = 4 << 20;
  std::thread writer([&] {
    auto out = *RingProducer::Open(memory());
    std::mt19937 random(1);
    uint8_t next = 0;
    for (size_t sent = 0; sent < kTotal;) {
      std::string text(std::min<size_t>(random() % 700 + 1, kTotal - sent), '\0');
      for (size_t i = 0; i < text.size(); ++i) text[i] = static_cast<char>(next + i);
      const size_t took = Write(out, text);
      if (took == 0) std::this_thread::yield();
      next = static_cast<uint8_t>(next + took);
      sent += took;
    }
    out.End();
  });
  auto in = *RingConsumer::Open(memory());
  uint8_t next = 0;
  size_t got = 0;
  std::string buffer(900, '\0');
  const iovec piece{buffer.data(), buffer.size()};
  bool right = true;
  while (true) {
    const auto taken = in.Read({&piece, 1});
    if (!taken) break;
    if (taken->bytes == 0) std::this_thread::yield();
    for (size_t i = 0; i < taken->bytes; ++i) right &= static_cast<uint8_t>(buffer[i]) == next++;
    got += taken->bytes;
  }
  writer.join();
  EXPECT_EQ(got, kTotal);
  EXPECT_TRUE(right);
}

}  // namespace
}  // namespace hvd::transport::shm
