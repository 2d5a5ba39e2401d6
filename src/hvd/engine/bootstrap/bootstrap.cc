// SPDX-License-Identifier: Apache-2.0
#include "hvd/engine/bootstrap/bootstrap.h"

#include <fmt/ranges.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <optional>

#include "hvd/base/log.h"
#include "hvd/engine/bootstrap/launcher_exchange.h"
#include "hvd/engine/bootstrap/rank_descriptor.h"
#include "hvd/engine/bootstrap/rendezvous_point.h"
#include "hvd/engine/bootstrap/rendezvous_protocol.h"
#include "hvd/net/address.h"
#include "hvd/net/crypto.h"
#include "hvd/net/socket.h"
#include "hvd/net/token.h"
#include "hvd/topology/host.h"
#include "hvd/topology/process.h"
#include "hvd/transport/inproc/window.h"
#include "hvd/transport/shm/ring.h"
#include "hvd/transport/shm/ring_pair.h"
#include "hvd/transport/shm/window.h"
#include "hvd/transport/tcp/factory.h"

namespace hvd::engine::bootstrap {
namespace {

using transport::shm::Arena;

// For a rank that cannot start: how long it may take to tell the others.
constexpr Duration kLastWord = std::chrono::seconds(3);
// For clients of a store that is about to go.
constexpr Duration kLastAnswers = std::chrono::seconds(3);
// For ranks to say that they need a folder's keys no more.
constexpr Duration kTidyUp = std::chrono::seconds(2);

// One boot; its members are filled in as the steps go.
class Bootstrapper {
 public:
  explicit Bootstrapper(const BootstrapOptions& options) : options_(options), config_(options.config) {}
  Result<World> Run();

 private:
  // What this rank alone could not do need not wait for the others.
  Status Prepare();
  // Tells ranks that wait for this one why it does not come. An error that nobody hears is this rank's own all the
  // same.
  void Decline(const Error& error) const;
  Result<RendezvousPoint> OpenAnyPlace(Time deadline) const;
  Status OpenTuneLog();
  Status MeetAndConnect();
  Result<RankDescriptor> MakeCard() const;
  Status ChooseKey();
  Status ShareMemory();
  Status MakeRings();
  Status Connect();
  Result<net::Address> ListenAddress() const;
  Duration Left() const { return std::max(deadline_ - clock_.Now(), Duration(1)); }
  bool in_process() const { return IsInProcess(config_.rendezvous_addr); }

  const BootstrapOptions& options_;
  Config config_;  // with the address that was found
  SteadyClock clock_;
  Time begun_{};
  Time deadline_{};
  std::string host_id_;
  std::optional<net::Token> token_;  // the job's, or one for this generation that came through the store
  RendezvousPoint place_;
  std::optional<RendezvousProtocol> meeting_;
  std::vector<RankDescriptor> cards_;
  World world_;
};

Result<World> Bootstrapper::Run() {
  begun_ = clock_.Now();
  deadline_ = begun_ + Seconds(config_.start_timeout_s);
  world_.generation = config_.generation;
  world_.mpi = options_.method.mpi;
  world_.mpi_comm = options_.method.comm;
  if (Status ready = Prepare(); !ready) {
    if (config_.size > 1) Decline(ready.error());
    return Fail(std::move(ready).error());
  }
  if (config_.size == 1) {
    world_.layout = MakeLayout(0, {host_id_});
    Report(config_, &world_.layout);
    world_.ranks = {{host_id_, topology::Hostname(), static_cast<int>(getpid())}};
    HVD_RETURN_IF_ERROR(OpenTuneLog());
    return std::move(world_);
  }
  Status ready;
  do {
    meeting_.reset();
    place_ = {};
    HVD_ASSIGN_OR_RETURN(place_, OpenAnyPlace(deadline_));
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

Status Bootstrapper::Prepare() {
  world_.settings = SettingsOf(config_);
  if (auto table = TableOf(world_.settings); !table) return Fail(std::move(table).error());
  HVD_ASSIGN_OR_RETURN(host_id_, topology::HostIdentity(config_.hostname));
  HVD_ASSIGN_OR_RETURN(world_.loop, loop::CreateEpollLoop());
  return {};
}

void Bootstrapper::Decline(const Error& error) const {
  const Time soon = std::min(deadline_, clock_.Now() + kLastWord);
  auto place = OpenAnyPlace(soon);
  if (!place) return;
  Config config = config_;
  config.rendezvous_addr = place->address;
  RendezvousProtocol(config, place->store.get(), soon).GiveUp(error);
}

Result<RendezvousPoint> Bootstrapper::OpenAnyPlace(Time deadline) const {
  const bool introduced = options_.method.kind > RendezvousMethod::Kind::kAddress;
  return introduced ? ExchangeByLauncher(config_, options_.method, deadline) : OpenRendezvousPoint(config_, deadline);
}

Status Bootstrapper::OpenTuneLog() {
  if (!config_.autotune || config_.rank != 0) return {};
  HVD_ASSIGN_OR_RETURN(world_.tune_log, tune::CsvLog::Open(config_.autotune_log));
  return {};
}

Status Bootstrapper::MeetAndConnect() {
  HVD_ASSIGN_OR_RETURN(RankDescriptor card, MakeCard());
  HVD_ASSIGN_OR_RETURN(cards_, meeting_->Meet(std::move(card)));
  HVD_RETURN_IF_ERROR(OpenTuneLog());  // now, so that the others hear why there is no job
  HVD_RETURN_IF_ERROR(ChooseKey());
  if (token_.has_value()) {
    HVD_ASSIGN_OR_RETURN(world_.object_key,
                         net::DeriveKey(token_->bytes(), "objects", static_cast<uint64_t>(config_.generation)));
  }
  HVD_RETURN_IF_ERROR(ShareMemory());
  world_.pairs.resize(config_.size);
  if (world_.window != nullptr) HVD_RETURN_IF_ERROR(MakeRings());
  return Connect();
}

Result<RankDescriptor> Bootstrapper::MakeCard() const {
  RankDescriptor card;
  card.version = HVD_VERSION;
  card.size = config_.size;
  card.process = topology::ThisProcess();
  card.waited_ms = Milliseconds(clock_.Now() - begun_);
  card.host_id = host_id_;
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

Status Bootstrapper::ChooseKey() {
  std::vector<std::string> hosts;
  for (const RankDescriptor& card : cards_) {
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

Status Bootstrapper::ShareMemory() {
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
      inproc.group =
          transport::inproc::InprocRankGroup::Named(config_.rendezvous_addr + prefix, locals, config_.generation);
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
        HVD_ASSIGN_OR_RETURN(const net::Key key,
                             net::DeriveKey(token_->bytes(), "shm", static_cast<uint64_t>(config_.generation)));
        shm.auth_key.assign(reinterpret_cast<const char*>(key.bytes.data()), key.bytes.size());
      }
      shm.deadline = deadline_;
      shm.on_change = on_change;
      shm.crash_signals = options_.crash_signals;
      shm.handlers_are_fatal = options_.handlers_are_fatal;
      window = transport::shm::CreateWindow(shm);
    }
    if (window) {
      world_.window = std::move(*window);
      for (int local = 0; local < static_cast<int>(locals.size()); ++local) {
        if (world_.window->PeerArena(local, 0, 1) == nullptr) why = "a peer's memory cannot be mapped (ulimit -v?)";
      }
    } else {
      why = window.error().message;
    }
  }
  // One rank without shared memory means none for this host: all must use the same transport.
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

Status Bootstrapper::MakeRings() {
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

Result<net::Address> Bootstrapper::ListenAddress() const {
  std::string host = "127.0.0.1";
  if (!IsFolder(config_.rendezvous_addr) && !IsLocal(config_.rendezvous_addr) && !in_process()) {
    HVD_ASSIGN_OR_RETURN(const auto where, net::ParseHostPort(config_.rendezvous_addr));
    HVD_ASSIGN_OR_RETURN(const auto addresses, net::Resolve(where));
    // The address from which this host reaches the meeting place: a datagram socket tells, without a packet.
    const int fd = socket(addresses[0].family(), SOCK_DGRAM | SOCK_CLOEXEC, 0);
    if (fd < 0) return Fail(Code::kResourceExhausted, "no socket: {}", net::ErrnoText(errno));
    sockaddr_storage local{};
    socklen_t length = sizeof local;
    const bool known = connect(fd, addresses[0].raw(), addresses[0].length()) == 0 &&
                       getsockname(fd, reinterpret_cast<sockaddr*>(&local), &length) == 0;
    const int error = errno;
    close(fd);
    if (!known) return Fail(Code::kInternal, "no route to {}: {}", config_.rendezvous_addr, net::ErrnoText(error));
    HVD_ASSIGN_OR_RETURN(const net::Address mine, net::Address::FromRaw(reinterpret_cast<sockaddr*>(&local), length));
    return mine.WithPort(0);
  }
  if (IsFolder(config_.rendezvous_addr) && world_.layout.cross_size > 1 && config_.hostname.empty()) {
    host = topology::Hostname();
  }
  HVD_ASSIGN_OR_RETURN(const auto addresses, net::Resolve({host, 0}));
  return addresses[0];
}

Status Bootstrapper::Connect() {
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

Result<World> Bootstrap(const BootstrapOptions& options) { return Bootstrapper(options).Run(); }

}  // namespace hvd::engine::bootstrap
