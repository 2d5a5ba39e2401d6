// SPDX-License-Identifier: Apache-2.0
#include "hvd/transport/shm/fork.h"

#include <pthread.h>
#include <unistd.h>

#include <algorithm>
#include <vector>

namespace hvd::transport::shm {
namespace {

std::atomic<unsigned> g_epoch{0};

// Never destroyed: forks may happen while the process exits.
struct Registry {
  std::mutex mutex;
  std::vector<bool> closed_in_child;  // by descriptor number
  std::vector<std::mutex*> locks;
};

Registry& TheRegistry();

void Prepare() {
  Registry& registry = TheRegistry();
  registry.mutex.lock();
  for (std::mutex* lock : registry.locks) lock->lock();
}

void Unlock() {
  Registry& registry = TheRegistry();
  for (auto lock = registry.locks.rbegin(); lock != registry.locks.rend(); ++lock) (*lock)->unlock();
  registry.mutex.unlock();
}

void Child() {
  Registry& registry = TheRegistry();
  g_epoch.fetch_add(1, std::memory_order_relaxed);
  for (size_t fd = 0; fd < registry.closed_in_child.size(); ++fd) {
    if (registry.closed_in_child[fd]) ::close(static_cast<int>(fd));
    registry.closed_in_child[fd] = false;
  }
  Unlock();
}

Registry& TheRegistry() {
  static Registry* const registry = [] {
    auto* made = new Registry;
    ::pthread_atfork(&Prepare, &Unlock, &Child);
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
  registry.closed_in_child[index] = true;
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
    registry.closed_in_child[static_cast<size_t>(fd_)] = false;
    ::close(fd_);
  }
  fd_ = -1;
}

ForkLock::ForkLock(std::mutex& mutex) : mutex_(mutex) {
  Registry& registry = TheRegistry();
  const std::lock_guard lock(registry.mutex);
  registry.locks.push_back(&mutex_);
}

ForkLock::~ForkLock() {
  Registry& registry = TheRegistry();
  const std::lock_guard lock(registry.mutex);
  std::erase(registry.locks, &mutex_);
}

}  // namespace hvd::transport::shm
