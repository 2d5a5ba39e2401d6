// SPDX-License-Identifier: Apache-2.0
#include "hvd/launch/remote/agent.h"

#include <signal.h>
#include <sys/epoll.h>
#include <sys/prctl.h>
#include <unistd.h>

#include <algorithm>
#include <cstdio>

#include "hvd/launch/cli/exit_codes.h"
#include "hvd/launch/plan/command.h"
#include "hvd/launch/plan/remote_environment.h"
#include "hvd/launch/plan/this_machine.h"
#include "hvd/launch/remote/agent_options.h"
#include "hvd/launch/remote/channel.h"
#include "hvd/launch/remote/dial_driver.h"
#include "hvd/launch/remote/ssh.h"
#include "hvd/launch/report/report.h"
#include "hvd/launch/run/local_crew.h"
#include "hvd/launch/run/secret_folder.h"
#include "hvd/launch/run/signals.h"
#include "hvd/net/deadline.h"

namespace hvd::launch {
namespace {

// For horovodrun to take the last word.
constexpr Duration kLastWord = std::chrono::seconds(5);

class Agent {
 public:
  Agent(const std::string& self, const Environment& environment, const SecretFolder& folder, Inherited inherited,
        loop::Loop* loop)
      : self_(self), own_(environment), folder_(folder), inherited_(inherited), loop_(loop) {}
  ~Agent() {
    if (signals_) loop_->Unwatch(signals_.get());
  }

  int Run(const AgentOptions& options, Reached reached);

 private:
  // Serves one connection until it ends or the job does. False: it could not begin.
  bool Talk(const AgentOptions& options, Reached reached);
  // Ends what is left and returns the exit code.
  int End();
  void OnMessage(Message message);
  void OnStart(Message message);
  Status StartRanks(const Message& start, Plan plan);
  void OnSignals();
  void Refuse(int code, const std::string& why);
  void KillAll();
  void SweepUp();

  const std::string& self_;
  const Environment& own_;
  const SecretFolder& folder_;
  const Inherited inherited_;
  loop::Loop* const loop_;
  net::Fd signals_;
  std::optional<Warden> warden_;
  std::optional<LocalCrew> crew_;
  std::optional<Channel> channel_;
  Duration grace_{};
  bool finishing_ = false;  // all ranks of the job are over
  bool killing_ = false;
  bool alone_ = false;  // horovodrun is gone, or not to be served any more
  bool heard_ = false;  // horovodrun has said something
  std::string gone_;
  int code_ = 0;
};

int Agent::Run(const AgentOptions& options, Reached reached) {
  auto signals = OpenSignals();
  if (!signals || !loop_->Watch(signals->get(), EPOLLIN, [this](uint32_t) { OnSignals(); })) return kOwnFailure;
  signals_ = std::move(*signals);
  const Time deadline = net::DeadlineAfter(Seconds(options.timeout_s));
  while (true) {
    if (!Talk(options, std::move(reached))) return kOwnFailure;
    // horovodrun drops connections when strangers crowd at its door. Without a word from it nothing has begun here.
    if (!alone_ || heard_ || code_ != 0) break;
    auto again = DialDriver(options.addresses, *options.token, net::Left(deadline), Seconds(options.silence_s), true);
    if (!again) {
      (void)fprintf(stderr, "horovodrun agent: horovodrun ended the connection (%s) and was not reached again: %s\n",
                    gone_.c_str(), again.error().message.c_str());
      return kUnreachable;
    }
    reached = std::move(*again);
    alone_ = false;
  }
  return End();
}

bool Agent::Talk(const AgentOptions& options, Reached reached) {
  // No limit on horovodrun's silence, see dial_driver.h; what this side says once a second shows whether it is there.
  channel_.emplace(std::move(reached.stream), Duration::zero(), loop_,
                   Channel::Handlers{.on_message = [this](Message message) { OnMessage(std::move(message)); },
                                     .on_end =
                                         [this](const Error& error) {
                                           gone_ = error.message;
                                           alone_ = true;
                                         },
                                     .on_drained =
                                         [this] {
                                           if (crew_) crew_->PauseOutput(false);
                                         }});
  if (!channel_->Start()) return false;
  Message hello{.kind = Kind::kHello, .text = HVD_VERSION, .list = OwnNames(), .more = std::move(reached.addresses)};
  if (!options.host.empty()) hello.list = {options.host};
  channel_->Send(hello);
  while (!alone_ && !finishing_) loop_->RunOnce(Duration(-1));
  return true;
}

int Agent::End() {
  if (alone_) KillAll();
  SweepUp();
  if (alone_) {
    if (code_ == 0 && crew_) code_ = kHostLost;
    if (!gone_.empty() && code_ != 0) {
      (void)fprintf(stderr, "horovodrun agent: horovodrun is gone (%s): everything was ended\n", gone_.c_str());
    }
    return code_;
  }
  if (crew_) crew_->Drain();
  RemoveSecret(folder_.path());
  channel_->Send({.kind = Kind::kDone});
  // It closes the connection when it has read that.
  const Time limit = loop_->Now() + kLastWord;
  while (!alone_ && loop_->Now() < limit) loop_->RunOnce(limit - loop_->Now());
  return 0;
}

void Agent::OnMessage(Message message) {
  heard_ = true;
  switch (message.kind) {
    case Kind::kTurnedAway:
      (void)fprintf(stderr, "horovodrun agent: %s\n", message.text.c_str());
      code_ = kUsage;
      alone_ = true;
      break;
    case Kind::kStart:
      if (!crew_) OnStart(std::move(message));
      break;
    case Kind::kAsk:
      if (crew_) crew_->AskToEnd(message.rank, message.number);
      break;
    case Kind::kPass:
      if (crew_) crew_->PassOn(message.rank, message.number);
      break;
    case Kind::kKill:
      if (crew_) crew_->Kill(message.rank);
      break;
    case Kind::kFinish:
      finishing_ = true;
      killing_ |= message.number != 0;
      break;
    default:
      break;
  }
}

// The program that the plan names, or else what its first word means here.
Status FindProgram(const std::string& self, Plan* plan) {
  if (::access(plan->program.c_str(), X_OK) == 0) return {};
  HVD_ASSIGN_OR_RETURN(Command command, ResolveCommand(plan->arguments, self, plan->environment));
  plan->program = std::move(command.program);
  plan->arguments = std::move(command.arguments);
  return {};
}

void Agent::OnStart(Message message) {
  grace_ = Seconds(message.grace_s);
  Plan plan = std::move(message.plan);
  AddHostsOwn(own_, &plan.environment);
  if (::chdir(plan.folder.c_str()) != 0) {
    return Refuse(kUnfit, fmt::format("there is no folder {} there, from which horovodrun was started", plan.folder));
  }
  plan.environment.Set("PWD", plan.folder);
  if (auto found = FindProgram(self_, &plan); !found) {
    return Refuse(found.error().code == Code::kPermissionDenied ? kCannotRun : kNoCommand, found.error().message);
  }
  if (auto started = StartRanks(message, std::move(plan)); !started) Refuse(kUnfit, started.error().message);
}

Status Agent::StartRanks(const Message& start, Plan plan) {
  const std::string& job = start.place.job;
  HVD_ASSIGN_OR_RETURN(Warden warden, Warden::Start(job.substr(job.rfind('/') + 1), folder_.path(), channel_->fd()));
  warden_.emplace(std::move(warden));
  CrewEvents events;
  events.started = [this](int rank, int pid) { channel_->Send({.kind = Kind::kStarted, .rank = rank, .number = pid}); };
  events.output = [this](int rank, Stream stream, std::string_view bytes) {
    channel_->Send(
        {.kind = Kind::kOutput, .rank = rank, .number = stream == Stream::kOut ? 0 : 1, .text = std::string(bytes)});
    // Nothing is lost, and no more is held than this: ranks that print more than the network takes wait for it.
    if (channel_->unsent() >= Channel::kMuchUnsent) crew_->PauseOutput(true);
  };
  events.ended = [this](int rank, Ending ending) {
    channel_->Send({.kind = Kind::kEnded, .rank = rank, .ending = std::move(ending)});
  };
  events.unhandled = [this](int rank, int signal) {
    channel_->Send({.kind = Kind::kOutput,
                    .rank = rank,
                    .number = 1,
                    .text = fmt::format("horovodrun: {} was not passed on to this rank, because it would end a process "
                                        "that has no handler for it\n",
                                        SignalName(signal))});
  };
  crew_.emplace(inherited_, &*warden_, loop_, std::move(events));
  const RankPlace place{start.place.store, job, folder_.token_file()};
  return crew_->Start(plan, SlotsOf(plan, start.text), place);
}

void Agent::Refuse(int code, const std::string& why) {
  channel_->Send({.kind = Kind::kRefused, .number = code, .text = why});
  channel_->Flush(kLastWord);
}

void Agent::OnSignals() {
  for (const int signal : TakeSignals(signals_.get())) {
    if (signal == SIGCHLD || !IsEndingSignal(signal)) continue;
    // Whoever ends the agent ends this host's part of the job, and so the job.
    Refuse(kHostLost, fmt::format("its agent was ended by {}", SignalName(signal)));
    code_ = 128 + signal;
    alone_ = true;
  }
  if (crew_) crew_->Reap();
}

void Agent::KillAll() {
  killing_ = true;
  if (!crew_) return;
  crew_->KillAll();
  Time limit = loop_->Now() + LocalCrew::kAfterKill;
  while (!crew_->AllOver() && loop_->Now() < limit) {
    constexpr Duration kLookAgain = std::chrono::milliseconds(200);
    if (crew_->IsWaitingForCore()) limit = loop_->Now() + LocalCrew::kAfterKill;
    loop_->RunOnce(std::min(limit - loop_->Now(), kLookAgain));
  }
}

void Agent::SweepUp() {
  if (crew_) crew_->SweepUp(killing_, grace_, [this] { return killing_ || alone_; });
}

Result<AgentOptions> Prepare(const std::vector<std::string>& arguments, const Environment& environment) {
  HVD_ASSIGN_OR_RETURN(AgentOptions options, ParseAgentOptions(arguments, environment));
  if (!options.from_stdin) return options;
  (void)printf("%s%s\n", std::string(kAgentLine).c_str(), HVD_VERSION);
  (void)fflush(stdout);
  std::string told;
  char buffer[4096];
  constexpr size_t kMost = 64 << 10;
  while (told.size() < kMost && !told.ends_with("\n\n")) {
    const ssize_t count = ::read(0, buffer, sizeof buffer);
    if (count <= 0) break;
    told.append(buffer, static_cast<size_t>(count));
  }
  const Status taken = TakeTold(told, &options);
  net::SecureZero(told.data(), told.size());
  net::SecureZero(buffer, sizeof buffer);
  if (!taken) return Fail(taken.error());
  return options;
}

}  // namespace

int RunAgent(const std::string& self, const std::vector<std::string>& arguments, const Environment& environment) {
  const auto complain = [](const Error& error, int code) {
    (void)fprintf(stderr, "horovodrun: %s\n", error.message.c_str());
    return code;
  };
  // Nothing of this process, which holds the token, may end up in a core file or under another user's debugger.
  ::prctl(PR_SET_DUMPABLE, 0);
  auto options = Prepare(arguments, environment);
  if (!options) return complain(options.error(), kUsage);
  if (options->help) {
    (void)fputs(AgentHelpText().c_str(), stdout);
    (void)fflush(stdout);
    return 0;
  }
  Inherited inherited;
  inherited.files = RaiseFileLimit();
  inherited.mask = BlockSignals();
  auto reached =
      DialDriver(options->addresses, *options->token, Seconds(options->timeout_s), Seconds(options->silence_s));
  if (!reached) {
    if (options->from_stdin) {
      (void)printf("%s%s%s\n", std::string(kAgentLine).c_str(), std::string(kAgentFailed).c_str(),
                   reached.error().message.c_str());
      (void)fflush(stdout);
    }
    return complain(reached.error(), kUnreachable);
  }
  auto folder = SecretFolder::Create(environment);
  if (!folder) return complain(folder.error(), kOwnFailure);
  if (auto put = folder->Put(*options->token); !put) return complain(put.error(), kOwnFailure);
  auto loop = loop::CreateEpollLoop();
  if (!loop) return complain(loop.error(), kOwnFailure);
  ::prctl(PR_SET_CHILD_SUBREAPER, 1);
  Agent agent(self, environment, *folder, inherited, loop->get());
  return agent.Run(*options, std::move(*reached));
}

}  // namespace hvd::launch
