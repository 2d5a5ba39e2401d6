// SPDX-License-Identifier: Apache-2.0
// The leader's side of the meeting: all connections in one poll loop, each one's packets taken as they come.
#include <fmt/ranges.h>
#include <poll.h>
#include <sys/socket.h>
#include <sys/un.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <optional>

#include "hvd/base/log.h"
#include "hvd/transport/shm/hub.h"

namespace hvd::transport::shm {
namespace {

constexpr int64_t kLookAroundMs = 100;
// The name of the socket is visible to all users: their connections must not keep ranks out, nor fill the log.
constexpr int kLeastBacklog = 128;
constexpr int kMostWarnings = 3;

class Leader final : public Hub {
 public:
  explicit Leader(HubOptions options) : options_(std::move(options)), joined_(options_.ranks.size()) {}
  ~Leader() override {
    if (listening_) (void)options_.store->Delete(options_.key);
  }

  Status Listen();
  Result<std::vector<LocalRank>> Exchange(LocalRank self, Fd* control) override;
  Status Ready() override;

 private:
  enum class Stage { kHello, kJoin, kJoined, kReady };
  struct Connection {
    Fd socket;
    Stage stage = Stage::kHello;
    Hello hello;
    Proof proof;
  };

  // Handles packets until every member has reached `stage`.
  Status Gather(Stage stage);
  void Accept();
  // That a connection was refused.
  void Warn(const Error& error);
  Status Take(Connection& connection);
  Status OnHello(Connection& connection, const Packet& packet);
  Status OnJoin(Connection& connection, Packet& packet);
  Status SendRoster(const Connection& to, const std::vector<LocalRank*>& all, int control);
  std::string Missing(Stage stage) const;
  tl::unexpected<Error> Refuse(Error error);

  const HubOptions options_;
  Fd listener_;
  bool listening_ = false;
  int warnings_ = 0;
  std::vector<std::unique_ptr<Connection>> connections_;
  std::vector<std::optional<LocalRank>> joined_;
};

Status Leader::Listen() {
  if (options_.ranks.size() == 1) return {};
  listener_ = Fd(::socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC | SOCK_NONBLOCK, 0));
  if (!listener_) return Fail(Code::kUnimplemented, "no unix socket: {}", std::strerror(errno));
  const Nonce random = RandomNonce();
  const std::string name = fmt::format("hvd-{:02x}", fmt::join(random.begin(), random.begin() + 16, ""));
  sockaddr_un address{};
  address.sun_family = AF_UNIX;
  name.copy(address.sun_path + 1, name.size());
  const auto bytes = static_cast<socklen_t>(offsetof(sockaddr_un, sun_path) + 1 + name.size());
  if (::bind(listener_.get(), reinterpret_cast<sockaddr*>(&address), bytes) != 0 ||
      ::listen(listener_.get(), std::max(kLeastBacklog, static_cast<int>(options_.ranks.size()))) != 0) {
    return Fail(Code::kUnimplemented, "the unix socket of this host's ranks cannot be opened: {}",
                std::strerror(errno));
  }
  listening_ = true;
  return options_.store->Set(options_.key, name);
}

std::string Leader::Missing(Stage stage) const {
  std::vector<int> missing;
  for (size_t i = 1; i < options_.ranks.size(); ++i) {
    const bool there = std::any_of(connections_.begin(), connections_.end(), [&](const auto& connection) {
      return connection->stage >= stage && connection->hello.local == static_cast<int>(i);
    });
    if (!there) missing.push_back(options_.ranks[i]);
  }
  return fmt::format("rank{} {}", missing.size() == 1 ? "" : "s", fmt::join(missing, ", "));
}

tl::unexpected<Error> Leader::Refuse(Error error) {
  const Time soon =
      std::min(options_.deadline, Time(std::chrono::steady_clock::now() + std::chrono::milliseconds(100)));
  for (const auto& connection : connections_) {
    if (connection->socket) (void)SendNote(connection->socket.get(), Kind::kRefused, error.message, soon);
  }
  connections_.clear();
  return Fail(std::move(error));
}

void Leader::Warn(const Error& error) {
  const auto level = ++warnings_ <= kMostWarnings ? log::Level::kWarning : log::Level::kDebug;
  if (!log::Enabled(level)) return;
  log::Write(level, fmt::format("a connection to the shared memory of this host was refused: {}", error.message));
}

void Leader::Accept() {
  Fd socket(::accept4(listener_.get(), nullptr, nullptr, SOCK_CLOEXEC | SOCK_NONBLOCK));
  if (!socket) return;
  if (auto user = CheckPeerUser(socket.get()); !user) {
    Warn(user.error());
    return;
  }
  connections_.push_back(std::make_unique<Connection>());
  connections_.back()->socket = std::move(socket);
}

Status Leader::OnHello(Connection& connection, const Packet& packet) {
  HVD_ASSIGN_OR_RETURN(connection.hello, Parse<Hello>(packet));
  const Hello& hello = connection.hello;
  const int count = static_cast<int>(options_.ranks.size());
  if (hello.generation != options_.generation || hello.count != count || hello.local < 1 || hello.local >= count) {
    return Fail(Code::kFailedPrecondition,
                "local ranks disagree: local rank {} of {}, generation {} here; {} of {}, {} there", options_.local,
                count, options_.generation, hello.local, hello.count, hello.generation);
  }
  connection.proof.generation = options_.generation;
  connection.proof.count = count;
  connection.proof.nonce = RandomNonce();
  connection.proof.mac = LeaderMac(options_.auth_key, hello.nonce, connection.proof);
  connection.stage = Stage::kJoin;
  return SendMessage(connection.socket.get(), connection.proof, {}, options_.deadline);
}

Status Leader::OnJoin(Connection& connection, Packet& packet) {
  HVD_ASSIGN_OR_RETURN(const Join join, Parse<Join>(packet));
  const Mac expected = MemberMac(options_.auth_key, connection.hello.nonce, connection.proof.nonce, join.member);
  if (!Equal(join.mac, expected)) return Fail(Code::kPermissionDenied, "it does not hold this job's key");
  const int local = connection.hello.local;
  if (join.member.local != local || join.member.rank != options_.ranks[static_cast<size_t>(local)]) {
    return Fail(Code::kFailedPrecondition, "rank {} says that it is local rank {} of this host", join.member.rank,
                join.member.local);
  }
  auto& place = joined_[static_cast<size_t>(local)];
  if (place.has_value()) return Fail(Code::kAlreadyExists, "rank {} is here already", join.member.rank);
  size_t at = 0;
  HVD_ASSIGN_OR_RETURN(LocalRank rank, Unpack(join.member, packet, &at));
  place = std::move(rank);
  connection.stage = Stage::kJoined;
  return {};
}

Status Leader::Take(Connection& connection) {
  HVD_ASSIGN_OR_RETURN(Packet packet, ReceivePacket(connection.socket.get(), options_.deadline));
  if (connection.stage == Stage::kHello) return OnHello(connection, packet);
  if (connection.stage == Stage::kJoin) return OnJoin(connection, packet);
  HVD_ASSIGN_OR_RETURN(const Kind kind, KindOf(packet));
  if (connection.stage != Stage::kJoined || kind != Kind::kReady) return Fail(Code::kInternal, "unexpected packet");
  connection.stage = Stage::kReady;
  return {};
}

Status Leader::Gather(Stage stage) {
  const auto wanted = std::ssize(options_.ranks) - 1;
  for (;;) {
    std::vector<pollfd> waited{{listener_.get(), POLLIN, 0}};
    int there = 0;
    for (const auto& connection : connections_) {
      waited.push_back({connection->socket.get(), POLLIN, 0});
      there += connection->stage >= stage;
    }
    if (there == wanted) return {};
    const auto left =
        std::chrono::ceil<std::chrono::milliseconds>(options_.deadline - std::chrono::steady_clock::now());
    const auto slice = std::min<int64_t>(left.count(), kLookAroundMs);
    const int rc = slice <= 0 ? 0 : ::poll(waited.data(), waited.size(), static_cast<int>(slice));
    if (rc < 0 && errno != EINTR) return Fail(Code::kInternal, "poll failed: {}", std::strerror(errno));
    if (rc == 0 && slice > 0) {
      // A member that failed before it came here has left word.
      const auto word = options_.store->Wait({RefusalKey(options_.key)}, Duration(0));
      const auto why = word ? ReadRefusal(word->front()) : std::nullopt;
      if (why) return Fail(Code::kUnimplemented, "{}", *why);
      continue;
    }
    if (rc == 0) {
      return Fail(Code::kDeadlineExceeded, "{} of this host did not join its shared memory in time", Missing(stage));
    }
    for (size_t i = 1; rc > 0 && i < waited.size(); ++i) {
      Connection& connection = *connections_[i - 1];
      if (waited[i].revents == 0) continue;
      auto taken = Take(connection);
      if (taken) continue;
      // Before it proved who it is, a connection's failure is its own; afterwards a rank is lost.
      if (connection.stage >= Stage::kJoined) {
        return Fail(Code::kUnknown, "rank {} was lost while the ranks of this host met: {}",
                    options_.ranks[static_cast<size_t>(connection.hello.local)], taken.error().message);
      }
      if (taken.error().code != Code::kAborted) {
        Warn(taken.error());
        (void)SendNote(connection.socket.get(), Kind::kRefused, taken.error().message, options_.deadline);
      }
      connection.socket.Close();
    }
    if (rc > 0 && waited[0].revents != 0) Accept();
    std::erase_if(connections_, [](const auto& connection) { return !connection->socket; });
  }
}

Status Leader::SendRoster(const Connection& to, const std::vector<LocalRank*>& all, int control) {
  Welcome welcome;
  welcome.count = static_cast<int32_t>(all.size());
  HVD_RETURN_IF_ERROR(SendMessage(to.socket.get(), welcome, std::span(&control, 1), options_.deadline));
  for (size_t first = 0; first < all.size(); first += Roster::kMost) {
    Roster roster;
    roster.first = static_cast<int32_t>(first);
    roster.count = static_cast<int32_t>(std::min<size_t>(Roster::kMost, all.size() - first));
    std::vector<int> fds;
    for (int i = 0; i < roster.count; ++i) {
      LocalRank& rank = *all[first + static_cast<size_t>(i)];
      const std::vector<int> its = Descriptors(rank);
      fds.insert(fds.end(), its.begin(), its.end());
      roster.members[i] = rank.member;
    }
    HVD_RETURN_IF_ERROR(SendMessage(to.socket.get(), roster, fds, options_.deadline));
  }
  return {};
}

Result<std::vector<LocalRank>> Leader::Exchange(LocalRank self, Fd* control) {
  if (options_.ranks.size() > 1) {
    if (auto gathered = Gather(Stage::kJoined); !gathered) return Refuse(gathered.error());
  }
  joined_[0] = std::move(self);
  std::vector<LocalRank*> all;
  for (auto& rank : joined_) all.push_back(&*rank);
  for (const auto& connection : connections_) {
    if (connection->stage != Stage::kJoined) continue;
    if (auto sent = SendRoster(*connection, all, control->get()); !sent) return Refuse(sent.error());
  }
  std::vector<LocalRank> result;
  for (auto& rank : joined_) result.push_back(std::move(*rank));
  return result;
}

Status Leader::Ready() {
  if (options_.ranks.size() == 1) return {};
  if (auto gathered = Gather(Stage::kReady); !gathered) return Refuse(gathered.error());
  for (const auto& connection : connections_) {
    if (connection->stage == Stage::kReady) {
      HVD_RETURN_IF_ERROR(SendNote(connection->socket.get(), Kind::kGo, "", options_.deadline));
    }
  }
  connections_.clear();
  return {};
}

}  // namespace

Result<std::unique_ptr<Hub>> CreateLeader(HubOptions options) {
  auto leader = std::make_unique<Leader>(std::move(options));
  HVD_RETURN_IF_ERROR(leader->Listen());
  return std::unique_ptr<Hub>(std::move(leader));
}

}  // namespace hvd::transport::shm
