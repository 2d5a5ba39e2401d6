// SPDX-License-Identifier: Apache-2.0
#include "hvd/engine/dump_writer.h"

#include <pthread.h>
#include <unistd.h>

#include <cerrno>
#include <chrono>
#include <condition_variable>
#include <cstring>
#include <mutex>
#include <optional>
#include <string_view>
#include <thread>
#include <utility>

#include "hvd/base/log.h"
#include "hvd/base/signal_mask.h"
#include "hvd/trace/dump_file.h"

namespace hvd::engine {

struct DumpWriter::State {
  const std::string path;
  trace::DumpFile file;
  std::mutex mutex;
  std::condition_variable changed;
  std::optional<std::string> next;
  bool begun = false;
  bool writing = false;
  bool stop = false;

  void Save(std::string_view text) {
    const int fd = file.Begin();
    bool good = fd >= 0;
    while (good && !text.empty()) {
      const ssize_t written = ::write(fd, text.data(), text.size());
      if (written > 0) text.remove_prefix(static_cast<size_t>(written));
      good = written > 0 || (written < 0 && errno == EINTR);
    }
    if (fd >= 0) good = file.Finish(fd, good);
    if (!good) log::Warning("cannot write {}: {}", path, std::strerror(errno));
  }

  void Main() {
    std::unique_lock lock(mutex);
    for (;;) {
      changed.wait(lock, [&] { return stop || next.has_value(); });
      if (!next) return;
      const std::string text = *std::exchange(next, std::nullopt);
      writing = true;
      lock.unlock();
      Save(text);
      lock.lock();
      writing = false;
      changed.notify_all();
    }
  }
};

DumpWriter::DumpWriter(std::string folder, std::string path)
    : state_(std::make_shared<State>(path, trace::DumpFile(std::move(folder), path))) {}

DumpWriter::~DumpWriter() {
  constexpr auto kPatience = std::chrono::seconds(2);
  std::unique_lock lock(state_->mutex);
  state_->changed.wait_for(lock, kPatience, [&] { return !state_->next && !state_->writing; });
  state_->stop = true;
  state_->changed.notify_all();
}

void DumpWriter::Write(std::string text) {
  const std::lock_guard lock(state_->mutex);
  state_->next = std::move(text);
  if (!std::exchange(state_->begun, true)) {
    const SignalsBlocked blocked;
    std::thread thread([state = state_] { state->Main(); });
    pthread_setname_np(thread.native_handle(), "hvd-dump");
    thread.detach();
  }
  state_->changed.notify_all();
}

}  // namespace hvd::engine
