// SPDX-License-Identifier: Apache-2.0
#include "hvd/transport/shm/peer_memory.h"

#include <sys/prctl.h>
#include <sys/random.h>
#include <sys/uio.h>
#include <unistd.h>

#include <cerrno>

#include "hvd/base/log.h"

namespace hvd::transport::shm {
namespace {

// 0, or errno.
int ReadProcess(int pid, uint64_t address, void* to, size_t bytes) {
  auto* at = static_cast<std::byte*>(to);
  while (bytes > 0) {
    const iovec here{at, bytes};
    const iovec there{reinterpret_cast<void*>(address), bytes};  // NOLINT: it is another process's
    const ssize_t got = ::process_vm_readv(pid, &here, 1, &there, 1, 0);
    if (got < 0) return errno;
    if (got == 0) return EFAULT;
    at += got;
    address += static_cast<uint64_t>(got);
    bytes -= static_cast<size_t>(got);
  }
  return 0;
}

}  // namespace

PeerMemory::PeerMemory(Board& board) : board_(board) {
  // Without a random value there is no probe word, and peers do not read.
  if (::getrandom(&probe_word_, sizeof probe_word_, GRND_NONBLOCK) != sizeof probe_word_) return;
  board_.SetProbeWord({reinterpret_cast<uint64_t>(&probe_word_), probe_word_});
}

void PeerMemory::Probe() {
  for (int local = 0; local < board_.count(); ++local) {
    const Board::ProbeWord word = board_.probe_word(local);
    uint64_t seen = 0;
    const int error = word.address == 0 ? ENOTSUP : ReadProcess(board_.pid(local), word.address, &seen, sizeof seen);
    if (error == 0 && seen == word.value) continue;
    log::Debug(
        "The memory of local rank {} cannot be read by process_vm_readv (error {}): data that is in no arena is "
        "copied instead.",
        local, error);
    return;
  }
  board_.SetReads();
}

bool PeerMemory::CanReadPeers() {
  // Who becomes another user, or does not want to be looked at, is not dumpable any more.
  if (::prctl(PR_GET_DUMPABLE) != 1) return false;
  if (all_can_.load(std::memory_order_relaxed)) return true;
  for (int local = 0; local < board_.count(); ++local) {
    if (!board_.reads(local)) return false;
  }
  all_can_.store(true, std::memory_order_relaxed);
  return true;
}

bool PeerMemory::Readable(const void* memory, size_t bytes) const {
  if (bytes == 0) return true;
  auto* const first = static_cast<std::byte*>(const_cast<void*>(memory));
  std::byte ends[2];
  const iovec here{ends, sizeof ends};
  const iovec there[] = {{first, 1}, {first + bytes - 1, 1}};
  return ::process_vm_readv(board_.pid(board_.self()), &here, 1, there, 2, 0) == sizeof ends;
}

int PeerMemory::Read(int local, uint64_t address, void* to, size_t bytes) const {
  const int error = ReadProcess(board_.pid(local), address, to, bytes);
  // What was read after its end may be of whoever has its pid now.
  return board_.ended(local) ? ESRCH : error;
}

}  // namespace hvd::transport::shm
