// SPDX-License-Identifier: Apache-2.0
#include "hvd/mpi/session.h"

#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <condition_variable>
#include <cstdio>
#include <deque>
#include <future>
#include <memory>
#include <mutex>
#include <thread>
#include <vector>

#include "hvd/base/at_exit.h"
#include "hvd/base/signal_mask.h"

namespace hvd::mpi {
namespace {

constexpr size_t kMostText = 1024;

// How long an exit waits for calls that other ranks have not come to.
constexpr Duration kLastCalls = std::chrono::seconds(10);
// For the launcher to see the exit of the rank that was the cause.
constexpr Duration kAfterTheCause = std::chrono::milliseconds(500);

std::atomic<bool> g_distrusted{false};
std::atomic<bool> g_others_left{false};

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

struct Initialising {
  std::promise<Status> promise;
  const std::shared_future<Status> result = promise.get_future().share();
};

tl::unexpected<Error> AlreadyFinalized() {
  return Fail(Code::kFailedPrecondition, "MPI_Finalize was called already, and MPI cannot be used after that");
}

// A thread is inside a call of MPI's that does not come back: what libraries do at an exit must not run beside it.
[[noreturn]] void LeaveAtOnce(int status) {
  (void)std::fflush(nullptr);
  ::_exit(status);
}

// At the exit of this process.
void Leave(Library* library, const Initialising& initialising, int status) {
  if (initialising.result.wait_for(Duration::zero()) != std::future_status::ready) LeaveAtOnce(status);
  if (!initialising.result.get() || library->Finalized()) return;
  // All ranks wait for each other there. One that failed does not come: then the launcher ends the job, Open MPI's by
  // itself. MPICH's does not if that rank is on another host.
  if (status == 0 && !g_distrusted.load() && Queue::Process().WaitUntil(SteadyClock().Now() + kLastCalls)) {
    return library->Finalize();
  }
  // Whoever failed because another rank did lets that one be seen first: its exit code is the job's.
  if (status != 0 && (g_distrusted.load() || g_others_left.load())) std::this_thread::sleep_for(kAfterTheCause);
  if (library->family() == Family::kMpich) library->Abort(status == 0 ? 1 : status);
  if (!Queue::Process().WaitUntil(SteadyClock().Now())) LeaveAtOnce(status);
}

}  // namespace

Status Begin(Library* library, Threads wanted, Time deadline) {
  static std::mutex mutex;
  static Initialising* initialising = nullptr;  // never destroyed: its thread may never come back
  const std::lock_guard lock(mutex);
  // What MPI says of itself while it is being initialised differs.
  if (initialising == nullptr) {
    if (library->Finalized()) return AlreadyFinalized();
    if (library->Initialized()) return {};
    initialising = new Initialising;
    AtExit([library](int status) { Leave(library, *initialising, status); });
    const SignalsBlocked blocked;
    std::thread([library, wanted] { initialising->promise.set_value(library->Init(wanted)); }).detach();
  }
  if (initialising->result.wait_until(deadline) != std::future_status::ready) {
    return Fail(Code::kDeadlineExceeded,
                "MPI_Init did not come back in time: it waits until every process that the launcher started has called "
                "hvd.init() or MPI_Init");
  }
  HVD_RETURN_IF_ERROR(initialising->result.get());
  if (library->Finalized()) return AlreadyFinalized();
  return {};
}

Result<Handle> MakeComm(Library* library, Handle comm, std::span<const int> ranks, int tag, Time deadline) {
  const auto promise = std::make_shared<std::promise<Result<Handle>>>();
  std::future<Result<Handle>> made = promise->get_future();
  InOrder([promise, library, comm, members = std::vector<int>(ranks.begin(), ranks.end()), tag] {
    promise->set_value(library->MakeComm(comm, members, tag));
  });
  if (made.wait_until(deadline) == std::future_status::ready) return made.get();
  return Fail(Code::kDeadlineExceeded, "MPI_Comm_create_group did not come back in time");
}

void InOrder(std::function<void()> work) { Queue::Process().Add(std::move(work)); }

void Distrust() { g_distrusted.store(true); }

void OthersLeft() { g_others_left.store(true); }

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
  return Fail(Code::kDeadlineExceeded,
              "not all ranks called hvd.init() in time: MPI's broadcast of where to meet did not get through");
}

}  // namespace hvd::mpi
