// SPDX-License-Identifier: Apache-2.0
#include "hvd/comm/builtin/message_announcer.h"

#include <bit>
#include <memory>
#include <utility>

#include "hvd/comm/exchange_layout.h"
#include "hvd/kernel/kernel.h"

namespace hvd::comm::builtin {

using algorithms::Algorithm;

bool MessageAnnouncer::Suits(const MessageAnnouncerOptions& options) {
  return options.order.members.size() <= kMostMembers && std::ranges::any_of(options.choices, [](const auto& choice) {
           return choice.algorithm == Algorithm::kOneStep;
         });
}

MessageAnnouncer::MessageAnnouncer(MessageAnnouncerOptions options)
    : options_(std::move(options)),
      slots_(options_.order.members.size() * 2 * kSlots),
      received_(options_.order.members.size()),
      sources_(options_.order.members.size()) {
  message_.set = options_.set;
  int most_marks = 1;
  for (int places = 1; places < members(); places += relays_marks() ? places : 1) {
    targets_.push_back((options_.me + places) % members());
    most_marks = std::max(most_marks, CountFor(places));
  }
  most_bytes_ = kMostBytes / static_cast<size_t>(most_marks);
}

bool MessageAnnouncer::Takes(const Work& work) const {
  const size_t bytes = work.payload.bytes();
  return bytes <= most_bytes_ && algorithms::Pick(options_.choices, bytes).algorithm == Algorithm::kOneStep;
}

bool MessageAnnouncer::Follows(const Received& received, uint64_t epoch, uint64_t position) {
  if (epoch == received.epoch) return position == received.next;
  // An epoch ends at a position where its member has put a mark; the next one begins behind that.
  return epoch == received.epoch + 1 && position > received.first && position <= received.next;
}

Status MessageAnnouncer::Receive(int sender, const wire::MarkMessage& message) {
  const int places = (options_.me - sender + members()) % members();
  const bool mine_to_get = places > 0 && (!relays_marks() || std::has_single_bit(static_cast<unsigned>(places)));
  if (!mine_to_get || std::ssize(message.marks) != CountFor(places)) {
    return Fail(Code::kInternal, "it sent {} marks from member {} to member {} of {}, which nobody does",
                message.marks.size(), sender, options_.me, members());
  }
  int member = sender;
  for (const wire::Mark& mark : message.marks) {
    HVD_RETURN_IF_ERROR(Keep(member, message.epoch, message.position, mark));
    member = Before(member, 1);
  }
  if (relays_marks() && message.epoch == epoch_) HandOn(message.epoch, message.position);
  return {};
}

Status MessageAnnouncer::Keep(int member, uint64_t epoch, uint64_t position, const wire::Mark& mark) {
  Received& received = received_[member];
  const bool begins = epoch == received.epoch + 1;
  const bool misplaced = epoch == epoch_ && (begins ? position : received.first) != first_;
  const bool ahead = epoch > epoch_ + 1 || position >= released_ + 2 * kSlots;
  if (!Follows(received, epoch, position) || misplaced || ahead) {
    return Fail(
        Code::kInternal,
        "it announced an operation out of turn: {} bytes at position {} of epoch {}, after position {} of epoch "
        "{}, where this rank is at position {} of epoch {}",
        mark.data.size(), position, epoch, received.next, received.epoch, released_, epoch_);
  }
  if (begins) received.first = position;
  received.epoch = epoch;
  received.next = position + 1;
  // Put before it knew that the epoch had ended: withdrawn.
  if (epoch < epoch_) return {};
  Slot& slot = At(member, position);
  slot.epoch = epoch;
  slot.number = position + 1;
  slot.uid = mark.uid;
  slot.first_dim = mark.first_dim;
  slot.data.assign(mark.data.begin(), mark.data.end());
  return {};
}

void MessageAnnouncer::SendOwn(uint64_t epoch, uint64_t position) {
  const Slot& mine = At(options_.me, position);
  message_.epoch = epoch;
  message_.position = position;
  message_.marks.assign(1, {mine.uid, mine.first_dim, mine.data});
  options_.post(targets_, message_);
}

void MessageAnnouncer::HandOn(uint64_t epoch, uint64_t position) {
  if (!Has(options_.me, epoch, position)) return;
  Slot& mine = At(options_.me, position);
  for (; mine.gone < targets_.size(); ++mine.gone) {
    // Those of an operation go behind those of the one before. Where these cannot, because marks of the next epoch
    // have taken the place of some, both are withdrawn.
    if (position > 0 && Has(options_.me, epoch, position - 1) && At(options_.me, position - 1).gone <= mine.gone)
      return;
    const int count = CountFor(1 << mine.gone);
    while (mine.there < count && Has(Before(options_.me, mine.there), epoch, position)) ++mine.there;
    if (mine.there < count) return;
    message_.epoch = epoch;
    message_.position = position;
    message_.marks.clear();
    for (int i = 0; i < count; ++i) {
      const Slot& slot = At(Before(options_.me, i), position);
      message_.marks.push_back({slot.uid, slot.first_dim, slot.data});
    }
    options_.post({&targets_[mine.gone], 1}, message_);
  }
}

Announcer::Outcome MessageAnnouncer::Publish(uint64_t epoch, uint64_t position, uint64_t uid, int64_t first_dim,
                                             const Work& work) {
  if (position >= released_ + kSlots) return Outcome::kBusy;
  Slot& slot = At(options_.me, position);
  slot.epoch = epoch;
  slot.number = position + 1;
  slot.uid = uid;
  slot.first_dim = first_dim;
  const bool brings = uid != 0 && (work.op != OpKind::kBroadcast || work.root == options_.me);
  // Kept, because the result may take the input's place, or the caller the memory, before the others' marks are there.
  slot.data.resize(brings ? work.payload.bytes() : 0);
  work.payload.Gather(0, slot.data.size(), slot.data.data());
  slot.there = 0;
  slot.gone = 0;
  relays_marks() ? HandOn(epoch, position) : SendOwn(epoch, position);
  return Outcome::kPublished;
}

int MessageAnnouncer::Missing(uint64_t epoch, uint64_t position) const {
  for (int m = 0; m < members(); ++m) {
    if (!Has(m, epoch, position)) return m;
  }
  return -1;
}

void MessageAnnouncer::CollectMissing(uint64_t epoch, uint64_t position, std::vector<int>* missing) const {
  for (int m = 0; m < members(); ++m) {
    if (!Has(m, epoch, position)) missing->push_back(m);
  }
}

bool MessageAnnouncer::Agreed(uint64_t position) const {
  const uint64_t uid = At(options_.me, position).uid;
  if (uid == 0) return false;
  for (int m = 0; m < members(); ++m) {
    if (At(m, position).uid != uid) return false;
  }
  return true;
}

std::unique_ptr<collective::Machine> MessageAnnouncer::Begin(uint64_t position, const Work* work) {
  switch (work->op) {
    case OpKind::kAllreduce: {
      // What this member brought has been sent, and its place is free for a result that is to be converted.
      const bool converted = work->payload.converted();
      std::byte* const to = converted ? At(options_.me, position).data.data() : work->payload.pieces()[0].out;
      Reduce(position, *work, 0, work->payload.bytes(), to);
      if (converted) work->payload.Scatter(0, work->payload.bytes(), to);
      break;
    }
    case OpKind::kBroadcast:
      if (work->root != options_.me || work->payload.pieces()[0].out != work->payload.pieces()[0].in) {
        work->payload.Scatter(0, work->payload.bytes(), At(work->root, position).data.data());
      }
      break;
    case OpKind::kAllgather:
    case OpKind::kAlltoall:
      Gather(position, *work);
      break;
    case OpKind::kReducescatter: {
      size_t begin = 0;
      for (int m = 0; m < options_.me; ++m) begin += work->member_bytes[m];
      Reduce(position, *work, begin, work->member_bytes[options_.me], work->result_to);
      break;
    }
    default:
      break;
  }
  return nullptr;
}

void MessageAnnouncer::Reduce(uint64_t position, const Work& work, size_t begin, size_t bytes, std::byte* to) {
  if (bytes == 0 || to == nullptr) return;
  for (size_t i = 0; i < sources_.size(); ++i)
    sources_[i] = At(options_.order.members[i], position).data.data() + begin;
  void* target = to;
  kernel::ReduceGrouped(work.reduce_op, work.dtype, sources_, options_.order.host_sizes, {&target, 1},
                        bytes / SizeOf(work.dtype), work.scale);
}

void MessageAnnouncer::Gather(uint64_t position, const Work& work) {
  if (work.result_to == nullptr) return;
  const ExchangeLayout traffic(work, options_.me);
  for (int m = 0; m < members(); ++m) {
    const auto part = traffic.Incoming(m);
    const std::byte* const from = At(m, position).data.data() + part.begin;
    if (part.size() > 0) kernel::Copy(work.result_to + traffic.ResultAt(m), from, part.size());
  }
}

void MessageAnnouncer::Withdraw(uint64_t position) {
  first_ = position;
  ++epoch_;
}

void MessageAnnouncer::Release(uint64_t position) {
  finished_ |= 1u << (position - released_);
  while (finished_ & 1) {
    finished_ >>= 1;
    ++released_;
  }
}

}  // namespace hvd::comm::builtin
