// SPDX-License-Identifier: Apache-2.0
#pragma once
// The part of a Window that the board does, equal for ranks that are processes and ranks that are threads.
//
// Thread safety: as Window.

#include "hvd/transport/shm/board.h"
#include "hvd/transport/window.h"

namespace hvd::transport::shm {

class BoardWindow : public Window {
 public:
  BoardWindow(std::byte* memory, int count, int self, int pid) : board_(memory, count, self, pid) {}

  int local() const override { return board_.self(); }
  int local_size() const override { return board_.count(); }
  void Ring(int local) override { board_.Ring(local); }
  void RingAll() override { board_.RingAll(); }
  void Listen(bool listens) override { board_.Listen(listens); }
  void BeginSleep() override { board_.BeginSleep(); }
  void EndSleep() override { board_.EndSleep(); }
  void UseAsymmetricFences() override { board_.UseAsymmetricFences(); }

  PeerState peer_state(int local) const override { return board_.state(local); }
  bool revoked() const override { return board_.revoked(); }
  Cause cause() const override { return board_.cause(); }
  std::string cause_reason() const override;
  void Revoke(const Cause& cause, std::string_view reason) override;
  void SetQuiesced() override;
  bool CannotStore(int local) override;
  void SayGoodbye() override;
  void Blame(Rank rank, std::string_view reason) override;
  Rank blamed(int local) const override { return board_.blamed(local); }
  std::string reason(int local) const override { return board_.reason(local); }
  uint64_t beat(int local) const override { return board_.beat(local); }
  void Beat() override { board_.Beat(); }
  int pid(int local) const override { return board_.pid(local); }

  bool TryLockToken() override { return board_.TryLockToken(); }
  bool LockToken() override { return board_.LockToken(); }
  void UnlockToken() override { board_.UnlockToken(); }
  bool fenced() const override { return board_.fenced(board_.self()); }
  bool condemned() const override;

 protected:
  // Makes everyone look at the board.
  virtual void Tell() = 0;
  // Whether a dead rank whose token is still held has stopped all the same.
  virtual bool Stopped(int) { return false; }

  Board board_;
};

}  // namespace hvd::transport::shm
