// SPDX-License-Identifier: Apache-2.0
#include "hvd/trace/flight_signals.h"

#include <sched.h>
#include <signal.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <cerrno>

namespace hvd::trace {
namespace {

struct Handled {
  int signo;
  bool crash;
  std::string_view reason;
};
constexpr std::array<Handled, 6> kHandled{{{SIGUSR2, false, "SIGUSR2"},
                                           {SIGSEGV, true, "crash: SIGSEGV"},
                                           {SIGBUS, true, "crash: SIGBUS"},
                                           {SIGILL, true, "crash: SIGILL"},
                                           {SIGFPE, true, "crash: SIGFPE"},
                                           {SIGABRT, true, "crash: SIGABRT"}}};

struct Slot {
  std::atomic<FlightRecorder*> recorder{nullptr};
  std::atomic<int> pid{0};  // who registered it; a forked child inherits the table
};

std::array<Slot, 64> g_slots;
std::atomic<int> g_dumping{0};  // handlers that look at recorders now
std::mutex g_mutex;
int g_registered = 0;
std::array<bool, kHandled.size()> g_installed{};
std::array<struct sigaction, kHandled.size()> g_before;  // written while the handler is not installed

void DumpAll(std::string_view reason) {
  const auto pid = static_cast<int>(::syscall(SYS_getpid));
  g_dumping.fetch_add(1, std::memory_order_seq_cst);
  for (Slot& slot : g_slots) {
    FlightRecorder* const recorder = slot.recorder.load(std::memory_order_seq_cst);
    if (recorder == nullptr || slot.pid.load(std::memory_order_relaxed) != pid) continue;
    recorder->DumpFromSignal(reason);
  }
  g_dumping.fetch_sub(1, std::memory_order_seq_cst);
}

void Handle(int signo, siginfo_t* info, void*) {
  const int saved_errno = errno;
  for (size_t i = 0; i < kHandled.size(); ++i) {
    if (kHandled[i].signo != signo) continue;
    DumpAll(kHandled[i].reason);
    if (!kHandled[i].crash) break;
    // Blocked until this handler returns, then for whoever handled it before, with the registers of the crash.
    ::sigaction(signo, &g_before[i], nullptr);
    const auto pid = ::syscall(SYS_getpid);
    if (::syscall(SYS_rt_tgsigqueueinfo, pid, ::syscall(SYS_gettid), signo, info) != 0) ::raise(signo);
  }
  errno = saved_errno;
}

bool IsOurs(const struct sigaction& action) {
  return (action.sa_flags & SA_SIGINFO) != 0 && action.sa_sigaction == &Handle;
}

void Install() {
  for (size_t i = 0; i < kHandled.size(); ++i) {
    struct sigaction& before = g_before[i];
    if (::sigaction(kHandled[i].signo, nullptr, &before) != 0 || IsOurs(before)) continue;
    const bool is_default = (before.sa_flags & SA_SIGINFO) == 0 && before.sa_handler == SIG_DFL;
    if (!kHandled[i].crash && !is_default) continue;
    struct sigaction action {};
    action.sa_sigaction = &Handle;
    action.sa_flags = SA_SIGINFO | SA_ONSTACK | SA_RESTART;
    sigemptyset(&action.sa_mask);
    g_installed[i] = ::sigaction(kHandled[i].signo, &action, nullptr) == 0;
  }
}

void Uninstall() {
  for (size_t i = 0; i < kHandled.size(); ++i) {
    if (!g_installed[i]) continue;
    struct sigaction now {};
    // A handler that was put over ours may still call it. Then it finds no recorder and hands the signal on; and it is
    // still installed when the next recorder comes.
    if (::sigaction(kHandled[i].signo, nullptr, &now) != 0 || !IsOurs(now)) continue;
    ::sigaction(kHandled[i].signo, &g_before[i], nullptr);
    g_installed[i] = false;
  }
}

}  // namespace

FlightSignals::FlightSignals(FlightRecorder& recorder) {
  const std::lock_guard lock(g_mutex);
  for (size_t i = 0; i < g_slots.size() && slot_ < 0; ++i) {
    if (g_slots[i].recorder.load(std::memory_order_relaxed) != nullptr) continue;
    slot_ = static_cast<int>(i);
    g_slots[i].pid.store(::getpid(), std::memory_order_relaxed);
    g_slots[i].recorder.store(&recorder, std::memory_order_seq_cst);
  }
  if (g_registered++ == 0) Install();
}

FlightSignals::~FlightSignals() {
  const std::lock_guard lock(g_mutex);
  if (slot_ >= 0) g_slots[static_cast<size_t>(slot_)].recorder.store(nullptr, std::memory_order_seq_cst);
  // The slot is empty, so only handlers that run now can use the recorder; a dump takes a millisecond.
  while (g_dumping.load(std::memory_order_seq_cst) != 0) ::sched_yield();
  if (--g_registered == 0) Uninstall();
}

}  // namespace hvd::trace
