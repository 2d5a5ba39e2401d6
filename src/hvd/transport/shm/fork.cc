// SPDX-License-Identifier: Apache-2.0
#include "hvd/transport/shm/fork.h"

#include <dlfcn.h>
#include <fcntl.h>
#include <pthread.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <utility>
#include <vector>

#include "hvd/heap/source.h"

namespace hvd::transport::shm {
namespace {

std::atomic<unsigned> g_epoch{0};

// What a descriptor was when it became ours.
struct Known {
  bool ours = false;
  dev_t device = 0;
  ino_t inode = 0;
};

thread_local bool t_in_fork = false;

// Never destroyed: forks may happen while the process exits.
struct Registry {
  std::mutex mutex;
  std::vector<Known> closed_in_child;  // by descriptor number
  std::vector<ForkLock::Lock> locks;
  bool copies = false;       // the child makes some
  int copied[2] = {-1, -1};  // a pipe whose end tells the parent that the child has its copies, or has died
  int spare[2] = {-1, -1};   // the same, for a fork when no descriptors are left
};

Registry& TheRegistry();

void MakePipe(int (&ends)[2]) {
  if (ends[0] < 0 && ::pipe2(ends, O_CLOEXEC) != 0) ends[0] = ends[1] = -1;
}

void Prepare() {
  Registry& registry = TheRegistry();
  registry.mutex.lock();
  registry.copies = false;
  for (const ForkLock::Lock& lock : registry.locks) {
    lock.Take();
    if (lock.copy != nullptr && lock.copy->BeginFork()) registry.copies = true;
  }
  t_in_fork = true;
  if (!registry.copies) return;
  MakePipe(registry.copied);
  if (registry.copied[0] < 0) std::swap(registry.copied, registry.spare);
}

void Unlock(Registry& registry) {
  t_in_fork = false;
  for (auto lock = registry.locks.rbegin(); lock != registry.locks.rend(); ++lock) lock->Free();
}

void EndFork(Registry& registry) {
  if (!registry.copies) return;
  for (const ForkLock::Lock& lock : registry.locks) {
    if (lock.copy != nullptr) lock.copy->EndFork();
  }
}

void Close(int& fd) {
  if (fd >= 0) ::close(std::exchange(fd, -1));
}

// What the thread that forks stores must not reach the child's copies. Other threads go on.
void Parent() {
  Registry& registry = TheRegistry();
  Unlock(registry);
  Close(registry.copied[1]);
  char nothing = 0;
  while (registry.copied[0] >= 0 && ::read(registry.copied[0], &nothing, 1) < 0 && errno == EINTR) continue;
  Close(registry.copied[0]);
  if (registry.copies) MakePipe(registry.spare);
  EndFork(registry);
  registry.mutex.unlock();
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
  if (registry.copies) {
    for (const ForkLock::Lock& lock : registry.locks) {
      if (lock.copy != nullptr) lock.copy->CopyBlocks();
    }
  }
  // Children of this process copy nothing, so it needs no pipe.
  for (int* fd : {&registry.copied[0], &registry.copied[1], &registry.spare[0], &registry.spare[1]}) Close(*fd);
  EndFork(registry);
  Unlock(registry);
  registry.mutex.unlock();
}

Registry& TheRegistry() {
  static Registry* const registry = [] {
    auto* made = new Registry;
    const auto first = reinterpret_cast<hvd_heap_at_fork_fn>(::dlsym(RTLD_DEFAULT, "hvd_heap_at_fork"));
    (first != nullptr ? first : &::pthread_atfork)(&Prepare, &Parent, &Child);
    return made;
  }();
  return *registry;
}

}  // namespace

bool InFork() { return t_in_fork; }

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

ForkLock::ForkLock(Lock lock) : lock_(lock) {
  Registry& registry = TheRegistry();
  const std::lock_guard guard(registry.mutex);
  registry.locks.push_back(lock_);
  if (lock_.copy != nullptr) MakePipe(registry.spare);
}

ForkLock::~ForkLock() {
  Registry& registry = TheRegistry();
  const std::lock_guard guard(registry.mutex);
  std::erase_if(registry.locks,
                [this](const Lock& lock) { return lock.plain == lock_.plain && lock.passing == lock_.passing; });
}

}  // namespace hvd::transport::shm
