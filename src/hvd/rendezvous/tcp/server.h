// SPDX-License-Identifier: Apache-2.0
#pragma once
// Serves a store to any number of clients from one thread with a loop of its own. Waits are parked, not waited for; a
// client that has not proven itself is a stranger, with the rules of net/strangers.h.
//
// Thread safety: as rendezvous::Server.

#include <atomic>
#include <condition_variable>
#include <functional>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <thread>
#include <unordered_map>

#include "hvd/base/result.h"
#include "hvd/loop/loop.h"
#include "hvd/net/fd.h"
#include "hvd/net/strangers.h"
#include "hvd/net/tls.h"
#include "hvd/rendezvous/factory.h"
#include "hvd/rendezvous/server.h"
#include "hvd/rendezvous/tcp/connection.h"
#include "hvd/rendezvous/tcp/endpoint.h"
#include "hvd/rendezvous/tcp/store_state.h"

namespace hvd::rendezvous::tcp {

inline constexpr Duration kTakeAnswerTimeout = std::chrono::seconds(60);

class Server final : public rendezvous::Server {
 public:
  static Result<std::unique_ptr<rendezvous::Server>> Create(const Options& options);
  ~Server() override;

  std::string address() const override { return address_; }
  void CloseDoor() override;
  Status Drain(Duration timeout) override;
  std::string LastRefusal() const override;

 private:
  struct Client {
    std::unique_ptr<Connection> connection;
    loop::TimerId timer = 0;  // of opening, or of taking an answer
    bool timer_set = false;
    bool proven = false;
    bool doomed = false;
  };

  Server(std::string address, Protection protection, std::shared_ptr<net::TlsContext> tls, net::Fd listener,
         std::unique_ptr<loop::Loop> loop);
  Status Start();
  void Run();

  void OnListener();
  void PauseAccepting(const Error& why);
  Status AddClient(net::Fd fd);
  void Advance(ClientId id, uint32_t epoll_events);
  // Later, because the caller may be in the middle of this client's or the state's work.
  void Doom(ClientId id, const Error& why);
  void Remove(ClientId id);
  void SetTimer(ClientId id, Client& client, Duration timeout, const char* why);
  void ClearTimer(Client& client);
  void ArmDeadlineTimer();

  const std::string address_;
  const Protection protection_;
  const std::shared_ptr<net::TlsContext> tls_;
  net::Fd listener_;  // the thread's; none once the door is closed
  std::atomic<bool> door_closed_{false};
  const std::unique_ptr<loop::Loop> loop_;
  std::function<void(const std::string&, const std::string&)> on_set_;  // set before the thread starts

  // On the loop.
  StoreState state_;
  ClientId last_id_ = 0;
  std::unordered_map<ClientId, Client> clients_;
  net::Strangers unproven_;
  std::optional<loop::TimerId> state_timer_;
  std::optional<Time> state_due_;
  int complaints_ = 0;

  std::atomic<bool> stop_{false};
  mutable std::mutex mutex_;
  std::condition_variable someone_left_;
  // Under mutex_.
  int here_ = 0;  // proven clients
  std::string last_refusal_;
  std::thread thread_;
};

}  // namespace hvd::rendezvous::tcp
