// SPDX-License-Identifier: Apache-2.0
#pragma once
// What the local ranks say to their leader over a unix socket, once, before they share memory. Fixed-size messages, one
// per packet:
//
//   member -> leader   Hello   { nonce }
//   leader -> member   Proof   { nonce, HMAC over both nonces }            the leader holds the key
//   member -> leader   Join    { who, HMAC } + doorbell [+ arena] [+ pidfd] the member holds it too
//   leader -> member   Welcome { } + control file                           when all have joined
//   leader -> member   Roster  { who } + descriptors, as many as needed
//   member -> leader   Note kReady   mapped, watched
//   leader -> member   Note kGo      all are ready
// or at any time   leader -> member   Note kRefused { text }
//
// The leader proves itself first: an arena's descriptor goes to nobody who does not hold the key.
//
// Thread safety: free functions, safe.

#include <array>
#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "hvd/base/clock.h"
#include "hvd/base/result.h"
#include "hvd/transport/shm/fork.h"

namespace hvd::transport::shm {

using Nonce = std::array<uint8_t, 32>;
using Mac = std::array<uint8_t, 32>;

enum class Kind : uint16_t { kHello = 1, kProof, kJoin, kWelcome, kRoster, kReady, kGo, kRefused };

struct Header {
  uint32_t magic = 0x6d687648;
  uint16_t version = 1;
  Kind kind{};
};

struct Hello {
  static constexpr Kind kKind = Kind::kHello;
  Header header{.kind = kKind};
  uint64_t generation = 0;
  int32_t local = 0;
  int32_t count = 0;
  Nonce nonce{};
};

struct Proof {
  static constexpr Kind kKind = Kind::kProof;
  Header header{.kind = kKind};
  uint64_t generation = 0;
  int32_t count = 0;
  int32_t reserved = 0;
  Nonce nonce{};
  Mac mac{};
};

// One rank as the others need to know it. Descriptors: doorbell, then those that the flags name, in this order.
struct Member {
  enum Flags : uint32_t { kArena = 1, kPidfd = 2 };
  int32_t local = 0;
  int32_t rank = 0;
  int32_t pid = 0;
  uint32_t flags = 0;
  uint64_t arena_bytes = 0;
  uint64_t start_time = 0;     // of the process, in clock ticks since boot; tells a reused pid
  uint64_t pid_namespace = 0;  // inode; a pid of another namespace means nothing here
};

struct Join {
  static constexpr Kind kKind = Kind::kJoin;
  Header header{.kind = kKind};
  Member member;
  Mac mac{};
};

struct Welcome {
  static constexpr Kind kKind = Kind::kWelcome;
  Header header{.kind = kKind};
  int32_t count = 0;
  int32_t reserved = 0;
};

struct Roster {
  static constexpr Kind kKind = Kind::kRoster;
  static constexpr int kMost = 64;  // three descriptors each; a packet takes 253
  Header header{.kind = kKind};
  int32_t first = 0;
  int32_t count = 0;
  Member members[kMost]{};
};

struct Note {
  Header header{};
  char text[248]{};  // kRefused: why
};

struct Packet {
  std::vector<std::byte> bytes;
  std::vector<Fd> fds;
};

// Sends one packet, waiting for room until `deadline`.
Status SendPacket(int socket, std::span<const std::byte> bytes, std::span<const int> fds, Time deadline);
// Receives one packet. kAborted when the other side closed.
Result<Packet> ReceivePacket(int socket, Time deadline);
// Waits for an event of poll(2) on one descriptor; false at the deadline.
bool WaitFor(int fd, short events, Time deadline);

template <typename Message>
Status SendMessage(int socket, const Message& message, std::span<const int> fds, Time deadline) {
  return SendPacket(socket, std::as_bytes(std::span(&message, 1)), fds, deadline);
}

// The kind of a packet, if it has our header; an error otherwise. A refusal becomes an error with its text.
Result<Kind> KindOf(const Packet& packet);

template <typename Message>
Result<Message> Parse(const Packet& packet) {
  HVD_ASSIGN_OR_RETURN(const Kind kind, KindOf(packet));
  if (kind != Message::kKind || packet.bytes.size() != sizeof(Message)) {
    return Fail(Code::kInvalidArgument, "unexpected packet of kind {}, {} bytes", static_cast<int>(kind),
                packet.bytes.size());
  }
  Message message;
  std::copy_n(packet.bytes.data(), sizeof message, reinterpret_cast<std::byte*>(&message));
  return message;
}

Status SendNote(int socket, Kind kind, std::string_view text, Time deadline);

// What the two sides prove: HMAC-SHA256 under `key` of a label, both nonces and, from a member, who it is.
Mac LeaderMac(std::string_view key, const Nonce& member, const Proof& proof);
Mac MemberMac(std::string_view key, const Nonce& member, const Nonce& leader, const Member& who);
bool Equal(const Mac& a, const Mac& b);  // in constant time
Nonce RandomNonce();

// Whether the process at the other end runs under our user id.
Status CheckPeerUser(int socket);

}  // namespace hvd::transport::shm
