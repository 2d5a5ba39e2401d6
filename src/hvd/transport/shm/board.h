// SPDX-License-Identifier: Apache-2.0
#pragma once
// The board: a few words per local rank, in memory that all ranks of the host map. They say which ranks are alive and
// why the generation ended.
//
// life     Robust futex word with the thread id of the rank's watcher. When that thread ends for any reason, the kernel
//          sets FUTEX_OWNER_DIED in it.
// state    Alive, left (the rank said goodbye) or dead. It leaves `alive` once.
// cause    First reason for which the generation ended. One 64-bit word, so it is written as a whole or not at all.
// changes  Counter on which the watchers of all ranks sleep. It grows after every change of the words above.
// token    Robust mutex. A rank stores into its peers' memory only while one of its threads holds it.
// taken    A survivor sets it before it tries to lock a lost rank's token. A thread that locks its own token and finds
//          `taken` set gives the token back.
// fenced   The rank can never store again: its token was locked after `taken` was set.
//
// Thread safety: everything. What is marked [signal] may be called from a signal handler.
// Lifetime: memory and doorbells outlive the Board; a Board is one rank's view.

#include <pthread.h>

#include <algorithm>
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <string_view>

#include "hvd/base/result.h"
#include "hvd/base/types.h"
#include "hvd/transport/shm/futex.h"
#include "hvd/transport/window.h"

namespace hvd::transport::shm {

class Board {
 public:
  static constexpr int kMaxRanks = 256;

  static size_t Bytes(int count);
  // Writes an empty board into zeroed memory; by one rank, before the others see it.
  static Status Format(std::byte* memory, std::span<const Rank> ranks, uint64_t generation);
  // Whether this is a board of that shape.
  static Status Check(const std::byte* memory, std::span<const Rank> ranks, uint64_t generation);

  Board(std::byte* memory, int count, int self, int pid);

  int count() const { return count_; }
  int self() const { return self_; }
  int pid(int local) const { return cell(local).pid.load(std::memory_order_acquire); }
  Rank rank(int local) const { return cell(local).rank; }
  // Words by which peers can tell that they read the memory of this very process: see PeerMemory.
  struct ProbeWord {
    uint64_t address;
    uint64_t value;
  };
  void SetProbeWord(const ProbeWord& word);
  ProbeWord probe_word(int local) const;
  // Whether it could read the probe words of all.
  void SetReads() { cell(self_).reads.store(1, std::memory_order_release); }
  bool reads(int local) const { return cell(local).reads.load(std::memory_order_acquire) != 0; }
  // The kernel has marked the end of that rank: from then on its pid may be another's.
  bool ended(int local) const { return (cell(local).life.load(std::memory_order_acquire) & FUTEX_OWNER_DIED) != 0; }
  void Blame(Rank rank) { cell(self_).blamed.store(rank + 1, std::memory_order_release); }
  Rank blamed(int local) const { return std::max(cell(local).blamed.load(std::memory_order_acquire), 0) - 1; }
  // This rank's reason, if it has none yet: before the cause or goodbye that it explains. One thread at a time.
  void SetReason(std::string_view text);
  std::string reason(int local) const;

  // --- doorbells ---
  void SetBell(int local, int fd) { bells_[local].store(fd, std::memory_order_release); }
  void Ring(int local);
  void RingAll();
  void Listen(bool listens);
  void BeginSleep();
  void EndSleep();
  // From now on BeginSleep pays for the fence of those who call RingAll: dear for who sleeps often.
  void UseAsymmetricFences();

  // --- life and death ---
  FutexWord& life(int local) { return cell(local).life; }
  FutexWord& changes() { return head_->changes; }
  PeerState state(int local) const { return PeerState(cell(local).state.load(std::memory_order_acquire)); }
  // [signal] False if the rank had left `alive` before.
  bool SetState(int local, PeerState state);
  bool revoked() const { return head_->cause.load(std::memory_order_relaxed) != 0; }
  Cause cause() const;
  // Local index of the rank that wrote the cause and may have given a reason; -1: there is no cause.
  int cause_author() const;
  // [signal] Writes the cause if there is none; tells nobody.
  bool SetCause(const Cause& cause);
  // [signal] Tells every rank, asleep or not, that something changed: its watcher and its loop.
  void WakeAllRanks();
  bool quiesced(int local) const { return cell(local).quiesced.load(std::memory_order_acquire) != 0; }
  // [signal]
  void SetQuiesced() { cell(self_).quiesced.store(1, std::memory_order_release); }
  void Beat();
  uint64_t beat(int local) const { return cell(local).beat.load(std::memory_order_relaxed); }

  // --- token and fence ---
  bool TryLockToken();
  bool LockToken();
  void UnlockToken();
  // [signal] Whether the calling thread holds this rank's token.
  bool HoldsToken() const;
  // Declares the rank lost: from now on it may be fenced although it seems alive. It is asked to end itself.
  void SetLost(int local) { cell(local).lost.store(1, std::memory_order_release); }
  bool taken(int local) const { return cell(local).taken.load(std::memory_order_acquire) != 0; }
  bool lost(int local) const { return cell(local).lost.load(std::memory_order_acquire) != 0; }
  // Tries to fence a rank that is dead or lost; true once it is. Never waits.
  bool Fence(int local);
  void SetFenced(int local) { cell(local).fenced.store(1, std::memory_order_release); }
  bool fenced(int local) const { return cell(local).fenced.load(std::memory_order_acquire) != 0; }
  // The futex word inside the token's mutex, for a watcher that waits for its owner's death.
  FutexWord& token_word(int local);

 private:
  struct alignas(128) Head {
    uint64_t magic;
    uint64_t generation;
    int32_t count;
    alignas(128) std::atomic<uint64_t> cause;
    FutexWord changes;
    // One bit per rank, so that "does anybody sleep" is one load for 64 ranks.
    alignas(128) std::atomic<uint64_t> sleeping[kMaxRanks / 64];
    alignas(128) std::atomic<uint64_t> listening[kMaxRanks / 64];
  };
  struct alignas(128) Cell {
    FutexWord life;
    std::atomic<uint32_t> state, quiesced, taken, fenced, lost;
    std::atomic<int32_t> blamed;  // rank + 1; 0: nobody
    std::atomic<int32_t> pid;
    int32_t rank;
    std::atomic<uint32_t> pays;           // for fences; never taken back
    std::atomic<uint32_t> reason_bytes;   // 0: none yet
    std::atomic<uint64_t> probe_address;  // 0: none
    std::atomic<uint64_t> probe_value;
    std::atomic<uint32_t> reads;
    char reason[kMaxReasonBytes];
    alignas(128) std::atomic<uint64_t> beat;
    alignas(128) pthread_mutex_t token;
  };

  Cell& cell(int local) { return cells_[local]; }
  const Cell& cell(int local) const { return cells_[local]; }
  // [signal]
  void WriteBell(int local);
  // Whether all peers pay for this rank's fences.
  bool FencesArePaid();
  bool Entered(int lock_result);

  Head* const head_;
  Cell* const cells_;
  const int count_;
  const int self_;
  const std::unique_ptr<std::atomic<int>[]> bells_;
  const bool heavy_fences_;
  std::atomic<bool> paying_{false};  // this rank, for the others
  std::atomic<bool> paid_{false};    // the others, for this rank
};

}  // namespace hvd::transport::shm
