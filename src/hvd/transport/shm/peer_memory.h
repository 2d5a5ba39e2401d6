// SPDX-License-Identifier: Apache-2.0
#pragma once
// Memory of other processes of this host that is in no arena, read by process_vm_readv. The kernel decides who may:
// mostly processes of one user, unless a sandbox or a security module says no. Nothing is asked of it beforehand, and
// no permission is given to anybody.
//
// Whether it works is seen by reading a word of every peer, the probe word, whose value the peer has written on the
// board: so a pid that means another process here (in another pid namespace) is noticed.
//
// Thread safety: all.

#include <atomic>
#include <cstddef>
#include <cstdint>

#include "hvd/transport/shm/board.h"

namespace hvd::transport::shm {

class PeerMemory {
 public:
  // Puts this process's probe word on the board.
  explicit PeerMemory(Board& board);
  PeerMemory(const PeerMemory&) = delete;
  PeerMemory& operator=(const PeerMemory&) = delete;

  // All probe words are on the board: tries to read them, and says there whether it could.
  void Probe();

  // As the functions of Window.
  bool CanReadPeers();
  bool Readable(const void* memory, size_t bytes) const;
  int Read(int local, uint64_t address, void* to, size_t bytes) const;

 private:
  Board& board_;
  uint64_t probe_word_ = 0;
  std::atomic<bool> all_can_{false};
};

}  // namespace hvd::transport::shm
