// SPDX-License-Identifier: Apache-2.0
#pragma once
// Engines of several ranks in one thread, connected by streams in memory. Nothing moves but by Step: it delivers some
// bytes of one connection or turns one engine, as a seeded generator says. So one seed is one order of events, and many
// seeds are many. Time stands still but for AdvanceClock and for an engine that waits for its end.

#include <functional>
#include <map>
#include <memory>
#include <random>
#include <string>
#include <vector>

#include "hvd/engine/engine.h"
#include "hvd/loop/timer_queue.h"

namespace hvd::engine {

// The bytes of one direction of a connection.
struct Wire {
  std::string flying;
  std::string arrived;
  bool ended = false;  // nothing more will be written
  int marks = 0;       // messages that were mark messages
  int messages = 0;    // writes, of any kind
};

class SimulatedLoop final : public loop::Loop {
 public:
  // `ready(fd, events)`: whether a descriptor has anything of that kind.
  SimulatedLoop(Time* now, std::function<bool(int, uint32_t)> ready) : now_(now), ready_(std::move(ready)) {}

  Time Now() const override { return *now_; }
  Status Watch(int fd, uint32_t events, loop::FdHandler handler) override;
  Status Rearm(int fd, uint32_t events) override;
  void Unwatch(int fd) override { watches_.erase(fd); }
  loop::TimerId At(Time when, std::function<void()> call) override { return timers_.Add(when, std::move(call)); }
  void Cancel(loop::TimerId id) override { timers_.Cancel(id); }
  void Defer(std::function<void()> call) override { deferred_.push_back(std::move(call)); }
  bool RunOnce(Duration max_wait) override;
  void Wake() override {}
  void WakeIn(Duration /*delay*/) override {}
  int wake_fd() const override { return -1; }
  int poll_fd() const override { return -1; }
  int watched() const override { return static_cast<int>(watches_.size()); }

 private:
  struct Watched {
    uint32_t events;
    std::shared_ptr<loop::FdHandler> handler;
  };
  Time* const now_;
  const std::function<bool(int, uint32_t)> ready_;
  std::map<int, Watched> watches_;
  loop::TimerQueue timers_;
  std::vector<std::function<void()>> deferred_;
};

class SimulatedJob {
 public:
  struct Options {
    std::vector<std::string> hosts;  // by rank; no two ranks share memory
    unsigned seed = 1;
    std::vector<std::vector<Rank>> sets{};
    std::string algorithms{};
    ResumePolicy resume_policy{};
  };
  explicit SimulatedJob(const Options& options);
  ~SimulatedJob();

  int size() const { return static_cast<int>(engines_.size()); }
  Engine& engine(Rank rank) { return *engines_[rank]; }
  transport::Pair& pair(Rank from, Rank to) { return *pairs_[from][to]; }
  Wire& wire(Rank from, Rank to) { return wires_[from * size() + to]; }
  std::mt19937& random() { return random_; }
  // How many marks any rank has sent in messages.
  int marks() const;
  int messages() const;

  void Step();
  // Until it is so; false: it is not, after more steps than anything takes.
  bool StepUntil(const std::function<bool()>& done);
  // While held, nothing of this connection arrives.
  void Hold(Rank from, Rank to, bool held) { held_[{from, to}] = held; }
  // The rank is gone without a word.
  void Kill(Rank rank);
  void AdvanceClock(Duration by) { now_ += by; }

  // Starts an operation; the caller gives it back by Release.
  Operation* Submit(Rank rank, Submission submission);
  // An allreduce in place.
  Operation* Sum(Rank rank, const std::string& name, std::vector<float>* data, int set = 0, double timeout_s = 0);

 private:
  bool Ready(int fd, uint32_t events);

  std::mt19937 random_;
  Time now_{std::chrono::seconds(1)};
  std::vector<Wire> wires_;  // from * size + to, which is also the descriptor of what `to` reads
  std::map<std::pair<Rank, Rank>, bool> held_;
  std::vector<std::vector<transport::Pair*>> pairs_;
  std::vector<bool> dead_;
  std::vector<std::unique_ptr<Engine>> engines_;
};

}  // namespace hvd::engine
