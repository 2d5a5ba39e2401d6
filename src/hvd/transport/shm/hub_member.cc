// SPDX-License-Identifier: Apache-2.0
// A member's side of the meeting: a straight line of packets.
#include <poll.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>

#include "hvd/transport/shm/hub.h"

namespace hvd::transport::shm {
namespace {

constexpr std::string_view kRefusal = "no: ";

class MemberSide final : public Hub {
 public:
  explicit MemberSide(HubOptions options) : options_(std::move(options)) {}

  Status Connect();
  Result<std::vector<LocalRank>> Exchange(LocalRank self, Fd* control) override;
  Status Ready() override;

 private:
  Result<Fd> TryConnect(const std::string& name);
  Status Introduce(LocalRank& self);
  template <typename T>
  Result<T> Explain(Result<T> result) const;

  const HubOptions options_;
  Fd socket_;
};

// Says whom this rank was talking to when it failed.
template <typename T>
Result<T> MemberSide::Explain(Result<T> result) const {
  if (result) return result;
  Error error = std::move(result).error();
  error.message = fmt::format("rank {} could not join the shared memory of its host, led by rank {}: {}",
                              options_.ranks[static_cast<size_t>(options_.local)], options_.ranks[0], error.message);
  if (error.code == Code::kAborted) error.code = Code::kUnknown;
  return Fail(std::move(error));
}

Result<Fd> MemberSide::TryConnect(const std::string& name) {
  sockaddr_un address{};
  address.sun_family = AF_UNIX;
  if (name.empty() || name.size() > 64)
    return Fail(Code::kInvalidArgument, "no name of a socket: {} bytes", name.size());
  name.copy(address.sun_path + 1, name.size());
  const auto bytes = static_cast<socklen_t>(offsetof(sockaddr_un, sun_path) + 1 + name.size());
  Fd socket(::socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC | SOCK_NONBLOCK, 0));
  if (!socket) return Fail(Code::kUnimplemented, "no unix socket: {}", std::strerror(errno));
  if (::connect(socket.get(), reinterpret_cast<sockaddr*>(&address), bytes) != 0) {
    return Fail(Code::kAborted, "connecting failed: {}", std::strerror(errno));
  }
  return socket;
}

Status MemberSide::Connect() {
  for (;;) {
    const Duration left = options_.deadline - std::chrono::steady_clock::now();
    auto names = options_.store->Wait({options_.key}, std::max(left, Duration(0)));
    if (!names) {
      if (names.error().code != Code::kDeadlineExceeded) return Explain(Status(Fail(names.error())));
      return Explain(Status(Fail(Code::kDeadlineExceeded, "rank {} did not open it in time", options_.ranks[0])));
    }
    if (const auto why = ReadRefusal(names->front())) return Fail(Code::kUnimplemented, "{}", *why);
    auto socket = TryConnect(names->front());
    if (socket) {
      socket_ = std::move(*socket);
      return Explain(CheckPeerUser(socket_.get()));
    }
    // A name that nobody listens on is a leftover of an earlier try, or the leader's queue is full for a moment.
    if (socket.error().code != Code::kAborted || std::chrono::steady_clock::now() >= options_.deadline) {
      return Explain(Status(Fail(socket.error())));
    }
    ::usleep(1000);
  }
}

Status MemberSide::Introduce(LocalRank& self) {
  Hello hello;
  hello.generation = options_.generation;
  hello.local = options_.local;
  hello.count = static_cast<int32_t>(options_.ranks.size());
  hello.nonce = RandomNonce();
  HVD_RETURN_IF_ERROR(SendMessage(socket_.get(), hello, {}, options_.deadline));
  HVD_ASSIGN_OR_RETURN(const Packet answer, ReceivePacket(socket_.get(), options_.deadline));
  HVD_ASSIGN_OR_RETURN(const Proof proof, Parse<Proof>(answer));
  if (!Equal(proof.mac, LeaderMac(options_.auth_key, hello.nonce, proof))) {
    return Fail(Code::kPermissionDenied, "it does not hold this job's key");
  }
  Join join;
  const std::vector<int> fds = Descriptors(self);
  join.member = self.member;
  join.mac = MemberMac(options_.auth_key, hello.nonce, proof.nonce, join.member);
  return SendMessage(socket_.get(), join, fds, options_.deadline);
}

Result<std::vector<LocalRank>> MemberSide::Exchange(LocalRank self, Fd* control) {
  HVD_RETURN_IF_ERROR(Explain(Introduce(self)));
  HVD_ASSIGN_OR_RETURN(Packet first, Explain(ReceivePacket(socket_.get(), options_.deadline)));
  HVD_ASSIGN_OR_RETURN(const Welcome welcome, Explain(Parse<Welcome>(first)));
  if (first.fds.size() != 1 || welcome.count != std::ssize(options_.ranks)) {
    return Explain(Result<std::vector<LocalRank>>(Fail(Code::kInternal, "a welcome that does not fit")));
  }
  *control = std::move(first.fds[0]);
  std::vector<LocalRank> all;
  while (std::ssize(all) < welcome.count) {
    HVD_ASSIGN_OR_RETURN(Packet packet, Explain(ReceivePacket(socket_.get(), options_.deadline)));
    HVD_ASSIGN_OR_RETURN(const Roster roster, Explain(Parse<Roster>(packet)));
    if (roster.first != std::ssize(all) || roster.count < 1 || roster.count > Roster::kMost ||
        roster.count > welcome.count - roster.first) {
      return Explain(Result<std::vector<LocalRank>>(Fail(Code::kInternal, "a roster that does not fit")));
    }
    size_t at = 0;
    for (int i = 0; i < roster.count; ++i) {
      HVD_ASSIGN_OR_RETURN(LocalRank rank, Explain(Unpack(roster.members[i], packet, &at)));
      all.push_back(std::move(rank));
    }
  }
  return all;
}

Status MemberSide::Ready() {
  HVD_RETURN_IF_ERROR(Explain(SendNote(socket_.get(), Kind::kReady, "", options_.deadline)));
  HVD_ASSIGN_OR_RETURN(const Packet packet, Explain(ReceivePacket(socket_.get(), options_.deadline)));
  HVD_ASSIGN_OR_RETURN(const Kind kind, Explain(KindOf(packet)));
  socket_.Close();
  if (kind != Kind::kGo) return Explain(Status(Fail(Code::kInternal, "unexpected packet")));
  return {};
}

}  // namespace

std::vector<int> Descriptors(LocalRank& rank) {
  std::vector<int> fds{rank.doorbell.get()};
  rank.member.flags = 0;
  if (rank.arena) {
    rank.member.flags |= Member::kArena;
    fds.push_back(rank.arena.get());
  }
  if (rank.pidfd) {
    rank.member.flags |= Member::kPidfd;
    fds.push_back(rank.pidfd.get());
  }
  return fds;
}

Result<LocalRank> Unpack(const Member& member, Packet& packet, size_t* at) {
  const bool arena = (member.flags & Member::kArena) != 0;
  const bool pidfd = (member.flags & Member::kPidfd) != 0;
  if (packet.fds.size() < *at + 1 + arena + pidfd) return Fail(Code::kInternal, "descriptors are missing");
  LocalRank rank;
  rank.member = member;
  rank.doorbell = std::move(packet.fds[(*at)++]);
  if (arena) rank.arena = std::move(packet.fds[(*at)++]);
  if (pidfd) rank.pidfd = std::move(packet.fds[(*at)++]);
  return rank;
}

Result<std::unique_ptr<Hub>> CreateMember(HubOptions options) {
  auto member = std::make_unique<MemberSide>(std::move(options));
  HVD_RETURN_IF_ERROR(member->Connect());
  return std::unique_ptr<Hub>(std::move(member));
}

std::string RefusalKey(const std::string& key) { return key + "/no"; }

std::string Refusal(std::string_view why) { return fmt::format("{}{}", kRefusal, why.substr(0, 500)); }

std::optional<std::string> ReadRefusal(const std::string& value) {
  if (!value.starts_with(kRefusal)) return std::nullopt;
  return value.substr(kRefusal.size());
}

Result<std::unique_ptr<Hub>> Hub::Create(HubOptions options) {
  return options.local == 0 ? CreateLeader(std::move(options)) : CreateMember(std::move(options));
}

}  // namespace hvd::transport::shm
