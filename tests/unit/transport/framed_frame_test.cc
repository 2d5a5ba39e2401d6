// SPDX-License-Identifier: Apache-2.0
#include "hvd/transport/frame.h"

#include <gtest/gtest.h>

#include <array>
#include <random>

namespace hvd::transport {
namespace {

using Bytes = std::array<std::byte, kFrameHeaderBytes>;

TEST(Frame, AHeaderSurvivesTheWire) {
  for (const FrameHeader& header :
       {FrameHeader{FrameType::kMessage, 5, 0, 5}, FrameHeader{FrameType::kEager, 0, 9, 0},
        FrameHeader{FrameType::kEager, kEagerBytes, ~uint64_t{0}, kEagerBytes},
        FrameHeader{FrameType::kAnnounce, 0, 3, uint64_t{1} << 40},
        FrameHeader{FrameType::kGrant, 0, 3, uint64_t{1} << 40},
        FrameHeader{FrameType::kData, kMaxDataBytes, 3, uint64_t{1} << 40}, FrameHeader{FrameType::kCredit, 0, 0, 100},
        FrameHeader{FrameType::kFail, 9, 0, 9}, FrameHeader{FrameType::kBye, 0, 0, 0}}) {
    Bytes bytes;
    EncodeFrameHeader(header, bytes);
    const auto decoded = DecodeFrameHeader(bytes);
    ASSERT_TRUE(decoded) << decoded.error().message;
    EXPECT_EQ(decoded->type, header.type);
    EXPECT_EQ(decoded->length, header.length);
    EXPECT_EQ(decoded->lane, header.lane);
    EXPECT_EQ(decoded->total, header.total);
  }
}

TEST(Frame, FieldsThatDoNotFitTheTypeAreRefused) {
  for (const FrameHeader& header :
       {FrameHeader{FrameType::kMessage, kMaxMessageBytes + kSealBytes + 1, 0, kMaxMessageBytes + kSealBytes + 1},
        FrameHeader{FrameType::kMessage, 5, 1, 5}, FrameHeader{FrameType::kMessage, 5, 0, 6},
        FrameHeader{FrameType::kEager, kEagerBytes + 1, 0, kEagerBytes + 1}, FrameHeader{FrameType::kData, 0, 0, 5},
        FrameHeader{FrameType::kData, 6, 0, 5}, FrameHeader{FrameType::kData, kMaxDataBytes + 1, 0, 1 << 30},
        FrameHeader{FrameType::kGrant, 1, 0, 5}, FrameHeader{FrameType::kAnnounce, 0, 0, ~uint64_t{0}},
        FrameHeader{FrameType::kCredit, 0, 0, kEagerWindow + 1}, FrameHeader{FrameType::kBye, 0, 0, 1},
        FrameHeader{static_cast<FrameType>(0), 0, 0, 0}, FrameHeader{static_cast<FrameType>(9), 0, 0, 0}}) {
    Bytes bytes;
    EncodeFrameHeader(header, bytes);
    EXPECT_FALSE(DecodeFrameHeader(bytes));
  }
}

TEST(Frame, AnyByteOfTheMagicMatters) {
  Bytes bytes;
  EncodeFrameHeader({.type = FrameType::kBye}, bytes);
  for (const int at : {0, 1, 3}) {
    Bytes wrong = bytes;
    wrong[at] ^= std::byte{0x40};
    EXPECT_FALSE(DecodeFrameHeader(wrong));
  }
}

}  // namespace
}  // namespace hvd::transport
