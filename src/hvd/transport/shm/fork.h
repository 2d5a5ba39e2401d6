// SPDX-License-Identifier: Apache-2.0
#pragma once
// What happens to this library's descriptors and locks when the program forks.
//
// A forked child shares the parent's shared memory but is no rank. Descriptors owned by Fd are closed there, so that a
// child that outlives its parent keeps neither doorbells nor arenas alive; locks named by a ForkLock are free there.
//
// The handlers of other libraries that were registered before these run between these, on the thread that forks. With
// the preloaded libhvd_heap.so there are next to none: it registers first, and calls these.
//
// Thread safety: all of it, and fork() may be called by any thread at any time.

#include <atomic>
#include <mutex>
#include <utility>

namespace hvd::transport::shm {

// Grows by one in each forked child. An object that remembers the value of its creation can tell whether it is a copy.
unsigned ForkEpoch();

// A descriptor that is closed with this object, and in forked children at the fork.
//
// Thread safety: as an int.
class Fd {
 public:
  Fd() = default;
  explicit Fd(int fd);
  Fd(Fd&& other) noexcept : fd_(std::exchange(other.fd_, -1)), epoch_(other.epoch_) {}
  Fd& operator=(Fd&& other) noexcept;
  ~Fd() { Close(); }
  // -1 if there is none, or if this is the copy in a forked child.
  int get() const { return fd_ >= 0 && epoch_ == ForkEpoch() ? fd_ : -1; }
  explicit operator bool() const { return get() >= 0; }
  void Close();

 private:
  int fd_ = -1;
  unsigned epoch_ = 0;
};

// Whether the calling thread is inside fork(), from hvd's first handler to its last one.
bool InFork();

// A mutex for a ForkLock. The thread that forks holds it inside fork(), and passes: a handler of another library may
// allocate there.
class ForkMutex {
 public:
  void lock() {
    if (!InFork()) mutex_.lock();
  }
  void unlock() {
    if (!InFork()) mutex_.unlock();
  }

 private:
  std::mutex mutex_;
};

// Shared memory that a forked child must not share with its parent.
class ForkCopy {
 public:
  virtual ~ForkCopy() = default;
  // Called before a fork, with the lock held. Whether there is any memory to copy; then it stays where it is, also when
  // it is freed, until EndFork.
  virtual bool BeginFork() = 0;
  // Replaces it by private copies. Called in the child, while the thread of the parent that forks waits.
  virtual void CopyBlocks() = 0;
  // The child has its copies, or has died. Called in both.
  virtual void EndFork() = 0;
};

// Holds `mutex` across every fork for as long as this object lives, so that a child never inherits it locked. The
// parent has it back before the child makes its copies.
class ForkLock {
 public:
  explicit ForkLock(std::mutex& mutex) : ForkLock(Lock{&mutex, nullptr, nullptr}) {}
  ForkLock(ForkMutex& mutex, ForkCopy* copy) : ForkLock(Lock{nullptr, &mutex, copy}) {}
  ~ForkLock();
  ForkLock(const ForkLock&) = delete;
  ForkLock& operator=(const ForkLock&) = delete;

  struct Lock {
    std::mutex* plain;
    ForkMutex* passing;  // one of the two
    ForkCopy* copy;
    void Take() const { plain != nullptr ? plain->lock() : passing->lock(); }
    void Free() const { plain != nullptr ? plain->unlock() : passing->unlock(); }
  };

 private:
  explicit ForkLock(Lock lock);
  const Lock lock_;
};

}  // namespace hvd::transport::shm
