// SPDX-License-Identifier: Apache-2.0
#pragma once
// Handlers for SEGV, BUS, ILL, FPE and ABRT that tell the local peers before the process dies of the signal: writing a
// core takes seconds, and until then no robust word says anything.
//
// They are installed with the first registration, only where the signal ends the process, and removed with the last:
// the action is the default one, or a handler that is said to be fatal. After telling, what was there before is
// restored and the signal raised again with its own siginfo, so exit status and core are what they would have been. A
// handler that is put over these and takes its time calls crash_teller first.
//
// Thread safety: everything. A forked child's crash tells nobody.

#include "hvd/transport/shm/board.h"

namespace hvd::transport::shm {

// One registered board, until it is destroyed. At most 64 at a time; more are not told.
class CrashNotice {
 public:
  // `handlers_are_fatal`: no handler of the program lets it survive such a signal.
  CrashNotice(Board& board, bool handlers_are_fatal);
  ~CrashNotice();
  CrashNotice(const CrashNotice&) = delete;
  CrashNotice& operator=(const CrashNotice&) = delete;

 private:
  int slot_ = -1;
};

}  // namespace hvd::transport::shm
