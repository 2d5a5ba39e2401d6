// SPDX-License-Identifier: Apache-2.0
#pragma once
// Announcing between members that do not share memory: every member sends its mark, with its data, to every other. One
// message each way is all that a small operation needs; each member then does it for itself, in the order of the rank
// layout, so that the bits are those of collective/pairwise.
//
// How many slots are enough. A member publishes at most kSlots positions from the first that it has not released
// (Publish is busy beyond that). It decides a position only with my mark there, so its first position that is not
// released is at most my next one, which is at most my released + kSlots. So its marks lie below my released + 2
// kSlots, and in 2 kSlots slots none takes the place of one that I still need. That also holds for a member that is one
// epoch ahead: it decides nothing there without me. It cannot be two ahead, for the epoch between ends with my mark
// only.
//
// Thread safety: call with the progress token.

#include <cstdint>
#include <functional>
#include <span>
#include <vector>

#include "hvd/algorithms/table.h"
#include "hvd/base/result.h"
#include "hvd/collective/pairwise/link.h"
#include "hvd/comm/announcer.h"

namespace hvd::comm::host {

// A member's mark as it travels.
struct MailedMark {
  uint64_t epoch = 0;
  uint64_t position = 0;
  uint64_t uid = 0;
  int64_t first_dim = 0;
  std::span<const std::byte> data;
};

struct MailOptions {
  int me = 0;
  collective::pairwise::SumOrder order;         // of all members
  std::vector<algorithms::Choice> choices;      // for their allreduces
  std::function<void(const MailedMark&)> post;  // to every other member, in order
};

class MailCommunicator final : public Announcer {
 public:
  static constexpr uint64_t kSlots = 16;
  // Everybody sends to everybody.
  static constexpr size_t kMostMembers = 8;
  static constexpr size_t kMostBytes = 64 << 10;

  // Whether there is anything that they would announce this way.
  static bool Suits(const MailOptions& options);
  explicit MailCommunicator(MailOptions options);

  // Whether it is small: an allreduce of as many bytes would be done in one step.
  bool Takes(const Work& work) const;
  // A mark has come. kInternal: one that its member cannot have put.
  Status Receive(int member, const MailedMark& mark);
  // Whether the member's mark at a position is there and names the same plan as mine.
  bool AgreesWithMe(int member, uint64_t epoch, uint64_t position) const;
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
  // Whether this may come after what has come.
  static bool Follows(const Received& received, const MailedMark& mark);
  // Elements [begin, begin + bytes) of everybody's data.
  void Reduce(uint64_t position, const Work& work, size_t begin, size_t bytes, std::byte* to);
  void Gather(uint64_t position, const Work& work);

  MailOptions options_;
  std::vector<Slot> slots_;
  std::vector<Received> received_;
  uint64_t epoch_ = 0;
  uint64_t first_ = 0;     // position of this epoch
  uint64_t released_ = 0;  // all positions below it are finished
  uint32_t finished_ = 0;  // bit i: position released_ + i is finished
  std::vector<const void*> sources_;
};

}  // namespace hvd::comm::host
