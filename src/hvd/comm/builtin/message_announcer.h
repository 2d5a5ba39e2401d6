// SPDX-License-Identifier: Apache-2.0
#pragma once
// Announcing between members that do not share memory: every member's mark, with its data, comes to every other; each
// then does the operation for itself, in the order of the rank layout, so that the bits are those of
// collective/pairwise.
//
// Few members send to each other: one message each way is all that a small operation needs. Among more, marks are
// handed on: a member sends its own to the next one, then its own and the one that came to the second next, then four
// to the fourth next, and so on, until everybody has all. So a member sends and receives as many messages as its number
// of members has binary digits. A message goes when all that it is to hold is there. Marks of a member come to me on
// one way only, in the order in which it put them. What I have decided I have handed on.
//
// How many slots are enough. A member publishes at most kSlots positions from the first that it has not released
// (Publish is busy beyond that). It decides a position only with my mark there, so its first position that is not
// released is at most my next one, which is at most my released + kSlots. So its marks lie below my released + 2
// kSlots, and in 2 kSlots slots none takes the place of one that I still need. That also holds for a member that is one
// epoch ahead: it decides nothing there without me. It cannot be two ahead, for the epoch between ends with my mark
// only.
//
// Thread safety: call with the progress token.

#include <algorithm>
#include <cstdint>
#include <functional>
#include <span>
#include <vector>

#include "hvd/algorithms/table.h"
#include "hvd/base/result.h"
#include "hvd/collective/pairwise/link.h"
#include "hvd/comm/announcer.h"
#include "hvd/wire/messages.h"

namespace hvd::comm::builtin {

struct MessageAnnouncerOptions {
  int32_t set = 0;  // its number in messages
  int me = 0;
  collective::pairwise::SumOrder order;     // of all members
  std::vector<algorithms::Choice> choices;  // for their allreduces
  // To these members; to each in order.
  std::function<void(std::span<const int> members, const wire::MarkMessage& message)> post;
};

class MessageAnnouncer final : public Announcer {
 public:
  static constexpr uint64_t kSlots = 16;
  // Up to this many members send marks directly to each other. More members relay marks: a network hop costs about as
  // much as a few messages.
  static constexpr int kMostDirect = 8;
  static constexpr size_t kMostMembers = 1024;
  static constexpr size_t kMostBytes = wire::kMaxMarkBytes;

  // Whether there is anything that they would announce this way.
  static bool Suits(const MessageAnnouncerOptions& options);
  explicit MessageAnnouncer(MessageAnnouncerOptions options);

  // Whether it is small: an allreduce of as many bytes would be done in one step, and what is handed on together fits
  // into a message.
  bool Takes(const Work& work) const;
  // Whether others' marks come by way of third members, so that one that is missing may lie with another.
  bool relays_marks() const { return members() > kMostDirect; }
  // How many messages this member sends for an operation.
  int messages() const { return static_cast<int>(targets_.size()); }
  // Marks have come. kInternal: they cannot have been put, or not be sent to me.
  Status Receive(int sender, const wire::MarkMessage& message);
  // Bytes of data beside a mark that is there.
  size_t BytesOf(int member, uint64_t position) const { return At(member, position).data.size(); }

  Outcome Publish(uint64_t epoch, uint64_t position, uint64_t uid, int64_t first_dim, const Work& work) override;
  int Missing(uint64_t epoch, uint64_t position) const override;
  void CollectMissing(uint64_t epoch, uint64_t position, std::vector<int>* members) const override;
  // Nobody else holds a slot: a position that is busy waits for those that miss at the first undecided one.
  void CollectHolders(std::vector<int>*) const override {}
  bool Agreed(uint64_t position) const override;
  int64_t FirstDim(int member, uint64_t position) const override { return At(member, position).first_dim; }
  // The data has the sizes that `work` says, which is of one tensor. Always finishes.
  std::unique_ptr<collective::Machine> Begin(uint64_t position, const Work* work) override;
  void Withdraw(uint64_t position) override;
  void Release(uint64_t position) override;

 private:
  struct Slot {
    uint64_t epoch = 0;
    uint64_t number = 0;  // position + 1; 0: never used
    uint64_t uid = 0;
    int64_t first_dim = 0;
    std::vector<std::byte> data;
    // Of my own, where marks are handed on: as many marks up to it are there, and so many messages have gone.
    int there = 0;
    size_t gone = 0;
  };
  // What has come from a member so far.
  struct Received {
    uint64_t epoch = 0;
    uint64_t first = 0;  // position of that epoch
    uint64_t next = 0;
  };

  Slot& At(int member, uint64_t position) { return slots_[member * 2 * kSlots + position % (2 * kSlots)]; }
  const Slot& At(int member, uint64_t position) const { return slots_[member * 2 * kSlots + position % (2 * kSlots)]; }
  bool Has(int member, uint64_t epoch, uint64_t position) const {
    const Slot& slot = At(member, position);
    return slot.epoch == epoch && slot.number == position + 1;
  }
  int members() const { return static_cast<int>(options_.order.members.size()); }
  // The member that is so many places before another, in a circle.
  int Before(int member, int places) const { return (member - places % members() + members()) % members(); }
  // How many marks a message to who is so many places behind holds.
  int CountFor(int places) const { return relays_marks() ? std::min(places, members() - places) : 1; }
  // Whether this may come after what has come.
  static bool Follows(const Received& received, uint64_t epoch, uint64_t position);
  Status Keep(int member, uint64_t epoch, uint64_t position, const wire::Mark& mark);
  // Sends what can be sent of a position.
  void SendOwn(uint64_t epoch, uint64_t position);
  void HandOn(uint64_t epoch, uint64_t position);
  // Elements [begin, begin + bytes) of everybody's data.
  void Reduce(uint64_t position, const Work& work, size_t begin, size_t bytes, std::byte* to);
  void Gather(uint64_t position, const Work& work);

  MessageAnnouncerOptions options_;
  std::vector<Slot> slots_;
  std::vector<Received> received_;
  uint64_t epoch_ = 0;
  uint64_t first_ = 0;     // position of this epoch
  uint64_t released_ = 0;  // all positions below it are finished
  uint32_t finished_ = 0;  // bit i: position released_ + i is finished
  std::vector<const void*> sources_;
  std::vector<int> targets_;   // to whom this member sends
  size_t most_bytes_;          // of data beside a mark
  wire::MarkMessage message_;  // the one that is being sent
};

}  // namespace hvd::comm::builtin
