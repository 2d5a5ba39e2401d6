// SPDX-License-Identifier: Apache-2.0
#include "hvd/engine/completer.h"

namespace hvd::engine {

Completer::~Completer() {
  {
    std::lock_guard lock(state_->mutex);
    state_->stop = true;
  }
  state_->changed.notify_all();
  if (!thread_.joinable()) return;
  OnThisThread() ? thread_.detach() : thread_.join();
}

void Completer::Post(std::function<void()> job) {
  std::lock_guard lock(state_->mutex);
  state_->jobs.push_back(std::move(job));
  if (!thread_.joinable()) thread_ = std::thread(&Completer::Main, state_);
  state_->changed.notify_all();
}

bool Completer::OnThisThread() const { return thread_.get_id() == std::this_thread::get_id(); }

void Completer::Main(std::shared_ptr<State> state) {
  std::unique_lock lock(state->mutex);
  for (;;) {
    state->changed.wait(lock, [&] { return state->stop || !state->jobs.empty(); });
    if (state->jobs.empty()) return;
    std::function<void()> job = std::move(state->jobs.front());
    state->jobs.pop_front();
    lock.unlock();
    job();
    job = nullptr;
    lock.lock();
  }
}

}  // namespace hvd::engine
