// SPDX-License-Identifier: Apache-2.0
#include "hvd/transport/frame.h"

#include <type_traits>

namespace hvd::transport {
namespace {

constexpr uint16_t kMagic = 0x4876;  // "vH"
// No operation is larger; keeps sums of sizes far from overflow.
constexpr uint64_t kMaxTotal = uint64_t{1} << 56;

template <typename T>
void Put(std::byte* out, T value) {
  for (size_t i = 0; i < sizeof(T); ++i) out[i] = static_cast<std::byte>(value >> (8 * i));
}

template <typename T>
T Get(const std::byte* in) {
  T value = 0;
  for (size_t i = 0; i < sizeof(T); ++i) value = static_cast<T>(value | static_cast<T>(in[i]) << (8 * i));
  return value;
}

bool FitsType(const FrameHeader& h) {
  switch (h.type) {
    case FrameType::kMessage:
      return h.lane == 0 && h.total == h.length && h.length <= kMaxMessageBytes + kSealBytes;
    case FrameType::kEager:
      return h.total == h.length && h.length <= kEagerBytes;
    case FrameType::kAnnounce:
    case FrameType::kGrant:
      return h.length == 0;
    case FrameType::kData:
      return h.length > 0 && h.length <= kMaxDataBytes && h.length <= h.total;
    case FrameType::kCredit:
      return h.length == 0 && h.lane == 0 && h.total <= kEagerWindow;
    case FrameType::kFail:
      return h.lane == 0 && h.total == h.length && h.length <= kMaxFailBytes + kSealBytes;
    case FrameType::kBye:
      return h.length == 0 && h.lane == 0 && h.total == 0;
  }
  return false;
}

}  // namespace

void EncodeFrameHeader(const FrameHeader& header, std::span<std::byte, kFrameHeaderBytes> out) {
  Put<uint16_t>(&out[0], kMagic);
  out[2] = static_cast<std::byte>(header.type);
  out[3] = std::byte{0};
  Put<uint32_t>(&out[4], header.length);
  Put<uint64_t>(&out[8], header.lane);
  Put<uint64_t>(&out[16], header.total);
}

Result<FrameHeader> DecodeFrameHeader(std::span<const std::byte, kFrameHeaderBytes> in) {
  if (Get<uint16_t>(&in[0]) != kMagic || in[3] != std::byte{0}) {
    return Fail(Code::kInternal, "frame header without its magic bytes");
  }
  const FrameHeader header{.type = static_cast<FrameType>(in[2]),
                           .length = Get<uint32_t>(&in[4]),
                           .lane = Get<uint64_t>(&in[8]),
                           .total = Get<uint64_t>(&in[16])};
  if (header.total > kMaxTotal || !FitsType(header)) {
    return Fail(Code::kInternal, "invalid frame header: type {}, length {}, lane {}, total {}",
                static_cast<int>(header.type), header.length, header.lane, header.total);
  }
  return header;
}

}  // namespace hvd::transport
