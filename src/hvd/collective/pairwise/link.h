// SPDX-License-Identifier: Apache-2.0
#pragma once
// What the pairwise machines share: the pairs to all members, a lane of their own, and the count of transfers in
// flight.

#include <memory>
#include <span>
#include <vector>

#include "hvd/collective/payload.h"
#include "hvd/transport/pair.h"

namespace hvd::collective::pairwise {

// Bytes [offset, offset + bytes) of a payload's inputs (outputs) as an iovec list.
std::vector<iovec> InputBytes(const Payload& payload, size_t offset, size_t bytes);
// Pieces without an output are sent to `discard`, which has at least `bytes` bytes.
std::vector<iovec> OutputBytes(const Payload& payload, size_t offset, size_t bytes, std::byte* discard);

// In which order members are summed: those of one host together, hosts by their first member. A function of the rank
// layout alone, so that a hierarchical algorithm gives the same bits.
struct SumOrder {
  std::vector<int> members;
  std::vector<int> host_sizes;  // how many consecutive ones of `members` each host has
};

// Lifetime: completions hold the shared state, so a machine may be destroyed with transfers pending on a closed pair.
class Link {
 public:
  // `pairs[m]` leads to member m; nullptr for this rank itself. Lanes lane, lane + 1, ... lane + 3 are this operation's
  // own.
  Link(std::vector<transport::Pair*> pairs, int me, transport::Lane lane)
      : pairs_(std::move(pairs)), me_(me), lane_(lane), state_(std::make_shared<State>()) {
    state_->outstanding.resize(pairs_.size());
  }

  int members() const { return static_cast<int>(pairs_.size()); }
  int me() const { return me_; }

  // `count`, where there is one, is one higher until the bytes are taken (there).
  void Send(int member, int phase, std::vector<iovec> data, std::shared_ptr<int> count = nullptr);
  void Recv(int member, int phase, std::vector<iovec> into, std::shared_ptr<int> count);

  bool failed() const { return state_->failed; }
  const Error& error() const { return state_->error; }
  // Sends whose buffers are still in use.
  int sending() const { return state_->sending; }
  // Adds the members that transfers wait for.
  void CollectAwaited(std::vector<int>* members) const;

 private:
  struct State {
    bool failed = false;
    Error error;
    int sending = 0;
    std::vector<int> outstanding;  // sends and receives by member
  };
  std::vector<transport::Pair*> pairs_;
  int me_;
  transport::Lane lane_;
  std::shared_ptr<State> state_;
};

}  // namespace hvd::collective::pairwise
