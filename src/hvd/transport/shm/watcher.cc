// SPDX-License-Identifier: Apache-2.0
#include "hvd/transport/shm/watcher.h"

#include <sched.h>
#include <signal.h>

#include <algorithm>
#include <cstring>

#include "hvd/transport/shm/fork.h"

namespace hvd::transport::shm {
namespace {

constexpr size_t kStackBytes = 256 << 10;
// Room for the stop word, the change counter and a few tokens beside the life words.
constexpr int kMaxWatched = 112;
constexpr int kNeighbours = 64;

// Waiting on nothing is refused as such only where waiting on something would work.
bool HaveWaitv() { return FutexWaitAny(nullptr, 0) == EINVAL; }

bool Free(uint32_t word) { return (word & FUTEX_TID_MASK) == 0 || (word & FUTEX_OWNER_DIED) != 0; }

}  // namespace

Watcher::Watcher(Board& board, std::function<void()> on_change, bool without_waitv)
    : board_(board),
      on_change_(std::move(on_change)),
      epoch_(ForkEpoch()),
      waitv_(!without_waitv && HaveWaitv()),
      token_awaited_(static_cast<size_t>(board.count())) {
  const int others = board.count() - 1;
  const int watched = others <= kMaxWatched ? others : kNeighbours;
  for (int i = 1; i <= watched; ++i) watched_.push_back((board.self() + i) % board.count());
}

Status Watcher::StartThread(pthread_t* thread, void* (*entry)(void*)) {
  sigset_t all, old;
  sigfillset(&all);
  // Faults stay deliverable: blocked, they would kill without the crash handlers' word.
  for (const int signo : {SIGSEGV, SIGBUS, SIGILL, SIGFPE, SIGABRT}) sigdelset(&all, signo);
  pthread_sigmask(SIG_SETMASK, &all, &old);
  pthread_attr_t attributes;
  pthread_attr_init(&attributes);
  pthread_attr_setstacksize(&attributes, kStackBytes);
  int rc = pthread_create(thread, &attributes, entry, this);
  if (rc == EINVAL) rc = pthread_create(thread, nullptr, entry, this);  // thread-local data of others needs more stack
  pthread_attr_destroy(&attributes);
  pthread_sigmask(SIG_SETMASK, &old, nullptr);
  if (rc != 0) return Fail(Code::kResourceExhausted, "the watcher thread cannot be started: {}", std::strerror(rc));
  pthread_setname_np(*thread, "hvd-watch");
  return {};
}

Status Watcher::Start() {
  HVD_RETURN_IF_ERROR(StartThread(&thread_, &WatchMain));
  running_ = true;
  while (owned_.load(std::memory_order_acquire) == 0) FutexWait(&owned_, 0);
  if (owned_.load(std::memory_order_acquire) == 1) return {};
  Stop();
  return Fail(Code::kUnimplemented, "robust futexes are not available");
}

void Watcher::Begin() {
  begun_.store(1, std::memory_order_release);
  FutexWakeAll(&begun_);
}

void Watcher::Stop() {
  if (!running_ || epoch_ != ForkEpoch()) return;
  stop_.store(1, std::memory_order_release);
  FutexWakeAll(&stop_);
  Begin();
  if (!waitv_) {
    board_.changes().fetch_add(1, std::memory_order_acq_rel);  // all that it sleeps on
    FutexWakeAll(&board_.changes());
  }
  pthread_join(thread_, nullptr);
  if (neighbour_running_) {
    // It sleeps on a word that is not ours to change, so a wake-up may come just before the sleep: try again.
    while (!neighbour_done_.load(std::memory_order_acquire)) {
      for (const int local : watched_) FutexWakeAll(&board_.life(local));
      ::sched_yield();
    }
    pthread_join(neighbour_thread_, nullptr);
  }
  running_ = neighbour_running_ = false;
}

void* Watcher::WatchMain(void* self) {
  static_cast<Watcher*>(self)->Watch();
  return nullptr;
}

void* Watcher::NeighbourMain(void* self) {
  static_cast<Watcher*>(self)->WatchNeighbour();
  return nullptr;
}

void Watcher::OwnLifeWord() {
  FutexWord& life = board_.life(board_.self());
  node_.next = &robust_.list;
  robust_.list.next = &node_;
  robust_.futex_offset = reinterpret_cast<char*>(&life) - reinterpret_cast<char*>(&node_);
  // In place of glibc's list: this thread never locks a robust mutex.
  const long rc = ::syscall(SYS_set_robust_list, &robust_, sizeof robust_);
  if (rc == 0) life.store(static_cast<uint32_t>(::syscall(SYS_gettid)), std::memory_order_release);
  owned_.store(rc == 0 ? 1 : 2, std::memory_order_release);
  FutexWakeAll(&owned_);
}

void Watcher::DisownLifeWord() {
  robust_.list.next = &robust_.list;
  FutexWord& life = board_.life(board_.self());
  life.store(0, std::memory_order_release);
  FutexWakeAll(&life);
}

void Watcher::Watch() {
  OwnLifeWord();
  while (begun_.load(std::memory_order_acquire) == 0) FutexWait(&begun_, 0);
  if (!waitv_ && !watched_.empty()) {
    neighbour_running_ = StartThread(&neighbour_thread_, &NeighbourMain).has_value();
  }
  uint32_t told = 0;  // a board starts with no changes
  while (stop_.load(std::memory_order_acquire) == 0) {
    if (Scan()) board_.WakeAllRanks();
    const uint32_t seen = board_.changes().load(std::memory_order_acquire);
    if (seen != told) {
      told = seen;
      if (board_.lost(board_.self())) ::kill(::getpid(), SIGKILL);  // peers that cannot signal us ask this way
      if (on_change_) on_change_();
    } else if (waitv_) {
      SleepOnAll(seen);
    } else {
      FutexWait(&board_.changes(), seen);
    }
  }
  DisownLifeWord();
}

bool Watcher::Examine(int local) {
  if (board_.state(local) != PeerState::kAlive) return false;
  if ((board_.life(local).load(std::memory_order_acquire) & FUTEX_OWNER_DIED) == 0) return false;
  const Cause died{.kind = Cause::kDied, .rank = board_.rank(local), .detail = 0, .pid = board_.pid(local)};
  // Cause first: whoever sees the state finds the reason.
  board_.SetCause(died);
  return board_.SetState(local, PeerState::kDead);
}

bool Watcher::Scan() {
  bool news = false;
  for (const int local : watched_) {
    news |= Examine(local);
    if (token_awaited_[static_cast<size_t>(local)] && Free(board_.token_word(local).load(std::memory_order_acquire))) {
      token_awaited_[static_cast<size_t>(local)] = false;
      news = true;  // it can be fenced now
    }
  }
  return news;
}

void Watcher::AddWaiter(FutexWord& word, uint32_t value) {
  waiters_.push_back({value, reinterpret_cast<uint64_t>(&word), kFutexWaiter32, 0});
}

// Waits for a word's owner to die; false if the word is free. The kernel wakes nobody unless FUTEX_WAITERS is set.
bool Watcher::AddHeldWord(FutexWord& word) {
  uint32_t value = word.load(std::memory_order_acquire);
  do {
    if (Free(value)) return false;
  } while ((value & FUTEX_WAITERS) == 0 &&
           !word.compare_exchange_weak(value, value | FUTEX_WAITERS, std::memory_order_acq_rel));
  AddWaiter(word, value | FUTEX_WAITERS);
  return true;
}

void Watcher::SleepOnAll(uint32_t seen) {
  waiters_.clear();
  AddWaiter(stop_, 0);
  AddWaiter(board_.changes(), seen);
  for (const int local : watched_) {
    if (waiters_.size() == kMaxFutexWaiters) break;
    const PeerState state = board_.state(local);
    if (state == PeerState::kAlive) {
      FutexWord& life = board_.life(local);
      if (!AddHeldWord(life) && (life.load(std::memory_order_acquire) & FUTEX_OWNER_DIED) != 0) return;
    } else if (state == PeerState::kDead && AddHeldWord(board_.token_word(local))) {
      token_awaited_[static_cast<size_t>(local)] = true;
    }
  }
  FutexWaitAny(waiters_.data(), waiters_.size());
}

void Watcher::WatchNeighbour() {
  while (stop_.load(std::memory_order_acquire) == 0) {
    for (const int local : watched_) {
      if (Examine(local)) board_.WakeAllRanks();
    }
    const auto next = std::find_if(watched_.begin(), watched_.end(), [this](int local) {
      return board_.state(local) == PeerState::kAlive && board_.life(local).load(std::memory_order_acquire) != 0;
    });
    if (next == watched_.end()) break;
    waiters_.clear();
    if (AddHeldWord(board_.life(*next))) {
      FutexWait(&board_.life(*next), static_cast<uint32_t>(waiters_.front().value));
    }
  }
  neighbour_done_.store(true, std::memory_order_release);
}

}  // namespace hvd::transport::shm
