// SPDX-License-Identifier: Apache-2.0
#include "hvd/trace/flight_signals.h"

#include <linux/futex.h>
#include <pthread.h>
#include <sched.h>
#include <signal.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#include <cerrno>
#include <climits>
#include <thread>
#include <utility>

#include "hvd/base/crash_teller.h"
#include "hvd/base/signal_mask.h"

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
  std::atomic<int> pid{0};   // who registered it; a forked child inherits the table
  FlightSignals::Dump dump;  // written while there is no recorder
};

std::array<Slot, 64> g_slots;
std::atomic<int> g_dumping{0};  // handlers, and the thread, that look at recorders now
std::mutex g_mutex;
int g_registered = 0;
std::array<bool, kHandled.size()> g_installed{};
std::array<struct sigaction, kHandled.size()> g_before;  // written while the handler is not installed

// What writes files, because a file may take for ever: a thread for the whole life of the process.
std::atomic<int> g_thread_pid{0};  // the process that has it; a forked child has none
std::atomic<int> g_thread_tid{0};
std::atomic<uint32_t> g_asked{0};  // bit i: for kHandled[i]
std::atomic<uint32_t> g_crash_written{0};

int Pid() { return static_cast<int>(::syscall(SYS_getpid)); }

void Wait(std::atomic<uint32_t>& word, uint32_t value, const timespec* limit) {
  ::syscall(SYS_futex, &word, FUTEX_WAIT_PRIVATE, value, limit, nullptr, 0);
}

void Wake(std::atomic<uint32_t>& word) {
  ::syscall(SYS_futex, &word, FUTEX_WAKE_PRIVATE, INT_MAX, nullptr, nullptr, 0);
}

// Calls `visit` with each recorder of this process. Safe in a signal handler.
template <typename Visit>
void ForEachSlot(Visit visit) {
  g_dumping.fetch_add(1, std::memory_order_seq_cst);
  for (Slot& slot : g_slots) {
    FlightRecorder* const recorder = slot.recorder.load(std::memory_order_seq_cst);
    if (recorder != nullptr && slot.pid.load(std::memory_order_relaxed) == Pid()) visit(slot, *recorder);
  }
  g_dumping.fetch_sub(1, std::memory_order_seq_cst);
}

void WriteCrash(std::string_view reason) {
  ForEachSlot([&](Slot&, FlightRecorder& recorder) { recorder.DumpFromSignal(reason); });
}

void Answer(size_t i) {
  if (kHandled[i].crash) {
    WriteCrash(kHandled[i].reason);
    g_crash_written.store(1, std::memory_order_release);
    Wake(g_crash_written);
    return;
  }
  ForEachSlot([&](Slot& slot, FlightRecorder& recorder) {
    if (!recorder.path().empty()) slot.dump(kHandled[i].reason);
  });
}

[[noreturn]] void Main() {
  g_thread_tid.store(static_cast<int>(::syscall(SYS_gettid)), std::memory_order_relaxed);
  for (;;) {
    const uint32_t asked = g_asked.exchange(0, std::memory_order_acquire);
    for (size_t i = 0; i < kHandled.size(); ++i) {
      if ((asked >> i & 1) != 0) Answer(i);
    }
    if (asked == 0) Wait(g_asked, 0, nullptr);
  }
}

void StartThread() {
  if (g_thread_pid.exchange(Pid()) == Pid()) return;
  const SignalsBlocked blocked;
  std::thread thread(&Main);
  ::pthread_setname_np(thread.native_handle(), "hvd-flight");
  thread.detach();
}

// False: this process has no such thread.
bool Ask(size_t i) {
  if (g_thread_pid.load(std::memory_order_relaxed) != Pid()) return false;
  g_asked.fetch_or(1u << i, std::memory_order_release);
  Wake(g_asked);
  return true;
}

// Returns when the crash is written, or a file system has not answered for too long.
void WriteWithin(size_t i, time_t seconds) {
  if (g_thread_tid.load(std::memory_order_relaxed) == ::syscall(SYS_gettid)) return WriteCrash(kHandled[i].reason);
  if (!Ask(i)) return;
  timespec now{};
  ::clock_gettime(CLOCK_MONOTONIC, &now);
  const time_t end = now.tv_sec + seconds;
  while (g_crash_written.load(std::memory_order_acquire) == 0 && now.tv_sec < end) {
    const timespec limit{end - now.tv_sec, 0};
    Wait(g_crash_written, 0, &limit);
    ::clock_gettime(CLOCK_MONOTONIC, &now);
  }
}

void AnswerUser(size_t i) {
  ForEachSlot([&](Slot&, FlightRecorder& recorder) {
    if (recorder.path().empty()) recorder.DumpFromSignal(kHandled[i].reason);
  });
  (void)Ask(i);
}

void AnswerCrash(size_t i) {
  constexpr time_t kPatience = 5;
  if (const CrashTeller tell = crash_teller.load(std::memory_order_seq_cst)) tell(kHandled[i].signo);
  WriteWithin(i, kPatience);
}

void Handle(int signo, siginfo_t* info, void*) {
  const int saved_errno = errno;
  for (size_t i = 0; i < kHandled.size(); ++i) {
    if (kHandled[i].signo != signo) continue;
    if (!kHandled[i].crash) {
      AnswerUser(i);
      break;
    }
    AnswerCrash(i);
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

void Install(bool crashes) {
  for (size_t i = 0; i < kHandled.size(); ++i) {
    if (kHandled[i].crash && !crashes) continue;
    struct sigaction before {};
    if (::sigaction(kHandled[i].signo, nullptr, &before) != 0 || IsOurs(before)) continue;
    const bool is_default = (before.sa_flags & SA_SIGINFO) == 0 && before.sa_handler == SIG_DFL;
    // A handler that was put over ours calls it.
    if (!is_default && (g_installed[i] || !kHandled[i].crash)) continue;
    g_before[i] = before;
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

FlightSignals::FlightSignals(FlightRecorder& recorder, Dump dump) {
  const std::lock_guard lock(g_mutex);
  for (size_t i = 0; i < g_slots.size() && slot_ < 0; ++i) {
    if (g_slots[i].recorder.load(std::memory_order_relaxed) != nullptr) continue;
    slot_ = static_cast<int>(i);
    g_slots[i].dump = std::move(dump);
    g_slots[i].pid.store(::getpid(), std::memory_order_relaxed);
    g_slots[i].recorder.store(&recorder, std::memory_order_seq_cst);
  }
  ++g_registered;
  if (!recorder.path().empty()) StartThread();
  Install(!recorder.path().empty());
}

FlightSignals::~FlightSignals() {
  const std::lock_guard lock(g_mutex);
  if (slot_ >= 0) g_slots[static_cast<size_t>(slot_)].recorder.store(nullptr, std::memory_order_seq_cst);
  // The slot is empty, so only those that look now can use the recorder. They wait for no file, unless this process
  // crashes.
  while (g_dumping.load(std::memory_order_seq_cst) != 0) ::sched_yield();
  if (--g_registered == 0) Uninstall();
}

}  // namespace hvd::trace
