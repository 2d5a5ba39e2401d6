// SPDX-License-Identifier: Apache-2.0
#pragma once
// Memory that the ranks of one host share: a control segment with the same layout for all, every rank's arena,
// doorbells, and the board on which life and death are written. `local` is an index 0..size-1 into the ranks of this
// host, in rank order.
//
// Thread safety: everything but Carve and the board's owner-side calls may be called from any thread.
// Lifetime: memory stays mapped until the Window is destroyed; arena memory itself belongs to the Arena and lives
// longer.

#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <string_view>

#include "hvd/base/result.h"
#include "hvd/base/types.h"

namespace hvd::transport {

// The first cause of the end of a generation, as written once by the first rank that noticed.
struct Cause {
  enum Kind : int32_t { kNone = 0, kDied = 1, kSignal = 2, kSilent = 3, kLeft = 4, kStall = 5 };
  int32_t kind = kNone;
  int32_t rank = -1;   // global rank at fault
  int32_t detail = 0;  // kSignal: its number; kSilent: seconds, or 0: the heartbeat time-out; kLeft: 1: in good order;
                       // kStall: 1: no rank is more wrong than the others
  int32_t pid = 0;
};

// Most bytes of the text that goes with a cause or a goodbye; longer ones are cut.
inline constexpr size_t kMaxReasonBytes = 512;

enum class PeerState : uint32_t { kAlive = 0, kLeft = 1, kDead = 2 };

class Window {
 public:
  virtual ~Window() = default;
  virtual int local() const = 0;
  virtual int local_size() const = 0;

  // The next `bytes` of the control segment, zeroed, 128-byte aligned, at the same place for every local rank. All
  // local ranks carve the same sizes in the same order (process sets are created at agreed points, members or not).
  virtual Result<std::byte*> Carve(size_t bytes) = 0;

  // Where `bytes` at `offset` in the arena of `local` are mapped here; maps that arena at first use. nullptr if it
  // cannot be mapped, or ends before that.
  virtual std::byte* PeerArena(int local, uint64_t offset, uint64_t bytes) = 0;

  // --- memory that is in no arena ---
  // Whether every local rank could read that of every other one when they met, and this one has not lost the right.
  virtual bool CanReadPeers() = 0;
  // Whether peers can read this memory of this rank: not all memory of devices lends itself to that.
  virtual bool Readable(const void* memory, size_t bytes) = 0;
  // Copies `bytes` at `address` in a peer's address space. 0, or why not (errno); ESRCH: the peer is gone.
  virtual int ReadPeer(int local, uint64_t address, void* to, size_t bytes) = 0;

  // Wakes the loop of a peer if it sleeps or listens (or is about to). For messages: an idle rank must hear of them.
  // Call after the store that the peer waits for; contains the fence that pairs with BeginSleep and Listen.
  virtual void Ring(int local) = 0;
  // Rings every local peer that sleeps; those that only listen have no operation that could wait for it. One fence, one
  // look at the peers' flags.
  virtual void RingAll() = 0;
  // Said by an idle engine: nobody turns its loop, and only messages matter to it.
  virtual void Listen(bool listens) = 0;
  // Said by the loop before it looks once more at what it waits for and then sleeps; EndSleep after it woke.
  virtual void BeginSleep() = 0;
  virtual void EndSleep() = 0;
  // Makes BeginSleep dearer and RingAll cheaper: for ranks that seldom sleep. For good.
  virtual void UseAsymmetricFences() {}

  // --- life and death; see shm/board.h for how it is noticed ---
  virtual PeerState peer_state(int local) const = 0;
  // Not 0 once the generation is revoked: some local rank died, was fenced or the job was stopped. One relaxed load.
  virtual bool revoked() const = 0;
  virtual Cause cause() const = 0;
  // What its writer had to say about the cause; may be empty.
  virtual std::string cause_reason() const = 0;
  // First caller's cause and reason win. Wakes every local rank. One thread at a time.
  virtual void Revoke(const Cause& cause, std::string_view reason = {}) = 0;
  // Says that this rank writes to no peer's memory any more in this generation.
  virtual void SetQuiesced() = 0;
  // Whether `local` is quiesced, has left, or is dead and fenced: it can store into nobody's memory any more.
  virtual bool CannotStore(int local) = 0;
  // Kills a peer that was declared lost (SIGKILL by pidfd). CannotStore() turns true once it cannot write any more.
  virtual void Kill(int local) = 0;
  // Clean goodbye: peers see kLeft. Nothing of this rank is needed by anybody after that.
  virtual void SayGoodbye() = 0;
  // A rank that leaves because of another one says so before its goodbye, and is not blamed for leaving; and what it
  // knows about the reason. blamed(local) is -1 for a rank that blamed nobody. A rank has one reason: the first that it
  // gave here or to Revoke.
  virtual void Blame(Rank rank, std::string_view reason = {}) = 0;
  virtual Rank blamed(int local) const = 0;
  virtual std::string reason(int local) const = 0;
  // A number that the peer's loop increments whenever it turns; for liveness probes. Beat() is the owner's side.
  virtual uint64_t beat(int local) const = 0;
  virtual void Beat() = 0;
  virtual int pid(int local) const = 0;

  // The progress token of this rank: a robust mutex in shared memory, so that peers can tell that its holder died.
  // Lock returns false if the token was taken away for ever (this rank was fenced by its peers).
  virtual bool TryLockToken() = 0;
  virtual bool LockToken() = 0;
  virtual void UnlockToken() = 0;
  // Whether this rank is fenced: no thread of it holds the token, none ever will, so it can store into no peer's
  // memory.
  virtual bool fenced() const = 0;
  // Whether peers gave this rank up: they may be about to fence it.
  virtual bool condemned() const = 0;
};

}  // namespace hvd::transport
