// SPDX-License-Identifier: Apache-2.0
#include "hvd/launch/output/sink.h"

#include <fmt/format.h>
#include <poll.h>
#include <pthread.h>
#include <signal.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <condition_variable>
#include <mutex>
#include <thread>
#include <utility>

namespace hvd::launch {

struct Sink::Shared {
  Shared(int fd, size_t most, std::function<void()> on_reader_gone)
      : fd(fd), most(most), on_reader_gone(std::move(on_reader_gone)) {}

  void Run();
  // An errno: nothing more can be written.
  int WriteAll(std::string_view bytes);
  void ConfessDrops();  // with the mutex

  const int fd;
  const size_t most;
  const std::function<void()> on_reader_gone;
  std::mutex mutex;
  std::condition_variable changed;
  std::string queue;         // guarded by mutex, as the rest
  size_t writing = 0;        // bytes that the thread has taken
  uint64_t dropped = 0;      // lines that the reader was not told of yet
  uint64_t all_dropped = 0;  // lines
  uint64_t written = 0;      // bytes
  int failure = 0;
  bool stop = false;
};

Sink::Sink(int fd, size_t most_bytes, std::function<void()> on_reader_gone)
    : shared_(std::make_shared<Shared>(fd, most_bytes, std::move(on_reader_gone))) {
  // The program's signals are not for this thread.
  sigset_t all, before;
  sigfillset(&all);
  pthread_sigmask(SIG_SETMASK, &all, &before);
  std::thread([shared = shared_] { shared->Run(); }).detach();
  pthread_sigmask(SIG_SETMASK, &before, nullptr);
}

Sink::~Sink() {
  const std::lock_guard lock(shared_->mutex);
  shared_->stop = true;
  shared_->changed.notify_all();
}

void Sink::Write(std::string_view lines) {
  const std::lock_guard lock(shared_->mutex);
  if (shared_->queue.size() + shared_->writing + lines.size() > shared_->most) {
    const auto count = static_cast<uint64_t>(std::ranges::count(lines, '\n'));
    shared_->dropped += count;
    shared_->all_dropped += count;
    return;
  }
  shared_->ConfessDrops();
  shared_->queue += lines;
  shared_->changed.notify_all();
}

bool Sink::Flush(Duration patience) {
  std::unique_lock lock(shared_->mutex);
  shared_->ConfessDrops();
  shared_->changed.notify_all();
  const auto done = [&] { return shared_->queue.empty() && shared_->writing == 0; };
  while (!done()) {
    const uint64_t before = shared_->written;
    if (!shared_->changed.wait_for(lock, patience, [&] { return done() || shared_->written != before; })) return false;
  }
  return true;
}

void Sink::Shared::ConfessDrops() {
  if (dropped == 0) return;
  queue += fmt::format("horovodrun: {} lines were dropped here, because the reader of this output is too slow\n",
                       std::exchange(dropped, 0));
}

void Sink::Shared::Run() {
  std::string batch;
  std::unique_lock lock(mutex);
  while (true) {
    changed.wait(lock, [&] { return stop || !queue.empty(); });
    if (queue.empty()) return;
    batch.clear();
    batch.swap(queue);
    writing = batch.size();
    lock.unlock();
    const int error = WriteAll(batch);
    lock.lock();
    writing = 0;
    changed.notify_all();
    if (error != 0) {
      failure = error == EPIPE ? 0 : error;
      if (error == EPIPE && on_reader_gone) {
        lock.unlock();
        on_reader_gone();
        lock.lock();
      }
      // Nobody will ever see what comes: take and forget it.
      while (!stop) {
        queue.clear();
        dropped = 0;
        changed.notify_all();
        changed.wait(lock, [&] { return stop || !queue.empty(); });
      }
      return;
    }
  }
}

int Sink::failure() const {
  const std::lock_guard lock(shared_->mutex);
  return shared_->failure;
}

uint64_t Sink::dropped() const {
  const std::lock_guard lock(shared_->mutex);
  return shared_->all_dropped;
}

int Sink::Shared::WriteAll(std::string_view bytes) {
  while (!bytes.empty()) {
    // In pieces, so that Flush sees that they move.
    const ssize_t count = ::write(fd, bytes.data(), std::min<size_t>(bytes.size(), 64 << 10));
    if (count >= 0) {
      bytes.remove_prefix(static_cast<size_t>(count));
      const std::lock_guard lock(mutex);
      written += static_cast<uint64_t>(count);
      changed.notify_all();
    } else if (errno == EAGAIN) {
      // Somebody who shares this terminal or pipe made it non-blocking.
      pollfd waiting{fd, POLLOUT, 0};
      ::poll(&waiting, 1, -1);
    } else if (errno != EINTR) {
      return errno;
    }
  }
  return 0;
}

}  // namespace hvd::launch
