// SPDX-License-Identifier: Apache-2.0
#pragma once
// The other hosts of a job. Each has one agent (agent.h), started by ssh or by somebody else, that comes back to this
// process and proves to know the job's token; from then on all goes over that connection.
//
//   coming  -- hello -->  here  -- StartRanks -->  running  -- Finish, done -->  done
//   any of them  -- the connection ends, or is silent -->  lost
//
// Thread safety: none; on the job's loop.

#include <map>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "hvd/base/clock.h"
#include "hvd/base/result.h"
#include "hvd/launch/remote/channel.h"
#include "hvd/launch/remote/door.h"
#include "hvd/launch/remote/host_failure.h"
#include "hvd/launch/remote/ssh.h"
#include "hvd/launch/run/crew.h"
#include "hvd/net/strangers.h"
#include "hvd/net/tls.h"
#include "hvd/net/token.h"

namespace hvd::launch {

class RemoteHosts {
 public:
  struct Settings {
    std::vector<std::string> hosts;
    std::vector<net::Address> addresses;   // of this machine, to listen at
    std::optional<SshOptions> ssh;         // none: agents are started by somebody else
    std::string self;                      // path of this program
    std::vector<std::string> environment;  // of ssh
    const net::Token* token = nullptr;
    Duration start_timeout{};
    Duration silence{};
    bool talkative = false;
    std::function<void(const std::vector<std::string>& addresses)> on_open{};  // the door is open, there; may be empty
  };
  struct Events {
    CrewEvents crew;
    // Told once: no agent will come from there, or the ranks there cannot be started.
    std::function<void(const HostFailure&)> failed;
    // A host whose ranks run is gone.
    std::function<void(const std::string& host, const std::string& why)> lost;
    std::function<void(const std::string& line)> says;   // for the user, about how it goes
    std::function<void(const std::string& line)> warns;  // for the user, who did not ask
  };

  RemoteHosts(Settings settings, const Inherited& inherited, loop::Loop* loop);
  ~RemoteHosts();
  RemoteHosts(const RemoteHosts&) = delete;
  RemoteHosts& operator=(const RemoteHosts&) = delete;

  // Opens the door, so that addresses() are known.
  Status Open(Events events);
  const std::vector<std::string>& addresses() const { return door_->addresses(); }
  // Begins to wait for agents, and starts them if that is for us to do.
  Status Call();
  bool AllHere() const;
  // An address of this machine that every host reaches. Once all are here.
  Result<std::string> CommonAddress() const;
  // `plan` as it travels (remote_environment.h); `job` gets a suffix for each host.
  void StartRanks(const Plan& plan, const RankPlace& place, double grace_s);
  // The ranks of a host; nullptr if it is not one of these.
  Crew* CrewOf(const std::string& host);
  // Tells all to end what ranks left behind.
  void Finish(bool kill);
  // None is left that could still say "done".
  bool Finished() const;
  // A child of this process ended; false: it was none of ours.
  bool OnChild(int pid, int status);

 private:
  enum class State { kComing, kHere, kRunning, kDone, kLost };
  struct Host final : Crew {
    std::string name;
    std::set<std::string> addresses;  // of that name
    State state = State::kComing;
    std::unique_ptr<Ssh> ssh;
    bool greeted = false;  // its agent runs there, but is not here yet
    std::string failed;    // what the agent said about why it cannot come
    bool missing = false;  // there is no agent
    std::vector<std::string> reached;
    Channel* channel = nullptr;

    void AskToEnd(int rank, int signal) override { Say({.kind = Kind::kAsk, .rank = rank, .number = signal}); }
    void Kill(int rank) override { Say({.kind = Kind::kKill, .rank = rank}); }
    void PassOn(int rank, int signal) override { Say({.kind = Kind::kPass, .rank = rank, .number = signal}); }
    void Say(const Message& message) const {
      if (channel != nullptr && !channel->over()) channel->Send(message);
    }
  };
  // A connection; whose, is known once it has said hello.
  struct Guest {
    std::unique_ptr<Channel> channel;
    Host* host = nullptr;
    std::optional<loop::TimerId> limit;
  };

  Status StartSsh(Host& host);
  void OnAgentSays(Host& host, const std::string& words);
  void OnSshExit(Host& host, int status);
  void OnGuest(net::Fd fd);
  void OnMessage(uint64_t id, Message message);
  void OnHello(uint64_t id, const Message& hello);
  void OnWord(Host& host, Message message);
  void OnGuestEnd(uint64_t id, const Error& error);
  void Dismiss(uint64_t id);
  void DismissStrangers();
  Host* FindFor(const std::vector<std::string>& names);
  std::string Missing() const;
  std::string Progress(const Host& host) const;
  void SayWhoIsMissing(Duration next);
  void OnTimeout();
  // That an agent was turned away; the user may have started it. Strangers cannot make it say that for ever.
  void WarnOfRefusal(const std::string& why);
  void Fail(const HostFailure& failure);
  void ClearTimers();

  const Settings settings_;
  const Inherited& inherited_;
  loop::Loop* const loop_;
  Events events_;
  std::shared_ptr<net::TlsContext> tls_;
  std::unique_ptr<Door> door_;
  std::vector<std::unique_ptr<Host>> hosts_;
  std::map<uint64_t, Guest> guests_;
  net::Strangers strangers_;  // guests whose host is not known
  uint64_t last_id_ = 0;
  std::optional<loop::TimerId> timeout_, patience_;
  Time called_{};
  std::optional<Time> said_;  // when the user was last told who is here
  bool failed_ = false;
  int warnings_ = 0;
};

}  // namespace hvd::launch
