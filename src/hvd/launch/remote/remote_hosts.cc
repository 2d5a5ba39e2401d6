// SPDX-License-Identifier: Apache-2.0
#include "hvd/launch/remote/remote_hosts.h"

#include <sys/wait.h>

#include <algorithm>

#include "hvd/base/log.h"
#include "hvd/launch/cli/exit_codes.h"
#include "hvd/net/deadline.h"
#include "hvd/net/socket.h"

namespace hvd::launch {
namespace {

// How much earlier than this process an agent stops trying.
constexpr Duration kHeadStart = std::chrono::seconds(1);
constexpr Duration kBetweenLines = std::chrono::seconds(1);
// When something blocks for so long, the user is told what.
constexpr Duration kPatience = std::chrono::seconds(3);

std::string Joined(const std::vector<std::string>& words) { return fmt::format("{}", fmt::join(words, ", ")); }

std::string HowItEnded(int status) {
  if (WIFSIGNALED(status)) return fmt::format("was ended by signal {}", WTERMSIG(status));
  return fmt::format("ended with exit code {}", WEXITSTATUS(status));
}

}  // namespace

RemoteHosts::RemoteHosts(Settings settings, const Inherited& inherited, loop::Loop* loop)
    : settings_(std::move(settings)), inherited_(inherited), loop_(loop) {}

RemoteHosts::~RemoteHosts() { ClearTimers(); }

Status RemoteHosts::Open(Events events) {
  events_ = std::move(events);
  for (const std::string& name : settings_.hosts) {
    auto host = std::make_unique<Host>();
    host->name = name;
    if (const auto addresses = net::Resolve({name, 0})) {
      for (const net::Address& address : *addresses) host->addresses.insert(address.host());
    }
    hosts_.push_back(std::move(host));
  }
  HVD_ASSIGN_OR_RETURN(tls_, net::TlsContext::Create(net::TlsSide::kServer, *settings_.token, kAgentRole, 0));
  HVD_ASSIGN_OR_RETURN(door_, Door::Open(settings_.addresses, loop_, [this](net::Fd fd) { OnGuest(std::move(fd)); }));
  if (settings_.on_open) settings_.on_open(addresses());
  return {};
}

Status RemoteHosts::Call() {
  called_ = loop_->Now();
  timeout_ = loop_->At(called_ + settings_.start_timeout, [this] {
    timeout_.reset();
    OnTimeout();
  });
  if (settings_.talkative) {
    patience_ = loop_->At(called_ + kPatience, [this] { SayWhoIsMissing(kPatience); });
  }
  for (const auto& host : hosts_) {
    if (settings_.ssh) HVD_RETURN_IF_ERROR(StartSsh(*host));
  }
  return {};
}

void RemoteHosts::ClearTimers() {
  if (timeout_) loop_->Cancel(*timeout_);
  if (patience_) loop_->Cancel(*patience_);
  timeout_.reset();
  patience_.reset();
  for (auto& [id, guest] : guests_) {
    if (guest.limit) loop_->Cancel(*guest.limit);
    guest.limit.reset();
  }
}

Status RemoteHosts::StartSsh(Host& host) {
  Ssh::Events events;
  events.agent_says = [this, &host](const std::string& words) { OnAgentSays(host, words); };
  events.complains = [this, &host](const std::string& line) {
    if (settings_.talkative) events_.says(fmt::format("{}: {}", host.name, line));
  };
  HVD_ASSIGN_OR_RETURN(host.ssh,
                       Ssh::Start(SshArguments(*settings_.ssh, host.name, settings_.self), settings_.ssh->program,
                                  settings_.environment, inherited_, loop_, std::move(events)));
  return {};
}

void RemoteHosts::OnAgentSays(Host& host, const std::string& words) {
  if (words == kAgentMissing) {
    host.missing = true;
  } else if (words.starts_with(kAgentFailed)) {
    host.failed = words.substr(kAgentFailed.size());
  } else if (words != HVD_VERSION) {
    Fail({host.name, kUnfit, fmt::format("it has horovodrun {}, this is {}", words, HVD_VERSION),
          "install the same version on all hosts"});
  } else {
    // The agent gives up first: it knows better why.
    const Duration left = called_ + settings_.start_timeout - loop_->Now();
    std::string told =
        fmt::format("token {}\nhost {}\ntimeout {}\nsilence {}\n", net::ToHex(settings_.token->bytes()), host.name,
                    net::InSeconds(std::max(left - kHeadStart, left / 2)), net::InSeconds(settings_.silence));
    for (const std::string& address : addresses()) told += fmt::format("address {}\n", address);
    told += "\n";
    host.greeted = true;
    // An error shows as the end of ssh.
    (void)host.ssh->Tell(told);
    net::SecureZero(told.data(), told.size());
  }
}

bool RemoteHosts::OnChild(int pid, int status) {
  for (const auto& host : hosts_) {
    if (!host->ssh || host->ssh->pid() != pid) continue;
    host->ssh->OnExit();
    OnSshExit(*host, status);
    return true;
  }
  return false;
}

void RemoteHosts::OnSshExit(Host& host, int status) {
  // The agent needs ssh only to come.
  if (host.state != State::kComing) return;
  if (!host.failed.empty()) {
    return Fail({host.name, kUnreachable, fmt::format("its agent cannot reach this machine: {}", host.failed),
                 "see whether a firewall between the hosts is in the way; --network-interfaces or --driver-address "
                 "name the address to use"});
  }
  if (host.missing) {
    return Fail({host.name, kUnfit, fmt::format("there is no {} and no horovodrun in PATH there", settings_.self),
                 "install this package there, at the same path or so that ssh finds it in PATH"});
  }
  const auto lines = host.ssh->tail().Last(3);
  const std::string words = lines.empty() ? "it said nothing" : fmt::format("{}", fmt::join(lines, " / "));
  if (host.greeted) {
    return Fail({host.name, kUnreachable, fmt::format("its agent {}: {}", HowItEnded(status), words),
                 "see what that host has to say: its log, or dmesg"});
  }
  Fail({host.name, kUnreachable, fmt::format("ssh {}: {}", HowItEnded(status), words), SshAdvice(words, host.name)});
}

void RemoteHosts::OnGuest(net::Fd fd) {
  const auto from = net::PeerAddress(fd.get());
  if (!from) return;  // gone already
  auto stream = net::TlsStream::Create(tls_, std::move(fd));
  if (!stream) return;
  const uint64_t id = ++last_id_;
  if (const auto displaced = strangers_.Add(id, *from)) {
    const auto guest = guests_.find(*displaced);
    if (guest->second.limit) loop_->Cancel(*guest->second.limit);
    guests_.erase(guest);
  }
  Guest& guest = guests_[id];
  guest.channel = std::make_unique<Channel>(
      std::move(*stream), settings_.silence, loop_,
      Channel::Handlers{.on_message = [this, id](Message message) { OnMessage(id, std::move(message)); },
                        .on_end = [this, id](const Error& error) { OnGuestEnd(id, error); }});
  guest.limit = loop_->At(loop_->Now() + net::Strangers::kProofTime, [this, id] {
    guests_[id].limit.reset();
    Dismiss(id);
  });
  if (!guest.channel->Start()) Dismiss(id);
}

void RemoteHosts::OnMessage(uint64_t id, Message message) {
  Guest& guest = guests_.at(id);
  if (guest.host != nullptr) {
    OnWord(*guest.host, std::move(message));
  } else if (message.kind == Kind::kHello) {
    OnHello(id, message);
  } else {
    Dismiss(id);
  }
}

RemoteHosts::Host* RemoteHosts::FindFor(const std::vector<std::string>& names) {
  for (const std::string& name : names) {
    const auto named = std::ranges::find_if(hosts_, [&](const auto& host) { return host->name == name; });
    if (named != hosts_.end()) return named->get();
  }
  for (const std::string& name : names) {
    const auto at = std::ranges::find_if(hosts_, [&](const auto& host) { return host->addresses.contains(name); });
    if (at != hosts_.end()) return at->get();
  }
  return nullptr;
}

void RemoteHosts::OnHello(uint64_t id, const Message& hello) {
  Guest& guest = guests_.at(id);
  Host* host = FindFor(hello.list);
  const auto turn_away = [&](const std::string& why) {
    guest.channel->Send({.kind = Kind::kTurnedAway, .text = why});
    // It closes when it has read that; the time limit sees to the rest.
  };
  if (host == nullptr) {
    const std::string why = fmt::format(
        "no host of this job is called {}; agents are expected of {}: say which one this is "
        "with --host NAME",
        Joined(hello.list), Missing());
    WarnOfRefusal(why);
    return turn_away(why);
  }
  if (hello.text != HVD_VERSION) {
    const std::string why = fmt::format("it has horovodrun {}, this is {}", hello.text, HVD_VERSION);
    turn_away(why);
    return Fail({host->name, kUnfit, why, "install the same version on all hosts"});
  }
  if (host->state != State::kComing) {
    const std::string why = fmt::format("host {} has an agent already", host->name);
    WarnOfRefusal(why);
    return turn_away(why);
  }
  if (guest.limit) loop_->Cancel(*guest.limit);
  guest.limit.reset();
  guest.host = host;
  strangers_.Remove(id);
  host->channel = guest.channel.get();
  host->reached = hello.more;
  host->state = State::kHere;
  const auto here = std::ranges::count_if(hosts_, [](const auto& one) { return one->state == State::kHere; });
  // Of many hosts not every one needs a line.
  if (AllHere() || !said_ || loop_->Now() - *said_ > kBetweenLines) {
    said_ = loop_->Now();
    events_.says(fmt::format("agents {}/{}: {} is here", here, hosts_.size(), host->name));
  }
  if (!AllHere()) return;
  if (timeout_) loop_->Cancel(*timeout_);
  if (patience_) loop_->Cancel(*patience_);
  timeout_.reset();
  patience_.reset();
  // Nobody else is expected: a closed port cannot be attacked.
  loop_->Defer([this] { DismissStrangers(); });
}

void RemoteHosts::DismissStrangers() {
  door_->Close();
  std::erase_if(guests_, [&](auto& one) {
    if (one.second.host != nullptr) return false;
    if (one.second.limit) loop_->Cancel(*one.second.limit);
    strangers_.Remove(one.first);
    return true;
  });
}

void RemoteHosts::OnWord(Host& host, Message message) {
  switch (message.kind) {
    case Kind::kStarted:
      return events_.crew.started(message.rank, message.number);
    case Kind::kOutput:
      return events_.crew.output(message.rank, message.number == 0 ? Stream::kOut : Stream::kErr, message.text);
    case Kind::kEnded:
      return events_.crew.ended(message.rank, std::move(message.ending));
    case Kind::kDone:
      host.state = State::kDone;
      host.channel->Close();
      return;
    case Kind::kRefused:
      if (message.number == kHostLost) {
        host.state = State::kLost;
        host.channel->Close();
        return events_.lost(host.name, message.text);
      }
      return Fail({host.name, message.number, message.text, "see whether that host has the same files as this one"});
    default:
      log::Debug("the agent of {} sent a message of kind {}", host.name, static_cast<int>(message.kind));
  }
}

void RemoteHosts::OnGuestEnd(uint64_t id, const Error& error) {
  const auto guest = guests_.find(id);
  if (guest == guests_.end()) return;
  Host* host = guest->second.host;
  if (host != nullptr) host->channel = nullptr;
  Dismiss(id);
  if (host == nullptr) {
    log::Debug("a connection for agents was dropped: {}", error.message);
    if (error.code == Code::kPermissionDenied) WarnOfRefusal(error.message);
    return;
  }
  if (host->state == State::kDone || host->state == State::kLost) return;
  const bool silent = error.code == Code::kDeadlineExceeded;
  const std::string why =
      silent ? error.message : "the connection to its agent ended: the agent was killed, or the host went down";
  const bool running = host->state == State::kRunning;
  host->state = State::kLost;
  if (running) return events_.lost(host->name, why);
  Fail({host->name, kHostLost, why, "see whether that machine is up, and what killed the agent there (dmesg)"});
}

void RemoteHosts::Dismiss(uint64_t id) {
  // Later: the channel may be the one that is calling.
  const auto guest = guests_.find(id);
  if (guest == guests_.end()) return;
  if (guest->second.limit) loop_->Cancel(*guest->second.limit);
  guest->second.limit.reset();
  loop_->Defer([this, id] {
    strangers_.Remove(id);
    guests_.erase(id);
  });
}

bool RemoteHosts::AllHere() const {
  return std::ranges::all_of(hosts_, [](const auto& host) { return host->state == State::kHere; });
}

Result<std::string> RemoteHosts::CommonAddress() const {
  for (const std::string& address : addresses()) {
    const bool common = std::ranges::all_of(
        hosts_, [&](const auto& host) { return std::ranges::find(host->reached, address) != host->reached.end(); });
    if (common) return address;
  }
  std::string text;
  for (const auto& host : hosts_) text += fmt::format("; {} by {}", host->name, Joined(host->reached));
  return hvd::Fail(Code::kNotFound, "the hosts reach this machine by different addresses and no one of them all{}",
                   text);
}

void RemoteHosts::StartRanks(const Plan& plan, const RankPlace& place, double grace_s) {
  for (size_t i = 0; i < hosts_.size(); ++i) {
    hosts_[i]->state = State::kRunning;
    Message start{.kind = Kind::kStart, .text = hosts_[i]->name, .plan = plan, .place = place, .grace_s = grace_s};
    // One machine may be several hosts (namespaces), which must be told apart when one of them cleans up.
    start.place.job += fmt::format(".{}", i + 1);
    hosts_[i]->Say(start);
  }
}

Crew* RemoteHosts::CrewOf(const std::string& name) {
  const auto found = std::ranges::find_if(hosts_, [&](const auto& host) { return host->name == name; });
  return found == hosts_.end() ? nullptr : found->get();
}

void RemoteHosts::Finish(bool kill) {
  for (const auto& host : hosts_) host->Say({.kind = Kind::kFinish, .number = kill ? 1 : 0});
}

bool RemoteHosts::Finished() const {
  return std::ranges::all_of(hosts_,
                             [](const auto& host) { return host->channel == nullptr || host->channel->over(); });
}

std::string RemoteHosts::Missing() const {
  std::vector<std::string> names;
  for (const auto& host : hosts_) {
    if (host->state == State::kComing) names.push_back(host->name);
  }
  return Joined(names);
}

std::string RemoteHosts::Progress(const Host& host) const {
  if (host.greeted) return fmt::format("its agent runs and tries to reach this machine at {}", Joined(addresses()));
  if (host.ssh) return "ssh has not got through to it yet";
  return fmt::format("no agent has come from there to {}", Joined(addresses()));
}

void RemoteHosts::SayWhoIsMissing(Duration next) {
  for (const auto& host : hosts_) {
    if (host->state == State::kComing) {
      events_.says(fmt::format("still waiting for {}: {}; {:.0f} s are left", host->name, Progress(*host),
                               net::InSeconds(called_ + settings_.start_timeout - loop_->Now())));
    }
  }
  next *= 2;
  patience_ = loop_->At(loop_->Now() + next, [this, next] { SayWhoIsMissing(next); });
}

void RemoteHosts::OnTimeout() {
  std::string what;
  for (const auto& host : hosts_) {
    if (host->state != State::kComing) continue;
    what += fmt::format("{}{}: {}", what.empty() ? "" : "; ", host->name, Progress(*host));
  }
  Fail({Missing(), kTooLate, fmt::format("not there after {:.3g} s: {}", net::InSeconds(settings_.start_timeout), what),
        "give slow hosts more time with --start-timeout SECONDS, or leave them out"});
}

void RemoteHosts::WarnOfRefusal(const std::string& why) {
  constexpr int kMostWarnings = 3;
  if (++warnings_ <= kMostWarnings) events_.warns(fmt::format("turned an agent away: {}", why));
}

void RemoteHosts::Fail(const HostFailure& failure) {
  if (std::exchange(failed_, true)) return;
  events_.failed(failure);
}

}  // namespace hvd::launch
