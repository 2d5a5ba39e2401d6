// SPDX-License-Identifier: Apache-2.0
// The token of board.h and how peers take it away.
//
// A rank stores into its peers' memory only under its token. Peers that gave it up set `taken` and then lock the token:
// by the order that the mutex gives, whoever locks it later sees `taken`, so the rank never stores again, dead or
// alive. The lock itself is given back at once, since a robust mutex that stays locked would tie the fencer's thread to
// this memory.

#include "hvd/transport/shm/board.h"

namespace hvd::transport::shm {

FutexWord& Board::token_word(int local) {
  // glibc's layout, fixed by its ABI: the lock word (owner's thread id and FUTEX_ flags) is the mutex's first member.
  static_assert(offsetof(pthread_mutex_t, __data.__lock) == 0);
  return *reinterpret_cast<FutexWord*>(&cell(local).token.__data.__lock);
}

bool Board::HoldsToken() const {
  const auto tid = static_cast<int>(::syscall(SYS_gettid));
  return cell(self_).token.__data.__owner == tid;
}

// Whether a lock attempt gave the token, for good.
bool Board::Entered(int lock_result) {
  Cell& mine = cell(self_);
  if (lock_result == EOWNERDEAD) {
    // A thread of this process ended under the token, or a fencer died. What it guards is checked by `taken` alone.
    pthread_mutex_consistent(&mine.token);
    lock_result = 0;
  }
  if (lock_result != 0) return false;
  if (mine.taken.load(std::memory_order_relaxed) == 0) return true;
  SetFenced(self_);  // nobody of this rank holds it, and nobody will
  pthread_mutex_unlock(&mine.token);
  return false;
}

bool Board::TryLockToken() { return Entered(pthread_mutex_trylock(&cell(self_).token)); }
bool Board::LockToken() { return Entered(pthread_mutex_lock(&cell(self_).token)); }
void Board::UnlockToken() { pthread_mutex_unlock(&cell(self_).token); }

bool Board::Fence(int local) {
  Cell& victim = cell(local);
  if (fenced(local)) return true;
  victim.taken.store(1, std::memory_order_seq_cst);
  const int rc = pthread_mutex_trylock(&victim.token);
  if (rc == EBUSY) return false;  // its holder is not dead yet, or another survivor is just here
  SetFenced(local);
  if (rc == EOWNERDEAD) pthread_mutex_consistent(&victim.token);
  if (rc == 0 || rc == EOWNERDEAD) pthread_mutex_unlock(&victim.token);
  return true;
}

}  // namespace hvd::transport::shm
