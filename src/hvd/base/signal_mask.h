// SPDX-License-Identifier: Apache-2.0
#pragma once
// The program's signals are for the program's threads: threads that the library makes while one of these lives are born
// with all signals blocked. So handlers run where the program expects them, and a program that blocks a signal to take
// it with sigwait or a signalfd gets it.
//
// Faults stay deliverable: blocked, they would kill without a word of the crash handlers.
//
// Thread safety: changes the thread that makes it, until its end.

#include <pthread.h>
#include <signal.h>

namespace hvd {

class SignalsBlocked {
 public:
  SignalsBlocked() {
    sigset_t blocked;
    sigfillset(&blocked);
    for (const int fault : {SIGSEGV, SIGBUS, SIGILL, SIGFPE, SIGABRT, SIGTRAP, SIGSYS}) sigdelset(&blocked, fault);
    pthread_sigmask(SIG_SETMASK, &blocked, &before_);
  }
  ~SignalsBlocked() { pthread_sigmask(SIG_SETMASK, &before_, nullptr); }
  SignalsBlocked(const SignalsBlocked&) = delete;
  SignalsBlocked& operator=(const SignalsBlocked&) = delete;

 private:
  sigset_t before_;
};

}  // namespace hvd
