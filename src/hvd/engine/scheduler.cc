// SPDX-License-Identifier: Apache-2.0
#include "hvd/engine/scheduler.h"

#include <poll.h>
#include <pthread.h>
#include <sched.h>
#include <unistd.h>

#include <algorithm>

#include "hvd/base/log.h"
#include "hvd/base/signal_mask.h"
#include "hvd/engine/relax.h"
#include "hvd/topology/cores.h"

namespace hvd::engine {
namespace {

// Spinning costs nobody anything while there is a core per rank; with fewer, a spinning rank holds up the one it waits
// for.
constexpr int kSpinsAlone = 20000;
constexpr int kSpinsCrowded = 4;

// While a caller waits for one operation it steps that operation's set every time and everything else now and then.
constexpr int kLookAround = 32;
// A caller whose operation is over polls this often without progress before it leaves the next ones to the engine's
// thread, and this often at all.
constexpr int kLastLooks = 48;
constexpr int kMostLastLooks = 1024;
// With more ranks than cores, the core is given away this many times before the rank sleeps: the peer that it waits for
// may be waiting for this very core.
constexpr int kMostYields = 200;
// The engine's thread sleeps sooner: nobody waits for it in person.
constexpr int kThreadYields = 6;

// Between two looks at what nothing announces. Data that flows does so only when it is looked at, so the pause is a
// part of the time for which nothing was over.
constexpr Duration kShortestPause = std::chrono::microseconds(10);
constexpr Duration kLongestPause = std::chrono::milliseconds(1);
constexpr int kPauses = 64;

// Bindings interrupt one wait now and then to look at signals; between two slices the program still waits.
constexpr Duration kBetweenSlices = std::chrono::milliseconds(50);

// Cores that the ranks of this host may use together: each may be bound to some of them.
int UsableCores(const World& world) {
  std::vector<int> pids;
  for (const Rank rank : world.layout.local_ranks) pids.push_back(world.ranks[rank].pid);
  return topology::UsableCores(pids);
}

}  // namespace

Scheduler::Scheduler(const EngineContext& context, ProgressToken* token, Completer* completer, EngineWork* work)
    : context_(context),
      loop_(context.world->loop.get()),
      window_(context.world->window.get()),
      token_(token),
      completer_(completer),
      work_(work),
      crowded_(context.world->layout.local_size > UsableCores(*context.world)),
      spin_limit_(crowded_ ? kSpinsCrowded : kSpinsAlone) {
  if (const int64_t spin_us = context_.config->spin_us; spin_us >= 0) {
    spin_limit_ = static_cast<int>(std::min<int64_t>(spin_us * kSpinsPerMicrosecond, 1 << 30));
  }
  first_spin_limit_ = spin_limit_;
  if (window_ != nullptr && !crowded_ && spin_limit_ >= kSpinsAlone) window_->UseAsymmetricFences();
}

void Scheduler::StartThread(int core) {
  const SignalsBlocked blocked;
  thread_ = std::thread([this, core] {
    if (core >= 0) {
      if (auto bound = topology::BindToCore(core); !bound) {
        log::Warning("HOROVOD_THREAD_AFFINITY={}: {}; the engine's thread is not bound.",
                     context_.config->thread_affinity, bound.error().message);
      }
    }
    Main();
  });
  pthread_setname_np(thread_.native_handle(), "hvd-engine");
}

void Scheduler::Stop() {
  loop_->Wake();
  token_->Stop();
  loop_->Wake();
  while (thread_.joinable() && !thread_done_.load(std::memory_order_acquire)) {
    loop_->Wake();  // again and again: another thread may have taken the last one
    usleep(200);
  }
  if (thread_.joinable()) thread_.join();
}

bool Scheduler::Wait(Operation* op, Time until) {
  while (!op->over.load(std::memory_order_acquire)) {
    // On the completion thread: nobody else can, while this job waits.
    if (completer_->OnThisThread()) completer_->RunAllocs();
    if (token_->Take(op, until)) {
      const bool waits = !op->over.load(std::memory_order_acquire);  // else its set may be gone
      DriveUntilOver(op, until);
      if (waits && op->over.load(std::memory_order_acquire) && op->set->by_memory()) FinishAnnounced(op->set);
      token_->Return();
    }
    if (op->over.load(std::memory_order_acquire) || loop_->Now() >= until) break;
  }
  if (work_->unfinished()) loop_->Wake();
  return op->over.load(std::memory_order_acquire);
}

// A caller that submitted many operations and waits for one of them waits for the next one soon. Waking the engine's
// thread for those between, and taking the token back from it, takes longer than they do.
void Scheduler::FinishAnnounced(ProcessSet* set) {
  const int patience = crowded_ ? 1 : kLastLooks;
  bool left = true;
  for (int looks = 0, idle = 0; looks < kMostLastLooks && idle < patience && left; ++looks) {
    if (token_->callers_wait() || token_->stopping()) return;
    if (!context_.membership->working() || window_->revoked()) return;
    idle = set->StepMarks(&left) ? 0 : idle + 1;
  }
}

void Scheduler::DriveUntilOver(Operation* op, Time until) {
  int turns = 0;  // also those that moved something: a large operation moves for seconds
  int spins = 0;
  int yields = 0;
  Time yielding_since{};
  ProcessSet* set = op->set;
  // Messages arrive only where the loop runs, which takes about as long as so many looks at memory.
  const int look_around = set->by_memory() ? kLookAround : 1;
  const int spins_per_look = kLookAround / look_around;
  const bool completes = completer_->OnThisThread();
  driven_for_ = op;
  while (!op->over.load(std::memory_order_acquire) && !token_->stopping()) {
    const bool working = context_.membership->working();
    bool moved = working && set->Step();
    if (op->over.load(std::memory_order_acquire)) break;
    const bool revoked = working && window_ != nullptr && window_->revoked();
    if (revoked || ++turns % look_around == 0) moved |= work_->Progress();
    if (completes && completer_->has_allocs()) break;
    if (moved) {
      if (until != Time::max() && (caller_looked_ = loop_->Now()) >= until) break;
      spins = yields = 0;
      still_since_ = {};
      continue;
    }
    if ((spins += spins_per_look) < spin_limit_) {
      Relax();
      continue;
    }
    caller_looked_ = loop_->Now();
    if (yields == 0) yielding_since = caller_looked_;
    if (crowded_ && yields < kMostYields && caller_looked_ - yielding_since < kLongestYielding) {
      ++yields;
      spins = 0;
      sched_yield();
    } else {
      if (caller_looked_ >= until) break;
      SleepUntil(until);
      spins = yields = 0;
    }
  }
  driven_for_ = nullptr;
  // Asynchronous operations of other callers go on with the engine's thread.
  if (work_->unfinished() && thread_.joinable()) loop_->Wake();
}

bool Scheduler::Poll() {
  if (!token_->TryTake()) return false;
  const bool moved = work_->Progress();
  token_->Return();
  return moved;
}

bool Scheduler::IsCallerWaiting(Time now) const {
  return driven_for_ != nullptr || token_->has_waiters() || now - caller_looked_ < kBetweenSlices;
}

Time Scheduler::NextPoll(Time now) {
  for (const ProcessSet* set : *context_.sets) {
    if (!set->polled()) continue;
    if (still_since_ == Time{}) still_since_ = now;
    return now + std::clamp((now - still_since_) / kPauses, kShortestPause, kLongestPause);
  }
  return Time::max();
}

void Scheduler::SleepUntil(Time until) {
  if (window_ != nullptr) window_->BeginSleep();
  if (!work_->Progress()) {
    const Time now = loop_->Now();
    const Time wake = std::min({until, work_->NextEvent(now), NextPoll(now)});
    context_.recorder->counters().sleeps.Add(1);
    loop_->RunOnce(wake == Time::max() ? Duration(-1) : std::max(wake - now, Duration(1)));
  }
  if (window_ != nullptr) window_->EndSleep();
}

void Scheduler::Main() {
  const auto revoking = [this] { return context_.membership->phase() == Membership::Phase::kRevoking; };
  while (!token_->stopping()) {
    if (!token_->TakeForThread()) continue;
    loop_->RunOnce(Duration(1));  // takes what woke this thread
    int spins = 0;
    while (!token_->stopping() && !token_->callers_wait()) {
      const bool moved = work_->Progress();
      const bool working = work_->unfinished() || revoking();
      if (!working && !moved) break;
      if (moved) {
        spins = 0;
        still_since_ = {};
      } else if (++spins < (crowded_ ? kThreadYields : spin_limit_ / kLookAround)) {
        crowded_ ? static_cast<void>(sched_yield()) : Relax();
      } else {
        SleepUntil(Time::max());
        spins = 0;
      }
    }
    // A message that arrived before the flag was up has no bell: look once more after raising it.
    if (window_ != nullptr) window_->Listen(true);
    const bool more = work_->Progress() || work_->has_submissions();
    token_->Return();
    if (more || token_->callers_wait()) continue;
    if (work_->unfinished() || revoking()) continue;
    pollfd idle{loop_->poll_fd(), POLLIN, 0};
    if (!token_->stopping()) ::poll(&idle, 1, -1);
  }
  thread_done_.store(true, std::memory_order_release);
}

}  // namespace hvd::engine
