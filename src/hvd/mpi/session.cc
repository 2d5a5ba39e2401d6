// SPDX-License-Identifier: Apache-2.0
#include "hvd/mpi/session.h"

#include <algorithm>
#include <memory>
#include <mutex>
#include <numeric>
#include <thread>
#include <vector>

#include "hvd/base/clean_exit.h"

namespace hvd::mpi {
namespace {

constexpr size_t kMostText = 1024;

}  // namespace

Status Begin(Library* library, Threads wanted) {
  static std::mutex mutex;
  const std::lock_guard lock(mutex);
  if (library->Finalized()) {
    return Fail(Code::kFailedPrecondition, "MPI_Finalize was called already, and MPI cannot be used after that");
  }
  if (library->Initialized()) return {};
  HVD_RETURN_IF_ERROR(library->Init(wanted));
  // All ranks wait for each other there. One that failed does not come: then the launcher ends the job.
  AtCleanExit([library] {
    if (!library->Finalized()) library->Finalize();
  });
  return {};
}

Result<std::string> Share(Library* library, Handle comm, const std::string& text, Time deadline) {
  // On the program's communicator: nothing else runs there while all ranks are in init. The buffer outlives a broadcast
  // that does not end in time.
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
