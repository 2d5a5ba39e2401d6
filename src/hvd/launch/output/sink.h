// SPDX-License-Identifier: Apache-2.0
#pragma once
// Writes to the launcher's own stdout or stderr without ever waiting for it: a terminal may be slow or stopped, and
// training must not stop for that. A thread writes; what does not fit into a bounded queue is dropped, whole lines at a
// time, and the reader is told how many.
//
// Thread safety: Flush from one thread; Write from any.
// Lifetime: the destructor waits for nothing. A thread that is stuck in write(2) is left behind; the program ends.

#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <string_view>

#include "hvd/base/clock.h"

namespace hvd::launch {

class Sink {
 public:
  static constexpr size_t kMostBytes = 16 << 20;

  // The descriptor stays the caller's. `on_reader_gone` is called once, on the writing thread, if nobody reads any
  // more.
  explicit Sink(int fd, size_t most_bytes = kMostBytes, std::function<void()> on_reader_gone = {});
  ~Sink();
  Sink(const Sink&) = delete;
  Sink& operator=(const Sink&) = delete;

  // One or more whole lines.
  void Write(std::string_view lines);
  // Waits until everything is written. False: nothing moved for so long.
  bool Flush(Duration patience);
  // Why nothing is written any more, such as ENOSPC; 0 while it goes well, or if whoever read it has gone (EPIPE).
  int failure() const;
  // Lines that were dropped because the reader was too slow.
  uint64_t dropped() const;

 private:
  struct Shared;
  std::shared_ptr<Shared> shared_;
};

}  // namespace hvd::launch
