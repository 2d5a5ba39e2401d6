// SPDX-License-Identifier: Apache-2.0
#include "hvd/trace/flight_signals.h"

#include <pthread.h>
#include <sched.h>
#include <signal.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <cerrno>

#include "hvd/base/crash_teller.h"

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

// While one lives, the process dies of SIGALRM when the time is over: the default action ends also a thread that sleeps
// in a file system.
class DumpLimit {
 public:
  DumpLimit() {
    struct sigaction fatal {};
    fatal.sa_handler = SIG_DFL;
    ::sigaction(SIGALRM, &fatal, &before_);
    sigset_t alarm;
    sigemptyset(&alarm);
    sigaddset(&alarm, SIGALRM);
    ::pthread_sigmask(SIG_UNBLOCK, &alarm, &mask_);
    left_ = ::alarm(kSeconds);
  }
  ~DumpLimit() {
    ::alarm(left_);
    ::pthread_sigmask(SIG_SETMASK, &mask_, nullptr);
    ::sigaction(SIGALRM, &before_, nullptr);
  }
  DumpLimit(const DumpLimit&) = delete;
  DumpLimit& operator=(const DumpLimit&) = delete;

 private:
  static constexpr unsigned kSeconds = 5;

  struct sigaction before_ {};
  sigset_t mask_;
  unsigned left_ = 0;
};

void DumpCrash(int signo, std::string_view reason) {
  if (const CrashTeller tell = crash_teller.load(std::memory_order_seq_cst)) tell(signo);
  const DumpLimit limit;
  DumpAll(reason);
}

void Handle(int signo, siginfo_t* info, void*) {
  const int saved_errno = errno;
  for (size_t i = 0; i < kHandled.size(); ++i) {
    if (kHandled[i].signo != signo) continue;
    if (!kHandled[i].crash) {
      DumpAll(kHandled[i].reason);
      break;
    }
    DumpCrash(signo, kHandled[i].reason);
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

FlightSignals::FlightSignals(FlightRecorder& recorder) {
  const std::lock_guard lock(g_mutex);
  for (size_t i = 0; i < g_slots.size() && slot_ < 0; ++i) {
    if (g_slots[i].recorder.load(std::memory_order_relaxed) != nullptr) continue;
    slot_ = static_cast<int>(i);
    g_slots[i].pid.store(::getpid(), std::memory_order_relaxed);
    g_slots[i].recorder.store(&recorder, std::memory_order_seq_cst);
  }
  ++g_registered;
  Install(!recorder.path().empty());
}

FlightSignals::~FlightSignals() {
  const std::lock_guard lock(g_mutex);
  if (slot_ >= 0) g_slots[static_cast<size_t>(slot_)].recorder.store(nullptr, std::memory_order_seq_cst);
  // The slot is empty, so only handlers that run now can use the recorder; a dump takes a millisecond.
  while (g_dumping.load(std::memory_order_seq_cst) != 0) ::sched_yield();
  if (--g_registered == 0) Uninstall();
}

}  // namespace hvd::trace
