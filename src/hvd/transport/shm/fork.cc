// SPDX-License-Identifier: Apache-2.0
#include "hvd/transport/shm/fork.h"

#include <fcntl.h>
#include <pthread.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <utility>
#include <vector>

namespace hvd::transport::shm {
namespace {

std::atomic<unsigned> g_epoch{0};

// What a descriptor was when it became ours.
struct Known {
  bool ours = false;
  dev_t device = 0;
  ino_t inode = 0;
};

// Never destroyed: forks may happen while the process exits.
struct Registry {
  std::mutex mutex;
  std::vector<Known> closed_in_child;  // by descriptor number
  struct Lock {
    std::mutex* mutex;
    ForkCopy* copy;
  };
  std::vector<Lock> locks;
  int copied[2] = {-1, -1};  // a pipe whose end tells the parent that the child has its copies, or has died
};

Registry& TheRegistry();

void Prepare() {
  Registry& registry = TheRegistry();
  registry.mutex.lock();
  bool copies = false;
  for (const Registry::Lock& lock : registry.locks) {
    lock.mutex->lock();
    copies = copies || (lock.copy != nullptr && lock.copy->HasBlocks());
  }
  if (copies && ::pipe2(registry.copied, O_CLOEXEC) != 0) registry.copied[0] = registry.copied[1] = -1;
}

void Unlock() {
  Registry& registry = TheRegistry();
  for (auto lock = registry.locks.rbegin(); lock != registry.locks.rend(); ++lock) lock->mutex->unlock();
  registry.mutex.unlock();
}

void ClosePipe(Registry& registry, int end) {
  if (registry.copied[end] >= 0) ::close(std::exchange(registry.copied[end], -1));
}

// A store of the parent must not reach the child's copies.
void Parent() {
  Registry& registry = TheRegistry();
  ClosePipe(registry, 1);
  char nothing = 0;
  while (registry.copied[0] >= 0 && ::read(registry.copied[0], &nothing, 1) < 0 && errno == EINTR) continue;
  ClosePipe(registry, 0);
  Unlock();
}

void Child() {
  Registry& registry = TheRegistry();
  g_epoch.fetch_add(1, std::memory_order_relaxed);
  for (size_t fd = 0; fd < registry.closed_in_child.size(); ++fd) {
    const Known known = std::exchange(registry.closed_in_child[fd], Known{});
    struct stat now {};
    if (!known.ours || ::fstat(static_cast<int>(fd), &now) != 0) continue;
    // A program that has closed what was ours may use the number for a file of its own.
    if (now.st_dev == known.device && now.st_ino == known.inode) ::close(static_cast<int>(fd));
  }
  for (const Registry::Lock& lock : registry.locks) {
    if (lock.copy != nullptr) lock.copy->CopyBlocks();
  }
  ClosePipe(registry, 0);
  ClosePipe(registry, 1);
  Unlock();
}

Registry& TheRegistry() {
  static Registry* const registry = [] {
    auto* made = new Registry;
    ::pthread_atfork(&Prepare, &Parent, &Child);
    return made;
  }();
  return *registry;
}

}  // namespace

unsigned ForkEpoch() { return g_epoch.load(std::memory_order_relaxed); }

Fd::Fd(int fd) : fd_(fd) {
  Registry& registry = TheRegistry();
  const std::lock_guard lock(registry.mutex);
  epoch_ = ForkEpoch();
  if (fd < 0) return;
  const auto index = static_cast<size_t>(fd);
  if (registry.closed_in_child.size() <= index) registry.closed_in_child.resize(index + 1);
  struct stat info {};
  if (::fstat(fd, &info) != 0) return;
  registry.closed_in_child[index] = {true, info.st_dev, info.st_ino};
}

Fd& Fd::operator=(Fd&& other) noexcept {
  if (this == &other) return *this;
  Close();
  fd_ = std::exchange(other.fd_, -1);
  epoch_ = other.epoch_;
  return *this;
}

void Fd::Close() {
  if (fd_ < 0) return;
  Registry& registry = TheRegistry();
  const std::lock_guard lock(registry.mutex);  // no fork between the two halves
  if (epoch_ == ForkEpoch()) {
    registry.closed_in_child[static_cast<size_t>(fd_)] = {};
    ::close(fd_);
  }
  fd_ = -1;
}

ForkLock::ForkLock(std::mutex& mutex, ForkCopy* copy) : mutex_(mutex) {
  Registry& registry = TheRegistry();
  const std::lock_guard lock(registry.mutex);
  registry.locks.push_back({&mutex_, copy});
}

ForkLock::~ForkLock() {
  Registry& registry = TheRegistry();
  const std::lock_guard lock(registry.mutex);
  std::erase_if(registry.locks, [this](const Registry::Lock& lock) { return lock.mutex == &mutex_; });
}

}  // namespace hvd::transport::shm
