// SPDX-License-Identifier: Apache-2.0
#include "hvd/rendezvous/tcp/server.h"

#include <pthread.h>
#include <sys/epoll.h>

#include <array>
#include <chrono>
#include <system_error>

#include "hvd/base/log.h"
#include "hvd/base/signal_mask.h"
#include "hvd/net/crypto.h"
#include "hvd/net/deadline.h"
#include "hvd/net/socket.h"

namespace hvd::rendezvous::tcp {
namespace {

constexpr int kLoudComplaints = 3;
constexpr int kPortAttempts = 64;

tl::unexpected<Error> Busy(const Endpoint& endpoint) {
  return Fail(
      Code::kAlreadyExists,
      "the store's port is taken: {} is in use by another program or job; set HOROVOD_RENDEZVOUS_ADDR to a free port",
      endpoint.ToString());
}

// Unix sockets have no ports: one is drawn until its name is free.
Result<net::Fd> ListenOnAnyName(Endpoint& endpoint) {
  for (int attempt = 0; attempt < kPortAttempts; ++attempt) {
    std::array<uint8_t, 2> random;
    HVD_RETURN_IF_ERROR(net::RandomBytes(random));
    endpoint.where.port = static_cast<uint16_t>(20000 + (random[0] << 8 | random[1]) % 40000);
    HVD_ASSIGN_OR_RETURN(const net::Address name, LocalName(endpoint.where.port));
    auto listener = net::Listen(name);
    if (listener || listener.error().code != Code::kAlreadyExists) return listener;
  }
  return Busy(endpoint);
}

Result<net::Fd> ListenAt(Endpoint& endpoint) {
  if (endpoint.protection == Protection::kSameUser && endpoint.needs_port()) return ListenOnAnyName(endpoint);
  auto listener = net::Listen(endpoint.addresses.front());
  if (!listener) {
    if (listener.error().code == Code::kAlreadyExists) return Busy(endpoint);
    return listener;
  }
  if (endpoint.needs_port()) {
    HVD_ASSIGN_OR_RETURN(const net::Address chosen, net::LocalAddress(listener->get()));
    endpoint.where.port = chosen.port();
  }
  return listener;
}

}  // namespace

Result<std::unique_ptr<rendezvous::Server>> Server::Create(const Options& options) {
  HVD_ASSIGN_OR_RETURN(Endpoint endpoint, ResolveEndpoint(options));
  HVD_ASSIGN_OR_RETURN(std::shared_ptr<net::TlsContext> tls, MakeTls(options, net::TlsSide::kServer));
  HVD_ASSIGN_OR_RETURN(net::Fd listener, ListenAt(endpoint));
  HVD_ASSIGN_OR_RETURN(std::unique_ptr<loop::Loop> loop, loop::CreateEpollLoop());
  std::unique_ptr<Server> server(
      new Server(endpoint.ToString(), endpoint.protection, std::move(tls), std::move(listener), std::move(loop)));
  server->on_set_ = options.on_set;
  HVD_RETURN_IF_ERROR(server->Start());
  return std::unique_ptr<rendezvous::Server>(std::move(server));
}

Server::Server(std::string address, Protection protection, std::shared_ptr<net::TlsContext> tls, net::Fd listener,
               std::unique_ptr<loop::Loop> loop)
    : address_(std::move(address)),
      protection_(protection),
      tls_(std::move(tls)),
      listener_(std::move(listener)),
      loop_(std::move(loop)),
      state_([this](ClientId id, const Response& response) {
        const auto client = clients_.find(id);
        if (client == clients_.end()) return;
        client->second.connection->Respond(response);
        loop_->Defer([this, id] { Advance(id, 0); });
      }) {}

Status Server::Start() {
  HVD_RETURN_IF_ERROR(loop_->Watch(listener_.get(), EPOLLIN, [this](uint32_t) { OnListener(); }));
  try {
    const SignalsBlocked blocked;
    thread_ = std::thread([this] { Run(); });
  } catch (const std::system_error& error) {
    return Fail(Code::kResourceExhausted, "no thread for the store's server: {}", error.what());
  }
  pthread_setname_np(thread_.native_handle(), "hvd-store");
  return {};
}

Server::~Server() {
  stop_.store(true, std::memory_order_release);
  loop_->Wake();
  if (thread_.joinable()) thread_.join();
}

void Server::Run() {
  while (!stop_.load(std::memory_order_acquire)) {
    loop_->RunOnce(Duration(-1));
    if (!listener_ || !door_closed_.load(std::memory_order_acquire)) continue;
    loop_->Unwatch(listener_.get());
    listener_.Reset();
  }
}

void Server::CloseDoor() {
  door_closed_.store(true, std::memory_order_release);
  loop_->Wake();
}

Status Server::Drain(Duration timeout) {
  std::unique_lock lock(mutex_);
  const auto bounded = std::min<Duration>(timeout, std::chrono::hours(24));
  if (someone_left_.wait_for(lock, bounded, [&] { return here_ == 0; })) return {};
  return Fail(Code::kDeadlineExceeded, "{} clients have not left the store at {} after {:.3g} s", here_, address_,
              net::InSeconds(timeout));
}

std::string Server::LastRefusal() const {
  const std::lock_guard lock(mutex_);
  return last_refusal_;
}

void Server::OnListener() {
  // A few at a time: the handshakes of those already here come first.
  for (int i = 0; i < net::Strangers::kAcceptsPerTurn && listener_; ++i) {
    auto accepted = net::Accept(listener_.get());
    if (!accepted) return PauseAccepting(accepted.error());
    if (!*accepted) return;
    if (auto added = AddClient(std::move(**accepted)); !added) {
      log::Debug("the store refused a client: {}", added.error().message);
      const std::lock_guard lock(mutex_);
      last_refusal_ = added.error().message;
    }
  }
}

void Server::PauseAccepting(const Error& why) {
  {
    const std::lock_guard lock(mutex_);
    last_refusal_ = why.message;
  }
  // Out of descriptors: the listener stays readable, so watching it would burn a core.
  (void)loop_->Rearm(listener_.get(), 0);
  loop_->At(loop_->Now() + net::Strangers::kAcceptPause, [this] {
    if (listener_) (void)loop_->Rearm(listener_.get(), EPOLLIN);
  });
}

Status Server::AddClient(net::Fd fd) {
  if (protection_ == Protection::kSameUser) HVD_RETURN_IF_ERROR(net::CheckPeerIsSameUser(fd.get()));
  HVD_ASSIGN_OR_RETURN(const net::Address from, net::PeerAddress(fd.get()));
  HVD_ASSIGN_OR_RETURN(std::unique_ptr<net::Stream> stream, MakeStream(tls_, std::move(fd)));
  const ClientId id = ++last_id_;
  Client client;
  client.connection = std::make_unique<Connection>(std::move(stream), [this, id](Request request) {
    if (on_set_ && request.op == Op::kSet) on_set_(request.key, request.value);
    state_.Handle(id, std::move(request), loop_->Now());
    ArmDeadlineTimer();
  });
  HVD_RETURN_IF_ERROR(loop_->Watch(client.connection->fd(), client.connection->interest(),
                                   [this, id](uint32_t events) { Advance(id, events); }));
  Client& added = clients_.emplace(id, std::move(client)).first->second;
  SetTimer(id, added, net::Strangers::kProofTime, "it did not open the conversation in time");
  if (const auto displaced = unproven_.Add(id, from)) Remove(*displaced);
  return {};
}

void Server::Advance(ClientId id, uint32_t epoll_events) {
  const auto found = clients_.find(id);
  if (found == clients_.end() || found->second.doomed) return;
  Client& client = found->second;
  auto advanced = client.connection->Advance(epoll_events);
  if (!client.proven && client.connection->open()) {
    client.proven = true;
    unproven_.Remove(id);
    ClearTimer(client);
    const std::lock_guard lock(mutex_);
    ++here_;
  }
  if (!advanced) return Doom(id, advanced.error());
  if (client.proven && client.connection->has_output() && !client.timer_set) {
    SetTimer(id, client, kTakeAnswerTimeout, "it did not take its answer in time");
  }
  if (client.proven && !client.connection->has_output()) ClearTimer(client);
  (void)loop_->Rearm(client.connection->fd(), client.connection->interest());
}

void Server::Doom(ClientId id, const Error& why) {
  const auto found = clients_.find(id);
  if (found == clients_.end() || found->second.doomed) return;
  found->second.doomed = true;
  loop_->Unwatch(found->second.connection->fd());
  if (why.code != Code::kCancelled) {
    if (!found->second.proven) {
      const std::lock_guard lock(mutex_);
      last_refusal_ = why.message;
    }
    const auto level = complaints_++ < kLoudComplaints ? log::Level::kWarning : log::Level::kDebug;
    if (log::Enabled(level)) {
      log::Write(level, fmt::format("the store at {} dropped a client: {}", address_, why.message));
    }
  }
  loop_->Defer([this, id] { Remove(id); });
}

void Server::Remove(ClientId id) {
  const auto found = clients_.find(id);
  if (found == clients_.end()) return;
  ClearTimer(found->second);
  loop_->Unwatch(found->second.connection->fd());
  state_.Forget(id);
  const bool was_proven = found->second.proven;
  unproven_.Remove(id);
  clients_.erase(found);
  if (!was_proven) return;
  {
    const std::lock_guard lock(mutex_);
    --here_;
  }
  someone_left_.notify_all();
}

void Server::SetTimer(ClientId id, Client& client, Duration timeout, const char* why) {
  client.timer_set = true;
  client.timer = loop_->At(loop_->Now() + timeout, [this, id, why] {
    if (const auto found = clients_.find(id); found != clients_.end()) found->second.timer_set = false;
    Doom(id, {Code::kDeadlineExceeded, why});
  });
}

void Server::ClearTimer(Client& client) {
  if (client.timer_set) loop_->Cancel(client.timer);
  client.timer_set = false;
}

void Server::ArmDeadlineTimer() {
  const auto due = state_.NextDeadline();
  if (!due || (state_due_ && *state_due_ <= *due)) return;
  if (state_timer_) loop_->Cancel(*state_timer_);
  state_due_ = due;
  state_timer_ = loop_->At(*due, [this] {
    state_timer_.reset();
    state_due_.reset();
    state_.Expire(loop_->Now());
    ArmDeadlineTimer();
  });
}

}  // namespace hvd::rendezvous::tcp
