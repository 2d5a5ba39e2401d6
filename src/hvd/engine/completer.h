// SPDX-License-Identifier: Apache-2.0
#pragma once
// The completion thread: runs code that is not ours (completion callbacks, allocation callbacks), in order. Such code
// may wait for Python's lock or for minutes; the loop does not notice. Started at the first job.
//
// Thread safety: all functions, any thread.

#include <condition_variable>
#include <deque>
#include <functional>
#include <memory>
#include <mutex>
#include <thread>

namespace hvd::engine {

class Completer {
 public:
  // Runs what is queued, then ends the thread. From inside a job it only says so, and the thread ends by itself.
  ~Completer();
  void Post(std::function<void()> job);
  bool OnThisThread() const;

 private:
  struct State {
    std::mutex mutex;
    std::condition_variable changed;
    std::deque<std::function<void()>> jobs;
    bool stop = false;
  };
  static void Main(std::shared_ptr<State> state);

  std::shared_ptr<State> state_ = std::make_shared<State>();
  std::thread thread_;
};

}  // namespace hvd::engine
