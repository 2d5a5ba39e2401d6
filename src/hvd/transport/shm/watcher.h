// SPDX-License-Identifier: Apache-2.0
#pragma once
// The small thread that notices the death of local ranks, and by whose own death others notice this rank's.
//
// It owns this rank's life word through a robust list of its own, and sleeps in futex_waitv on the life words of the
// others, on the board's change counter and on its stop word. The kernel wakes one waiter per death, about 0.1 ms after
// it whatever the victim's size; that one writes state and cause and wakes the rest. Where futex_waitv is missing a
// second thread waits on the next living neighbour's word alone: round the circle every rank is still watched by one.
//
// Thread safety: Start and Stop by the owner. `on_change` runs on the watcher's thread, must not block, and may run
// more often than there are changes; it does not run any more once Stop returned.

#include <pthread.h>

#include <atomic>
#include <cstdint>
#include <functional>
#include <vector>

#include "hvd/base/result.h"
#include "hvd/transport/shm/board.h"

namespace hvd::transport::shm {

class Watcher {
 public:
  Watcher(Board& board, std::function<void()> on_change, bool without_waitv);
  ~Watcher() { Stop(); }
  Watcher(const Watcher&) = delete;
  Watcher& operator=(const Watcher&) = delete;

  // When it returns, this rank's death would be noticed by those who watch.
  Status Start();
  // Starts to watch the others; call when all of them have started.
  void Begin();
  // Idempotent, and harmless in a forked child. Say goodbye first, or the end of the thread looks like a death.
  void Stop();

 private:
  // As the kernel reads them (linux/futex.h): the list of robust words of one thread.
  struct RobustNode {
    RobustNode* next;
  };
  struct RobustHead {
    RobustNode list;
    long futex_offset;
    RobustNode* pending;
  };

  static void* WatchMain(void* self);
  static void* NeighbourMain(void* self);
  Status StartThread(pthread_t* thread, void* (*entry)(void*));
  void Watch();
  void WatchNeighbour();
  void OwnLifeWord();
  void DisownLifeWord();
  // Writes down what the life words of the watched ranks say; whether anything was new.
  bool Scan();
  bool Examine(int local);
  void SleepOnAll(uint32_t seen);
  void AddWaiter(FutexWord& word, uint32_t value);
  bool AddHeldWord(FutexWord& word);

  Board& board_;
  const std::function<void()> on_change_;
  const unsigned epoch_;
  const bool waitv_;
  std::vector<int> watched_;         // local indices
  std::vector<bool> token_awaited_;  // by local index: dead, and its token was still held
  std::vector<FutexWaiter> waiters_;
  RobustHead robust_{};
  RobustNode node_{};
  FutexWord stop_{0};
  FutexWord owned_{0};
  FutexWord begun_{0};
  std::atomic<bool> neighbour_done_{false};
  bool running_ = false;
  bool neighbour_running_ = false;
  pthread_t thread_{};
  pthread_t neighbour_thread_{};
};

}  // namespace hvd::transport::shm
