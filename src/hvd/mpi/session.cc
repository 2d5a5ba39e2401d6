// SPDX-License-Identifier: Apache-2.0
#include "hvd/mpi/session.h"

#include <algorithm>
#include <atomic>
#include <condition_variable>
#include <deque>
#include <memory>
#include <mutex>
#include <thread>
#include <vector>

#include "hvd/base/at_exit.h"

namespace hvd::mpi {
namespace {

constexpr size_t kMostText = 1024;

// How long an exit waits for calls that other ranks have not come to.
constexpr Duration kLastCalls = std::chrono::seconds(10);

std::atomic<bool> g_distrusted{false};

// The thread of InOrder, while there is work.
class Queue {
 public:
  static Queue& Process() {
    static Queue* const queue = new Queue;  // never destroyed: its thread may be waiting for a rank that is gone
    return *queue;
  }

  void Add(std::function<void()> work) {
    const std::lock_guard lock(mutex_);
    work_.push_back(std::move(work));
    if (!running_) std::thread([this] { Run(); }).detach();
    running_ = true;
  }

  // False: it is still at it.
  bool WaitUntil(Time deadline) {
    std::unique_lock lock(mutex_);
    return idle_.wait_until(lock, deadline, [&] { return !running_; });
  }

 private:
  void Run() {
    std::unique_lock lock(mutex_);
    while (!work_.empty()) {
      const std::function<void()> work = std::move(work_.front());
      work_.pop_front();
      lock.unlock();
      work();
      lock.lock();
    }
    running_ = false;
    idle_.notify_all();
  }

  std::mutex mutex_;
  std::condition_variable idle_;
  std::deque<std::function<void()>> work_;
  bool running_ = false;
};

}  // namespace

Status Begin(Library* library, Threads wanted) {
  static std::mutex mutex;
  const std::lock_guard lock(mutex);
  if (library->Finalized()) {
    return Fail(Code::kFailedPrecondition, "MPI_Finalize was called already, and MPI cannot be used after that");
  }
  if (library->Initialized()) return {};
  HVD_RETURN_IF_ERROR(library->Init(wanted));
  AtExit([library](int status) {
    if (library->Finalized()) return;
    // All ranks wait for each other there. One that failed does not come: then the launcher ends the job, Open MPI's by
    // itself. MPICH's does not if that rank is on another host.
    if (status == 0 && !g_distrusted.load() && Queue::Process().WaitUntil(SteadyClock().Now() + kLastCalls)) {
      return library->Finalize();
    }
    if (library->family() == Family::kMpich) library->Abort(status == 0 ? 1 : status);
  });
  return {};
}

void InOrder(std::function<void()> work) { Queue::Process().Add(std::move(work)); }

void Distrust() { g_distrusted.store(true); }

Result<std::string> Share(Library* library, Handle comm, const std::string& text, Time deadline) {
  // On the program's communicator: nothing else runs there while all ranks are in init. The buffer outlives a broadcast
  // that does not end in time.
  if (!Queue::Process().WaitUntil(deadline)) {
    return Fail(Code::kDeadlineExceeded, "not all ranks came to what MPI did before this start");
  }
  auto buffer = std::make_unique<std::vector<char>>(kMostText, '\0');
  std::copy_n(text.begin(), std::min(text.size(), kMostText - 1), buffer->begin());
  HVD_ASSIGN_OR_RETURN(Handle request, library->Broadcast(buffer->data(), kMostText, 0, comm));
  auto pause = std::chrono::microseconds(10);
  while (true) {
    const auto done = library->Test(&request);
    if (!done) return Fail(done.error());
    if (*done) return std::string(buffer->data());
    if (SteadyClock().Now() > deadline) break;
    std::this_thread::sleep_for(pause);
    pause = std::min(pause * 2, std::chrono::microseconds(2000));
  }
  (void)buffer.release();
  return Fail(Code::kDeadlineExceeded, "not all ranks came to MPI's broadcast in time");
}

}  // namespace hvd::mpi
