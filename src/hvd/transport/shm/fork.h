// SPDX-License-Identifier: Apache-2.0
#pragma once
// What happens to this library's descriptors and locks when the program forks.
//
// A forked child shares the parent's shared memory but is no rank. Descriptors owned by Fd are closed there, so that a
// child that outlives its parent keeps neither doorbells nor arenas alive; locks named by a ForkLock are free there.
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

// Shared memory that a forked child must not share with its parent.
class ForkCopy {
 public:
  virtual ~ForkCopy() = default;
  // Whether there is any now. Called before a fork.
  virtual bool HasBlocks() const = 0;
  // Replaces it by private copies. Called in the child, while the thread of the parent that forks waits.
  virtual void CopyBlocks() = 0;
};

// Holds `mutex` across every fork for as long as this object lives, so that a child never inherits it locked. `copy` is
// called with the lock held.
class ForkLock {
 public:
  explicit ForkLock(std::mutex& mutex, ForkCopy* copy = nullptr);
  ~ForkLock();
  ForkLock(const ForkLock&) = delete;
  ForkLock& operator=(const ForkLock&) = delete;

 private:
  std::mutex& mutex_;
};

}  // namespace hvd::transport::shm
