// SPDX-License-Identifier: Apache-2.0
#include "hvd/rendezvous/tcp/protocol.h"

#include <gtest/gtest.h>

#include <random>

namespace hvd::rendezvous::tcp {
namespace {

net::Bytes Body(const std::string& frame) { return net::AsBytes(frame).subspan(kLengthBytes); }

std::vector<Request> Requests() {
  return {
      {.op = Op::kSet, .key = "k", .value = "v"},
      {.op = Op::kSet, .key = std::string(kMaxKeyBytes, 'k'), .value = std::string(kMaxValueBytes, 'v')},
      {.op = Op::kSet, .key = std::string(1, '\0')},
      {.op = Op::kAdd, .key = "n", .delta = -3},
      {.op = Op::kDelete, .key = "d"},
      {.op = Op::kWait, .timeout_us = ~uint64_t{0}, .keys = {"a", "bb"}},
      {.op = Op::kWait, .keys = std::vector<std::string>(kMaxKeysPerWait, std::string(kMaxKeyBytes, 'x'))},
      {.op = Op::kGoodbye},
  };
}

std::vector<Response> Responses() {
  return {
      {},
      {.kind = Response::Kind::kNumber, .number = -1},
      {.kind = Response::Kind::kValues, .values = {"", "x", std::string(5000, 'y')}},
      {.code = Code::kDeadlineExceeded, .message = "late"},
  };
}

TEST(StoreProtocol, RequestsSurviveCodingWithinTheLimit) {
  for (const Request& request : Requests()) {
    const std::string frame = Encode(request);
    EXPECT_LE(frame.size() - kLengthBytes, kMaxRequestBytes);
    const auto decoded = DecodeRequest(Body(frame));
    ASSERT_TRUE(decoded) << decoded.error().message;
    EXPECT_TRUE(*decoded == request);
  }
}

TEST(StoreProtocol, ResponsesSurviveCoding) {
  for (const Response& response : Responses()) {
    const auto decoded = DecodeResponse(Body(Encode(response)));
    ASSERT_TRUE(decoded) << decoded.error().message;
    EXPECT_TRUE(*decoded == response);
  }
}

TEST(StoreProtocol, EveryTruncationAndEveryExtraByteIsRefused) {
  for (const Request& request : Requests()) {
    const std::string frame = Encode(request);
    const net::Bytes body = Body(frame);
    for (size_t size = 0; size < std::min<size_t>(body.size(), 600); ++size)
      EXPECT_FALSE(DecodeRequest(body.first(size)));
    const std::string longer = frame + "x";
    EXPECT_FALSE(DecodeRequest(Body(longer)));
  }
}

TEST(StoreProtocol, LengthsAboveTheLimitsAreRefusedBeforeTheyAreBelieved) {
  const auto decode = [](std::string body) { return DecodeRequest(net::AsBytes(body)); };
  using namespace std::string_literals;
  EXPECT_FALSE(decode("\x01\xff\xff"s));                                  // key of 65535 bytes
  EXPECT_FALSE(decode("\x01\x00\x00\x00\x00\x00\x00"s));                  // key of no bytes
  EXPECT_FALSE(decode("\x01\x01\x00k\xff\xff\xff\xff"s));                 // value of 4 GiB
  EXPECT_FALSE(decode("\x02\x00\x00\x00\x00\x00\x00\x00\x00\xff\xff"s));  // 65535 keys
  EXPECT_FALSE(decode("\x09"s));                                          // no such request
  const std::string huge("\xff\xff\xff\x7f", 4);
  EXPECT_FALSE(DecodeLength(net::AsBytes(huge), kMaxResponseBytes));
  const std::string zero(4, '\0');
  EXPECT_FALSE(DecodeLength(net::AsBytes(zero), 100));
}

TEST(StoreProtocol, FramesAreCutWhereverTheBytesBreak) {
  std::string stream;
  for (const Request& request : Requests()) stream += Encode(request);
  const unsigned seed = std::random_device{}();
  SCOPED_TRACE(testing::Message() << "seed " << seed);
  std::mt19937 random(seed);
  FrameCutter cutter(kMaxRequestBytes);
  std::vector<Request> got;
  for (size_t at = 0; at < stream.size();) {
    const size_t count = std::min<size_t>(stream.size() - at, 1 + random() % (random() % 2 ? 7 : 100000));
    cutter.Append(net::AsBytes(stream).subspan(at, count));
    at += count;
    for (;;) {
      const auto body = cutter.Next();
      ASSERT_TRUE(body);
      if (!*body) break;
      got.push_back(*DecodeRequest(**body));
    }
  }
  EXPECT_TRUE(got == Requests());
  EXPECT_EQ(cutter.buffered(), 0u);
}

TEST(StoreProtocol, AnHttpRequestIsNoFrame) {
  FrameCutter cutter(kMaxRequestBytes);
  cutter.Append(net::AsBytes("PUT /scope/key HTTP/1.1\r\n"));
  EXPECT_FALSE(cutter.Next());
}

}  // namespace
}  // namespace hvd::rendezvous::tcp
