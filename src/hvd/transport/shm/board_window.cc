// SPDX-License-Identifier: Apache-2.0
#include "hvd/transport/shm/board_window.h"

namespace hvd::transport::shm {

void BoardWindow::Revoke(const Cause& cause, std::string_view reason) {
  // A reason beside somebody else's cause would be taken for that one's.
  if (!board_.revoked()) board_.SetReason(reason);
  Cause whole = cause;
  for (int i = 0; whole.pid == 0 && i < board_.count(); ++i) {
    if (board_.rank(i) == cause.rank) whole.pid = board_.pid(i);
  }
  if (board_.SetCause(whole)) Tell();
}

std::string BoardWindow::cause_reason() const {
  const int author = board_.cause_author();
  return author < 0 ? std::string() : board_.reason(author);
}

void BoardWindow::Blame(Rank rank, std::string_view reason) {
  board_.SetReason(reason);
  board_.Blame(rank);
}

bool BoardWindow::condemned() const {
  const int self = board_.self();
  return board_.lost(self) || board_.taken(self) || board_.state(self) == PeerState::kDead;
}

void BoardWindow::SetQuiesced() {
  board_.SetQuiesced();
  // Once per generation, and waited for only by loops: doorbells are enough, those who are awake look anyway.
  board_.RingAll();
}

bool BoardWindow::CannotStore(int local) {
  if (board_.quiesced(local) || board_.fenced(local)) return true;
  const PeerState state = board_.state(local);
  if (state == PeerState::kLeft) return true;
  if (state == PeerState::kAlive && !board_.lost(local)) return false;
  if (board_.Fence(local)) return true;
  if (!Stopped(local)) return false;
  board_.SetFenced(local);
  return true;
}

void BoardWindow::SayGoodbye() {
  if (board_.SetState(board_.self(), PeerState::kLeft)) Tell();
}

}  // namespace hvd::transport::shm
