// SPDX-License-Identifier: Apache-2.0
#include "hvd/transport/shm/crash_signals.h"

#include <sched.h>
#include <signal.h>

#include <array>
#include <mutex>

#include "hvd/base/crash_teller.h"
#include "hvd/transport/shm/fork.h"

namespace hvd::transport::shm {
namespace {

constexpr std::array<int, 5> kSignals{SIGSEGV, SIGBUS, SIGILL, SIGFPE, SIGABRT};

struct Slot {
  std::atomic<Board*> board{nullptr};
  std::atomic<int> pid{0};  // who registered it; a forked child inherits the table
};

std::array<Slot, 64> g_slots;
std::atomic<int> g_telling{0};  // handlers that look at boards now
std::mutex g_mutex;
int g_registered = 0;
std::array<std::atomic<bool>, kSignals.size()> g_installed{};
std::array<struct sigaction, kSignals.size()> g_before;  // written while ours is not installed

void Tell(Board& board, int signo, int pid) {
  const int self = board.self();
  if (board.state(self) != PeerState::kAlive) return;
  board.SetCause({.kind = Cause::kSignal, .rank = board.rank(self), .detail = signo, .pid = pid});
  board.SetState(self, PeerState::kDead);
  // The thread that crashed stores nothing any more; if it is the token's, nobody here does.
  if (board.HoldsToken()) board.SetQuiesced();
  board.WakeAllRanks();
}

void TellAll(int signo) {
  const auto pid = static_cast<int>(::syscall(SYS_getpid));
  g_telling.fetch_add(1, std::memory_order_seq_cst);
  for (Slot& slot : g_slots) {
    Board* const board = slot.board.load(std::memory_order_seq_cst);
    if (board != nullptr && slot.pid.load(std::memory_order_relaxed) == pid) Tell(*board, signo, pid);
  }
  g_telling.fetch_sub(1, std::memory_order_seq_cst);
}

// For a handler that was put over ours. Where ours is not below it, the process may survive the signal.
void TellIfFatal(int signo) {
  for (size_t i = 0; i < kSignals.size(); ++i) {
    if (kSignals[i] == signo && g_installed[i].load(std::memory_order_relaxed)) TellAll(signo);
  }
}

void Handle(int signo, siginfo_t* info, void*) {
  const int saved_errno = errno;
  TellAll(signo);
  for (size_t i = 0; i < kSignals.size(); ++i) {
    if (kSignals[i] == signo) ::sigaction(signo, &g_before[i], nullptr);
  }
  // Blocked until this handler returns, then fatal, with the registers of the crash.
  const auto pid = static_cast<int>(::syscall(SYS_getpid));
  if (::syscall(SYS_rt_tgsigqueueinfo, pid, ::syscall(SYS_gettid), signo, info) != 0) ::raise(signo);
  errno = saved_errno;
}

bool IsOurs(const struct sigaction& action) {
  return (action.sa_flags & SA_SIGINFO) != 0 && action.sa_sigaction == &Handle;
}

void Install(bool handlers_are_fatal) {
  for (size_t i = 0; i < kSignals.size(); ++i) {
    struct sigaction before {};
    if (::sigaction(kSignals[i], nullptr, &before) != 0 || IsOurs(before)) continue;
    const bool plain = (before.sa_flags & SA_SIGINFO) == 0;
    const bool handled = !plain || before.sa_handler != SIG_DFL;
    const bool ignored = plain && before.sa_handler == SIG_IGN;
    // A handler that was put over ours calls it.
    if (ignored || (handled && (g_installed[i] || !handlers_are_fatal))) continue;
    g_before[i] = before;
    struct sigaction action {};
    action.sa_sigaction = &Handle;
    action.sa_flags = SA_SIGINFO | SA_ONSTACK;
    sigemptyset(&action.sa_mask);
    g_installed[i] = ::sigaction(kSignals[i], &action, nullptr) == 0;
  }
  crash_teller.store(&TellIfFatal, std::memory_order_seq_cst);
}

void Uninstall() {
  crash_teller.store(nullptr, std::memory_order_seq_cst);
  for (size_t i = 0; i < kSignals.size(); ++i) {
    struct sigaction now {};
    // A handler that was put over ours may still call it. Then it finds no board and hands the signal on; and it is
    // still installed when the next board comes.
    if (!g_installed[i] || ::sigaction(kSignals[i], nullptr, &now) != 0 || !IsOurs(now)) continue;
    ::sigaction(kSignals[i], &g_before[i], nullptr);
    g_installed[i] = false;
  }
}

}  // namespace

CrashNotice::CrashNotice(Board& board, bool handlers_are_fatal) {
  static std::atomic<ForkLock*> fork_lock{new ForkLock(g_mutex)};  // never destroyed, as the mutex is not
  fork_lock.load(std::memory_order_relaxed);
  const std::lock_guard lock(g_mutex);
  for (size_t i = 0; i < g_slots.size() && slot_ < 0; ++i) {
    if (g_slots[i].board.load(std::memory_order_relaxed) != nullptr) continue;
    slot_ = static_cast<int>(i);
    g_slots[i].pid.store(::getpid(), std::memory_order_relaxed);
    g_slots[i].board.store(&board, std::memory_order_seq_cst);
  }
  ++g_registered;
  Install(handlers_are_fatal);
}

CrashNotice::~CrashNotice() {
  const std::lock_guard lock(g_mutex);
  if (slot_ >= 0) g_slots[static_cast<size_t>(slot_)].board.store(nullptr, std::memory_order_seq_cst);
  // A handler that runs now in another thread may still use the board; it takes microseconds, then the process dies.
  while (g_telling.load(std::memory_order_seq_cst) != 0) ::sched_yield();
  if (--g_registered == 0) Uninstall();
}

}  // namespace hvd::transport::shm
