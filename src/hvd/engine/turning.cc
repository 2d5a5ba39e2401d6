// SPDX-License-Identifier: Apache-2.0
// Who turns the engine, and what a turn does: the token, the engine's thread, waiting callers, spinning and sleeping.
#include <poll.h>
#include <sched.h>

#include <algorithm>

#include "hvd/controller/describe.h"
#include "hvd/engine/engine.h"
#include "hvd/engine/relax.h"

namespace hvd::engine {
namespace {

// While a caller waits for one operation it looks at that operation's set every time and at everything else now and
// then.
constexpr int kLookAround = 32;
// A caller whose operation is over looks this often in vain before it leaves the next ones to the engine's thread, and
// this often at all.
constexpr int kLastLooks = 48;
constexpr int kMostLastLooks = 1024;
// With more ranks than cores, the core is given away this many times before the rank sleeps: the peer that it waits for
// may be waiting for this very core.
constexpr int kYields = 200;
// The engine's thread sleeps sooner: nobody waits for it in person.
constexpr int kThreadYields = 6;
// For how long the engine's thread lets callers have the token when one was turning as it was woken.
constexpr Duration kNap = std::chrono::milliseconds(1);
// How often a time-out that could not be told yet looks again.
constexpr Duration kAnswerLook = std::chrono::milliseconds(20);

// Between two looks at what nothing announces. Data that flows does so only when it is looked at, so the pause is a
// part of the time for which nothing was over.
constexpr Duration kShortestPause = std::chrono::microseconds(10);
constexpr Duration kLongestPause = std::chrono::milliseconds(1);
constexpr int kPauses = 64;

}  // namespace

bool Engine::TryToken() {
  if (world_.window == nullptr) return local_token_.try_lock();
  if (world_.window->TryLockToken()) return true;
  // Fenced by its peers: it may move nothing any more, but those who wait here must get their errors.
  if (!world_.window->fenced() || !local_token_.try_lock()) return false;
  const bool known = world_.window->revoked();
  Revoke(known ? world_.window->cause() : transport::Cause{transport::Cause::kSilent, world_.layout.rank, 0, 0}, {});
  return true;
}

void Engine::GiveToken() {
  // Nobody can fence this rank while it has the window's token, so this gives back what was taken.
  world_.window != nullptr && !world_.window->fenced() ? world_.window->UnlockToken() : local_token_.unlock();
  std::atomic_thread_fence(std::memory_order_seq_cst);
  if (callers_waiting_.load(std::memory_order_relaxed) > 0 || thread_waiting_.load(std::memory_order_relaxed) ||
      (thread_naps_.load(std::memory_order_relaxed) && unfinished())) {
    std::lock_guard lock(wait_mutex_);
    wait_changed_.notify_all();
  }
}

bool Engine::WaitForChange(std::unique_lock<std::mutex>& lock, Time until) {
  // Peers that gave this rank up fence it without a word: look again soon.
  const bool condemned = world_.window != nullptr && world_.window->condemned();
  const Time wake = condemned ? std::min(until, world_.loop->Now() + std::chrono::milliseconds(1)) : until;
  if (wake == Time::max()) {
    wait_changed_.wait(lock);
    return true;
  }
  return wait_changed_.wait_until(lock, wake) != std::cv_status::timeout || wake < until;
}

bool Engine::TakeToken(const Operation* op, Time until) {
  if (TryToken()) return true;
  callers_waiting_.fetch_add(1, std::memory_order_seq_cst);
  op_waiters_.fetch_add(1, std::memory_order_seq_cst);
  world_.loop->Wake();  // the engine's thread may be asleep with the token
  std::unique_lock lock(wait_mutex_);
  bool taken = false;
  const bool completes = completer_.OnThisThread();
  // While the engine ends, the one that ends it has the token, and every operation gets its error.
  while (!op->over.load(std::memory_order_acquire) && !(completes && completer_.has_allocs()) &&
         !(!stopping_.load(std::memory_order_acquire) && (taken = TryToken()))) {
    if (!WaitForChange(lock, until)) break;
  }
  op_waiters_.fetch_sub(1, std::memory_order_relaxed);
  callers_waiting_.fetch_sub(1, std::memory_order_relaxed);
  if (thread_waiting_.load(std::memory_order_relaxed)) wait_changed_.notify_all();
  return taken;
}

bool Engine::Wait(Operation* op, Time until) {
  if (submitted_in_a_row_.load(std::memory_order_relaxed) > 0) submitted_in_a_row_.store(0, std::memory_order_relaxed);
  while (!op->over.load(std::memory_order_acquire)) {
    // On the completion thread: nobody else can, while this job waits.
    if (completer_.OnThisThread()) completer_.RunAllocs();
    if (TakeToken(op, until)) {
      const bool waits = !op->over.load(std::memory_order_acquire);  // else its set may be gone
      TurnUntilOver(op, until);
      if (waits && op->over.load(std::memory_order_acquire) && op->set->by_memory()) EndMore(op->set);
      GiveToken();
    }
    if (op->over.load(std::memory_order_acquire) || world_.loop->Now() >= until) break;
  }
  if (unfinished()) world_.loop->Wake();
  return op->over.load(std::memory_order_acquire);
}

// Who submitted many and waits for one of them waits for the next one soon. Waking the engine's thread for those
// between, and taking the token back from it, takes longer than they do.
void Engine::EndMore(ProcessSet* set) {
  const int patience = crowded_ ? 1 : kLastLooks;
  bool left = true;
  for (int looks = 0, vain = 0; looks < kMostLastLooks && vain < patience && left; ++looks) {
    if (callers_waiting_.load(std::memory_order_relaxed) > 0 || stopping_.load(std::memory_order_relaxed)) return;
    if (phase_.load(std::memory_order_relaxed) != Phase::kWorking || world_.window->revoked()) return;
    vain = set->StepMarks(&left) ? 0 : vain + 1;
  }
}

void Engine::TurnUntilOver(Operation* op, Time until) {
  int turns = 0;  // also those that moved something: a large operation moves for seconds
  int spins = 0;
  int yields = 0;
  ProcessSet* set = op->set;
  // Messages arrive only where the loop is turned, which takes about as long as so many looks at memory.
  const int look_around = set->by_memory() ? kLookAround : 1;
  const int spins_per_look = kLookAround / look_around;
  const bool completes = completer_.OnThisThread();
  turned_for_ = op;
  while (!op->over.load(std::memory_order_acquire) && !stopping_.load(std::memory_order_relaxed)) {
    const bool working = phase_.load(std::memory_order_relaxed) == Phase::kWorking;
    bool moved = working && set->Step();
    if (op->over.load(std::memory_order_acquire)) break;
    const bool revoked = working && world_.window != nullptr && world_.window->revoked();
    if (revoked || ++turns % look_around == 0) moved |= Progress();
    if (completes && completer_.has_allocs()) break;
    if (moved) {
      if (until != Time::max() && (turned_ = world_.loop->Now()) >= until) break;
      spins = yields = 0;
      still_since_ = {};
      continue;
    }
    if ((spins += spins_per_look) < spin_limit_) {
      Relax();
    } else if (crowded_ && yields < kYields) {
      ++yields;
      spins = 0;
      sched_yield();
    } else {
      if ((turned_ = world_.loop->Now()) >= until) break;
      SleepUntil(until);
      spins = yields = 0;
    }
  }
  turned_for_ = nullptr;
  // Asynchronous operations of other callers go on with the engine's thread.
  if (unfinished() && thread_.joinable()) world_.loop->Wake();
}

bool Engine::Poll() {
  if (!TryToken()) return false;
  const bool moved = Progress();
  GiveToken();
  return moved;
}

bool Engine::DrainInbox() {
  if (!inbox_full_.load(std::memory_order_acquire)) return false;
  std::vector<Operation*> batch;
  {
    std::lock_guard lock(inbox_mutex_);
    batch.swap(inbox_);
    inbox_full_.store(false, std::memory_order_relaxed);
  }
  batch.size() == 1 ? BeginOnLoop(batch[0]) : BeginManyOnLoop(batch);
  return !batch.empty();
}

bool Engine::Progress() {
  if (world_.window != nullptr) world_.window->Beat();
  const uint64_t completed = counters().operations.load(std::memory_order_relaxed);
  bool moved = DrainInbox();
  if (gathered_ > 0) EndGathering();
  if (sets_.reclaimable()) ReclaimSets();
  for (transport::Pair* pair : world_.polled) moved |= pair->Poll();
  moved |= world_.loop->Turn(Duration::zero());
  NoticeChanges();
  if (phase_.load(std::memory_order_relaxed) != Phase::kWorking) return FinishRevocation() || moved;
  for (size_t i = 0; i < sets_.size(); ++i) {
    if (sets_[i].busy()) moved |= sets_[i].Step();
    if (phase_.load(std::memory_order_relaxed) != Phase::kWorking) return true;
    moved |= sets_[i].FlushLog();
  }
  if (!timed_.empty()) moved |= ExpireOperations(world_.loop->Now());
  if (moved) recorder_.Cycle();
  return moved || counters().operations.load(std::memory_order_relaxed) != completed;
}

Error Engine::DescribeTimeout(const Operation& op, const std::vector<Rank>& missing) const {
  const controller::Signature& signature = op.request.signature;
  if (op.state == Operation::State::kSubmitted) {  // it is held back
    return {Code::kDeadlineExceeded,
            fmt::format("{} timed out: this rank's own operations on process set {} are not over. The set is removed "
                        "when they are, and all ranks have called.",
                        NameOf(signature.op), signature.numbers[0]),
            -1};
  }
  const bool one = missing.size() < 2;
  const std::string who = missing.empty() ? std::string("some rank") : controller::DescribeRanks(missing);
  return {
      Code::kDeadlineExceeded,
      fmt::format("{} '{}' timed out: {} {} not submitted it{}. If {} later, {} this rank's data; this rank may use "
                  "the name again after that.",
                  NameOf(signature.op), op.request.name, who, one ? "has" : "have",
                  missing.empty() ? ", or what it sent is still on its way" : "", one ? "it does" : "they do",
                  one ? "it gets" : "they get"),
      missing.empty() ? -1 : missing[0]};
}

bool Engine::ExpireOperations(Time now) {
  std::vector<Operation*> expired;
  for (Operation* op : timed_) {
    if (op->deadline <= now && !op->detached.load(std::memory_order_relaxed)) expired.push_back(op);
  }
  bool any = false;
  for (Operation* op : expired) {
    const auto missing = stalls_.AskForMissing(*op, op->set->MissingFor(*op), now);
    if (!missing) continue;
    if (!op->set->Detach(op)) {
      op->deadline = now + Seconds(1);  // all ranks are there and data moves: it ends by itself or by liveness
      continue;
    }
    any = true;
    std::erase(timed_, op);
    registry_.LeaveBuffers(op);
    recorder_.TimedOut(*op);
    op->error = DescribeTimeout(*op, *missing);
    last_error_ = op->error.message;
    if (const std::shared_ptr<Group> group = std::move(op->group)) FinishInGroup(group.get(), op->error);
    op->owners.fetch_add(1, std::memory_order_relaxed);  // the engine keeps the detached one
    if (CallsBack(op)) {
      op->owners.fetch_add(1, std::memory_order_relaxed);
      completer_.Post(Completer::Kind::kDone, [this, op] {
        op->done(op->handle, &op->error);
        registry_.Drop(op);
      });
    }
    op->over.store(true, std::memory_order_seq_cst);
    std::lock_guard lock(wait_mutex_);
    wait_changed_.notify_all();
    registry_.Drop(op);
  }
  return any;
}

Time Engine::NextLook(Time now) {
  for (size_t i = 0; i < sets_.size(); ++i) {
    if (!sets_[i].polled()) continue;
    if (still_since_ == Time{}) still_since_ = now;
    return now + std::clamp((now - still_since_) / kPauses, kShortestPause, kLongestPause);
  }
  return Time::max();
}

void Engine::SleepUntil(Time until) {
  if (world_.window != nullptr) world_.window->BeginSleep();
  if (!Progress()) {
    const Time now = world_.loop->Now();
    Time wake = std::min({until, liveness_.Check(now), stalls_.Check(now)});
    // One whose time has come waits for an answer, which wakes this rank; see ExpireOperations.
    for (const Operation* op : timed_) wake = std::min(wake, op->deadline > now ? op->deadline : now + kAnswerLook);
    if (phase_.load(std::memory_order_relaxed) == Phase::kRevoking)
      wake = std::min(wake, now + std::chrono::milliseconds(1));
    wake = std::min(wake, NextLook(now));
    recorder_.counters().sleeps.Add(1);
    world_.loop->Turn(wake == Time::max() ? Duration(-1) : std::max(wake - now, Duration(1)));
  }
  if (world_.window != nullptr) world_.window->EndSleep();
}

bool Engine::ThreadMayTurn() { return callers_waiting_.load(std::memory_order_seq_cst) == 0 && TryToken(); }

// A message wakes the engine's thread although a caller takes it; who calls once calls again soon. Work that the caller
// leaves behind ends the nap. Whether it has the token now.
bool Engine::NapForToken() {
  thread_naps_.store(true, std::memory_order_seq_cst);
  bool taken = false;
  {
    std::unique_lock lock(wait_mutex_);
    taken = ThreadMayTurn();  // who gave it back before the flag was up has not looked at the flag
    if (!taken && !stopping_.load(std::memory_order_acquire)) WaitForChange(lock, world_.loop->Now() + kNap);
  }
  thread_naps_.store(false, std::memory_order_relaxed);
  return taken || ThreadMayTurn();
}

void Engine::ThreadMain() {
  while (!stopping_.load(std::memory_order_acquire)) {
    bool taken = ThreadMayTurn() || (callers_waiting_.load(std::memory_order_relaxed) == 0 && NapForToken());
    if (!taken) {
      thread_waiting_.store(true, std::memory_order_seq_cst);
      std::unique_lock lock(wait_mutex_);
      while (!stopping_.load(std::memory_order_acquire) && !(taken = ThreadMayTurn())) WaitForChange(lock, Time::max());
      thread_waiting_.store(false, std::memory_order_relaxed);
      if (!taken) continue;
    }
    world_.loop->Turn(Duration(1));  // takes what woke us
    int spins = 0;
    while (!stopping_.load(std::memory_order_relaxed) && callers_waiting_.load(std::memory_order_relaxed) == 0) {
      const bool moved = Progress();
      const bool working = unfinished() || phase_ == Phase::kRevoking;
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
    if (world_.window != nullptr) world_.window->Listen(true);
    const bool more = Progress() || inbox_full_.load(std::memory_order_acquire);
    GiveToken();
    if (more || callers_waiting_.load(std::memory_order_relaxed) > 0) continue;
    if (unfinished() || phase_ == Phase::kRevoking) continue;
    pollfd idle{world_.loop->poll_fd(), POLLIN, 0};
    if (!stopping_.load(std::memory_order_acquire)) ::poll(&idle, 1, -1);
  }
  thread_done_.store(true, std::memory_order_release);
}

}  // namespace hvd::engine
