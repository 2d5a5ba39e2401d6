// SPDX-License-Identifier: Apache-2.0
#include "hvd/transport/shm/handshake.h"

#include <openssl/crypto.h>
#include <openssl/evp.h>
#include <openssl/hmac.h>
#include <poll.h>
#include <sys/random.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>

namespace hvd::transport::shm {
namespace {

constexpr size_t kMostFds = 253;  // SCM_MAX_FD

Mac Hmac(std::string_view key, std::string_view text) {
  // This library shares its process: no exit handlers, no configuration files.
  OPENSSL_init_crypto(OPENSSL_INIT_NO_ATEXIT | OPENSSL_INIT_NO_LOAD_CONFIG, nullptr);
  Mac mac{};
  unsigned int bytes = mac.size();
  HMAC(EVP_sha256(), key.data() != nullptr ? key.data() : "", static_cast<int>(key.size()),
       reinterpret_cast<const unsigned char*>(text.data()), text.size(), mac.data(), &bytes);
  return mac;
}

template <typename T>
void Append(std::string& text, const T& value) {
  text.append(reinterpret_cast<const char*>(&value), sizeof value);
}

int MillisecondsUntil(Time deadline) {
  const auto left = std::chrono::ceil<std::chrono::milliseconds>(deadline - std::chrono::steady_clock::now()).count();
  return static_cast<int>(std::clamp<int64_t>(left, 0, 1 << 30));
}

}  // namespace

bool WaitFor(int fd, short events, Time deadline) {
  for (;;) {
    pollfd waited{fd, events, 0};
    const int rc = ::poll(&waited, 1, MillisecondsUntil(deadline));
    if (rc > 0) return true;
    if (rc == 0 || errno != EINTR) return false;
  }
}

Status SendPacket(int socket, std::span<const std::byte> bytes, std::span<const int> fds, Time deadline) {
  iovec data{const_cast<std::byte*>(bytes.data()), bytes.size()};
  msghdr message{};
  message.msg_iov = &data;
  message.msg_iovlen = 1;
  alignas(cmsghdr) std::array<char, CMSG_SPACE(kMostFds * sizeof(int))> control{};
  if (!fds.empty()) {
    message.msg_control = control.data();
    message.msg_controllen = CMSG_SPACE(fds.size_bytes());
    cmsghdr* const header = CMSG_FIRSTHDR(&message);
    header->cmsg_level = SOL_SOCKET;
    header->cmsg_type = SCM_RIGHTS;
    header->cmsg_len = CMSG_LEN(fds.size_bytes());
    std::memcpy(CMSG_DATA(header), fds.data(), fds.size_bytes());
  }
  for (;;) {
    if (::sendmsg(socket, &message, MSG_NOSIGNAL | MSG_DONTWAIT) >= 0) return {};
    if (errno == EINTR) continue;
    // ETOOMANYREFS: as many descriptors as this user may have are under way in sockets. The receivers fetch them.
    const bool busy = errno == EAGAIN || errno == ENOBUFS || errno == ETOOMANYREFS;
    if (!busy) return Fail(Code::kAborted, "sending to a local rank failed: {}", std::strerror(errno));
    if (std::chrono::steady_clock::now() >= deadline) {
      return Fail(Code::kDeadlineExceeded, "a local rank does not take what it is sent: {}", std::strerror(errno));
    }
    if (errno == EAGAIN) {
      WaitFor(socket, POLLOUT, deadline);
    } else {
      ::usleep(200);
    }
  }
}

Result<Packet> ReceivePacket(int socket, Time deadline) {
  alignas(8) std::array<std::byte, 8192> bytes;
  alignas(cmsghdr) std::array<char, CMSG_SPACE(kMostFds * sizeof(int))> control{};
  static_assert(sizeof(Roster) <= bytes.size());
  iovec data{bytes.data(), bytes.size()};
  msghdr message{};
  message.msg_iov = &data;
  message.msg_iovlen = 1;
  message.msg_control = control.data();
  message.msg_controllen = control.size();
  ssize_t got = 0;
  for (;;) {
    // Never without waiting first: Linux says "closed" to who looks before a packet is there and is told of the end
    // after it is.
    if (!WaitFor(socket, POLLIN, deadline)) return Fail(Code::kDeadlineExceeded, "no answer in time");
    got = ::recvmsg(socket, &message, MSG_CMSG_CLOEXEC | MSG_DONTWAIT);
    if (got >= 0) break;
    if (errno == EINTR || errno == EAGAIN) continue;
    return Fail(Code::kAborted, "receiving from a local rank failed: {}", std::strerror(errno));
  }
  Packet packet;
  for (cmsghdr* header = CMSG_FIRSTHDR(&message); header != nullptr; header = CMSG_NXTHDR(&message, header)) {
    if (header->cmsg_level != SOL_SOCKET || header->cmsg_type != SCM_RIGHTS) continue;
    const size_t count = (header->cmsg_len - CMSG_LEN(0)) / sizeof(int);
    for (size_t i = 0; i < count; ++i) {
      int fd = -1;
      std::memcpy(&fd, CMSG_DATA(header) + i * sizeof fd, sizeof fd);
      packet.fds.emplace_back(fd);
    }
  }
  if ((message.msg_flags & MSG_CTRUNC) != 0) {
    return Fail(Code::kResourceExhausted, "descriptors of local ranks did not arrive: raise the limit (ulimit -n)");
  }
  if (got == 0 || (message.msg_flags & MSG_TRUNC) != 0)
    return Fail(Code::kAborted, "a local rank closed its connection");
  packet.bytes.assign(bytes.begin(), bytes.begin() + got);
  return packet;
}

Result<Kind> KindOf(const Packet& packet) {
  Header header;
  const Header ours;
  if (packet.bytes.size() < sizeof header) return Fail(Code::kInvalidArgument, "a packet that is too short");
  std::memcpy(static_cast<void*>(&header), packet.bytes.data(), sizeof header);
  if (header.magic != ours.magic) return Fail(Code::kInvalidArgument, "a packet of another program");
  if (header.version != ours.version) {
    return Fail(Code::kFailedPrecondition, "local ranks run different versions of this library ({} and {})",
                header.version, ours.version);
  }
  if (header.kind == Kind::kRefused) {
    Note note;
    std::memcpy(static_cast<void*>(&note), packet.bytes.data(), std::min(sizeof note, packet.bytes.size()));
    note.text[sizeof note.text - 1] = '\0';
    return Fail(Code::kAborted, "{}", note.text);
  }
  return header.kind;
}

Status SendNote(int socket, Kind kind, std::string_view text, Time deadline) {
  Note note;
  note.header.kind = kind;
  std::copy_n(text.data(), std::min(text.size(), sizeof note.text - 1), note.text);
  return SendMessage(socket, note, {}, deadline);
}

Mac LeaderMac(std::string_view key, const Nonce& member, const Proof& proof) {
  std::string text = "hvd shm leader 1";
  Append(text, member);
  Append(text, proof.nonce);
  Append(text, proof.generation);
  Append(text, proof.count);
  return Hmac(key, text);
}

Mac MemberMac(std::string_view key, const Nonce& member, const Nonce& leader, const Member& who) {
  std::string text = "hvd shm member 1";
  Append(text, leader);
  Append(text, member);
  Append(text, who);
  return Hmac(key, text);
}

bool Equal(const Mac& a, const Mac& b) { return CRYPTO_memcmp(a.data(), b.data(), a.size()) == 0; }

Nonce RandomNonce() {
  Nonce nonce{};
  // Never short for so few bytes once the system has booted; EINTR is the only way to fail.
  while (::getrandom(nonce.data(), nonce.size(), 0) != static_cast<ssize_t>(nonce.size())) {
  }
  return nonce;
}

Status CheckPeerUser(int socket) {
  ucred user{};
  socklen_t bytes = sizeof user;
  if (::getsockopt(socket, SOL_SOCKET, SO_PEERCRED, &user, &bytes) != 0) {
    return Fail(Code::kPermissionDenied, "the user of a local rank is unknown: {}", std::strerror(errno));
  }
  if (user.uid == ::geteuid()) return {};
  return Fail(Code::kPermissionDenied, "a local rank runs as user {}, this one as {}", user.uid, ::geteuid());
}

}  // namespace hvd::transport::shm
