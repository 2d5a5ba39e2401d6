// SPDX-License-Identifier: Apache-2.0
#include "hvd/engine/boot.h"

#include <fmt/ranges.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <optional>

#include "hvd/base/log.h"
#include "hvd/engine/card.h"
#include "hvd/engine/introduction.h"
#include "hvd/engine/meeting.h"
#include "hvd/engine/place.h"
#include "hvd/net/address.h"
#include "hvd/net/crypto.h"
#include "hvd/net/token.h"
#include "hvd/topology/host.h"
#include "hvd/topology/process.h"
#include "hvd/transport/inproc/window.h"
#include "hvd/transport/shm/ring.h"
#include "hvd/transport/shm/ring_pair.h"
#include "hvd/transport/shm/window.h"
#include "hvd/transport/tcp/factory.h"

namespace hvd::engine {
namespace {

using transport::shm::Arena;

// For clients of a store that is about to go.
constexpr Duration kLastAnswers = std::chrono::seconds(3);
// For ranks to say that they need a folder's keys no more.
constexpr Duration kTidyUp = std::chrono::seconds(2);

// One boot; its members are filled in as the steps go.
class Booter {
 public:
  explicit Booter(const BootOptions& options) : options_(options), config_(options.config) {}
  Result<World> Run();

 private:
  Result<Place> OpenAnyPlace() const;
  Status OpenTuneLog();
  Status MeetAndConnect();
  Result<Card> MakeCard() const;
  Status ChooseKey();
  Status ShareMemory();
  Status MakeRings();
  Status Connect();
  Result<net::Address> ListenAddress() const;
  Duration Left() const { return std::max(deadline_ - clock_.Now(), Duration(1)); }
  bool in_process() const { return IsInProcess(config_.rendezvous_addr); }

  const BootOptions& options_;
  Config config_;  // with the address that was found
  SteadyClock clock_;
  Time deadline_{};
  std::optional<net::Token> token_;  // the job's, or one for this generation that came through the store
  Place place_;
  std::optional<Meeting> meeting_;
  std::vector<Card> cards_;
  World world_;
};

Result<World> Booter::Run() {
  deadline_ = clock_.Now() + Seconds(config_.start_timeout_s);
  world_.generation = config_.generation;
  world_.mpi = options_.way.mpi;
  world_.mpi_comm = options_.way.comm;
  // What this rank alone could not do need not wait for the others.
  world_.settings = SettingsOf(config_);
  if (auto table = TableOf(world_.settings); !table) return Fail(std::move(table).error());
  HVD_ASSIGN_OR_RETURN(world_.loop, loop::CreateEpollLoop());
  if (config_.size == 1) {
    HVD_ASSIGN_OR_RETURN(const std::string host, topology::HostIdentity(config_.hostname));
    world_.layout = MakeLayout(0, {host});
    Report(config_, &world_.layout);
    world_.ranks = {{host, topology::Hostname(), static_cast<int>(getpid())}};
    HVD_RETURN_IF_ERROR(OpenTuneLog());
    return std::move(world_);
  }
  Status ready;
  do {
    meeting_.reset();
    place_ = {};
    HVD_ASSIGN_OR_RETURN(place_, OpenAnyPlace());
    config_.rendezvous_addr = place_.address;
    token_ = place_.token;
    meeting_.emplace(config_, place_.store.get(), deadline_, [this] {
      const std::string refusal = place_.server == nullptr ? "" : place_.server->LastRefusal();
      return refusal.empty() ? "" : fmt::format("the store turned somebody away: {}", refusal);
    });
    ready = MeetAndConnect();
  } while (!ready && meeting_->came_too_early() && clock_.Now() < deadline_);
  if (!ready) {
    meeting_->GiveUp(ready.error());
    meeting_.reset();
    place_.store.reset();
    // Those who wait for this store's answer shall still read why.
    if (place_.server != nullptr) (void)place_.server->Drain(kLastAnswers);
    return Fail(std::move(ready).error());
  }
  log::Info("rank {} of {}: {} ranks of this host by {}, {} others by TCP", config_.rank, config_.size,
            world_.layout.local_size, world_.window != nullptr ? "shared memory" : "TCP",
            config_.size - world_.layout.local_size);
  // Who comes now comes for the next start.
  if (place_.server != nullptr) place_.server->CloseDoor();
  // The store may be rank 0's own: it must not go before everybody has what it came for.
  meeting_->Finish(place_.server != nullptr ? Left() : kTidyUp, IsFolder(config_.rendezvous_addr));
  meeting_.reset();
  place_.store.reset();
  if (place_.server != nullptr) (void)place_.server->Drain(kLastAnswers);
  return std::move(world_);
}

Result<Place> Booter::OpenAnyPlace() const {
  const bool introduced = options_.way.kind > Way::Kind::kAddress;
  return introduced ? IntroducedPlace(config_, options_.way, deadline_) : OpenPlace(config_, deadline_);
}

Status Booter::OpenTuneLog() {
  if (!config_.autotune || config_.rank != 0) return {};
  HVD_ASSIGN_OR_RETURN(world_.tune_log, tune::CsvLog::Open(config_.autotune_log));
  return {};
}

Status Booter::MeetAndConnect() {
  HVD_ASSIGN_OR_RETURN(Card card, MakeCard());
  HVD_ASSIGN_OR_RETURN(cards_, meeting_->Meet(std::move(card)));
  HVD_RETURN_IF_ERROR(OpenTuneLog());  // now, so that the others hear why there is no job
  HVD_RETURN_IF_ERROR(ChooseKey());
  HVD_RETURN_IF_ERROR(ShareMemory());
  world_.pairs.resize(config_.size);
  if (world_.window != nullptr) HVD_RETURN_IF_ERROR(MakeRings());
  return Connect();
}

Result<Card> Booter::MakeCard() const {
  Card card;
  card.version = HVD_VERSION;
  card.size = config_.size;
  card.process = topology::ThisProcess();
  HVD_ASSIGN_OR_RETURN(card.host_id, topology::HostIdentity(config_.hostname));
  card.hostname = config_.hostname.empty() ? topology::Hostname() : config_.hostname;
  if (config_.disable_shm) {
    card.no_shm = "HOROVOD_DISABLE_SHM is set";
  } else if (Arena::Process().inherited()) {
    card.no_shm = "it was forked from a process that had used shared memory";
  } else if (!Arena::Process().shareable()) {
    card.no_shm = Arena::Process().why();
  } else if (!in_process()) {
    if (auto probe = transport::shm::Probe(); !probe) card.no_shm = probe.error().message;
  }
  card.process_sets = fmt::format("{}", options_.process_sets);
  card.trust = config_.insecure ? "insecure" : "none";
  if (token_) {
    HVD_ASSIGN_OR_RETURN(const net::Key derived, net::DeriveKey(token_->bytes(), "card", config_.generation));
    card.trust = net::ToHex(net::Bytes(derived.bytes).first(8));
  }
  card.encrypt = config_.encrypt;
  card.settings = SettingsOf(config_);
  return card;
}

Status Booter::ChooseKey() {
  std::vector<std::string> hosts;
  for (const Card& card : cards_) {
    hosts.push_back(card.host_id);
    world_.ranks.push_back({card.host_id, card.hostname, card.process.pid});
  }
  world_.layout = MakeLayout(config_.rank, hosts);
  // Threads of one process share its environment, which speaks of the process.
  if (!in_process()) Report(config_, &world_.layout);
  world_.settings = cards_[0].settings;
  if (token_.has_value() || config_.insecure) return {};
  // The store is open to this user alone, so what rank 0 puts there is a secret of this job.
  if (config_.rank == 0) {
    HVD_ASSIGN_OR_RETURN(token_, net::Token::Generate());
    const auto bytes = token_->bytes();
    std::string hex;
    for (const auto byte : bytes) hex += fmt::format("{:02x}", static_cast<unsigned>(byte));
    return meeting_->Put("key", hex);
  }
  HVD_ASSIGN_OR_RETURN(const auto values, meeting_->Gather("key", {0}));
  HVD_ASSIGN_OR_RETURN(token_, net::Token::FromHex(values[0]));
  return {};
}

Status Booter::ShareMemory() {
  const auto& locals = world_.layout.local_ranks;
  if (locals.size() < 2) return {};
  std::string why;
  for (Rank rank : locals) {
    if (why.empty() && !cards_[rank].no_shm.empty()) why = fmt::format("rank {}: {}", rank, cards_[rank].no_shm);
  }
  if (why.empty()) {
    const auto changed = world_.peers_changed;
    loop::Loop* loop = world_.loop.get();
    const auto on_change = [changed, loop] {
      changed->store(true, std::memory_order_release);
      loop->Wake();
    };
    const std::string prefix = fmt::format("{}/window/{}", meeting_->prefix(), locals[0]);
    Result<std::unique_ptr<transport::Window>> window = Fail(Code::kInternal, "");
    if (in_process()) {
      transport::inproc::WindowOptions inproc;
      inproc.group = transport::inproc::Group::Named(config_.rendezvous_addr + prefix, locals, config_.generation);
      inproc.local = world_.layout.local_rank;
      inproc.doorbell = loop->wake_fd();
      inproc.on_change = on_change;
      inproc.deadline = deadline_;
      window = transport::inproc::CreateWindow(inproc);
    } else {
      transport::shm::WindowOptions shm;
      shm.store = place_.store.get();
      shm.prefix = prefix;
      shm.generation = config_.generation;
      shm.local = world_.layout.local_rank;
      shm.ranks = locals;
      shm.doorbell = loop->wake_fd();
      shm.arena = &Arena::Process();
      if (token_.has_value()) {
        shm.auth_key.assign(reinterpret_cast<const char*>(token_->bytes().data()), token_->bytes().size());
      }
      shm.deadline = deadline_;
      shm.on_change = on_change;
      shm.crash_signals = options_.crash_signals;
      window = transport::shm::CreateWindow(shm);
    }
    if (window) {
      world_.window = std::move(*window);
      for (int local = 0; local < static_cast<int>(locals.size()); ++local) {
        if (world_.window->PeerArena(local, 0) == nullptr) why = "a peer's memory cannot be mapped (ulimit -v?)";
      }
    } else {
      why = window.error().message;
    }
  }
  // One rank without shared memory means none for this host: all must take the same road.
  HVD_RETURN_IF_ERROR(meeting_->Put("shm", why.empty() ? "yes" : why));
  HVD_ASSIGN_OR_RETURN(const auto answers, meeting_->Gather("shm", locals));
  for (size_t i = 0; i < answers.size(); ++i) {
    if (answers[i] == "yes") continue;
    world_.window.reset();
    if (world_.layout.local_rank == 0) {
      log::Warning("ranks of host {} talk over TCP, because shared memory cannot be used: {}",
                   cards_[config_.rank].hostname, answers[i]);
    }
    return {};
  }
  return {};
}

Status Booter::MakeRings() {
  const int n = world_.layout.local_size;
  const int me = world_.layout.local_rank;
  size_t capacity = 64 << 10;
  while (capacity > (4 << 10) && capacity * static_cast<size_t>(n) > (512 << 10)) capacity /= 2;
  const size_t ring = (transport::shm::RingBytes(capacity) + 127) / 128 * 128;
  HVD_ASSIGN_OR_RETURN(std::byte * memory, world_.window->Carve(ring * n * n));
  transport::Window* window = world_.window.get();
  for (int peer = 0; peer < n; ++peer) {
    if (peer == me) continue;
    const Rank rank = world_.layout.local_ranks[peer];
    const auto at = [&](int from, int to) {
      return std::span(memory + ring * (static_cast<size_t>(from) * n + to), ring);
    };
    HVD_ASSIGN_OR_RETURN(world_.pairs[rank], transport::shm::CreateRingPair(
                                                 rank, at(me, peer), at(peer, me),
                                                 [window, peer] { window->Ring(peer); }, world_.loop.get()));
    world_.polled.push_back(world_.pairs[rank].get());
  }
  return {};
}

Result<net::Address> Booter::ListenAddress() const {
  std::string host = "127.0.0.1";
  if (!IsFolder(config_.rendezvous_addr) && !IsLocal(config_.rendezvous_addr) && !in_process()) {
    HVD_ASSIGN_OR_RETURN(const auto where, net::ParseHostPort(config_.rendezvous_addr));
    HVD_ASSIGN_OR_RETURN(const auto addresses, net::Resolve(where));
    // The address from which this host reaches the meeting place: a datagram socket tells, without a packet.
    const int fd = socket(addresses[0].family(), SOCK_DGRAM | SOCK_CLOEXEC, 0);
    sockaddr_storage local{};
    socklen_t length = sizeof local;
    const bool known = fd >= 0 && connect(fd, addresses[0].raw(), addresses[0].length()) == 0 &&
                       getsockname(fd, reinterpret_cast<sockaddr*>(&local), &length) == 0;
    if (fd >= 0) close(fd);
    if (!known) return Fail(Code::kInternal, "no route to {}", config_.rendezvous_addr);
    HVD_ASSIGN_OR_RETURN(const net::Address mine, net::Address::FromRaw(reinterpret_cast<sockaddr*>(&local), length));
    return mine.WithPort(0);
  }
  if (IsFolder(config_.rendezvous_addr) && world_.layout.cross_size > 1 && config_.hostname.empty()) {
    host = topology::Hostname();
  }
  HVD_ASSIGN_OR_RETURN(const auto addresses, net::Resolve({host, 0}));
  return addresses[0];
}

Status Booter::Connect() {
  std::vector<Rank> wanted;
  for (Rank rank = 0; rank < config_.size; ++rank) {
    if (rank != config_.rank && world_.pairs[rank] == nullptr) wanted.push_back(rank);
  }
  if (wanted.empty()) return {};
  HVD_ASSIGN_OR_RETURN(const net::Address where, ListenAddress());
  HVD_ASSIGN_OR_RETURN(auto listener, transport::tcp::Listener::Create(where));
  HVD_RETURN_IF_ERROR(meeting_->Put("tcp", listener.address().ToString()));
  HVD_ASSIGN_OR_RETURN(const auto texts, meeting_->Gather("tcp", wanted));
  transport::tcp::ConnectOptions options;
  options.rank = config_.rank;
  options.size = config_.size;
  options.addresses.resize(config_.size);
  for (size_t i = 0; i < wanted.size(); ++i) {
    HVD_ASSIGN_OR_RETURN(const auto host_port, net::ParseHostPort(texts[i]));
    HVD_ASSIGN_OR_RETURN(const auto resolved, net::Resolve(host_port));
    options.addresses[wanted[i]] = resolved[0];
  }
  options.token = token_.has_value() ? &*token_ : nullptr;
  options.generation = config_.generation;
  options.loop = world_.loop.get();
  options.listener = &listener;
  options.deadline = deadline_;
  options.socket.congestion = config_.tcp_congestion;
  options.encrypt = config_.encrypt;
  HVD_ASSIGN_OR_RETURN(auto pairs, transport::tcp::ConnectAll(options));
  for (Rank rank : wanted) world_.pairs[rank] = std::move(pairs[rank]);
  return {};
}

}  // namespace

Result<World> Boot(const BootOptions& options) { return Booter(options).Run(); }

}  // namespace hvd::engine
