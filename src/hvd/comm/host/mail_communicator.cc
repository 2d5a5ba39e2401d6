// SPDX-License-Identifier: Apache-2.0
#include "hvd/comm/host/mail_communicator.h"

#include <algorithm>
#include <memory>
#include <utility>

#include "hvd/comm/traffic.h"
#include "hvd/kernel/kernel.h"

namespace hvd::comm::host {

using algorithms::Algorithm;

bool MailCommunicator::Suits(const MailOptions& options) {
  return options.order.members.size() <= kMostMembers && std::ranges::any_of(options.choices, [](const auto& choice) {
           return choice.algorithm == Algorithm::kOneStep;
         });
}

MailCommunicator::MailCommunicator(MailOptions options)
    : options_(std::move(options)),
      slots_(options_.order.members.size() * 2 * kSlots),
      received_(options_.order.members.size()),
      sources_(options_.order.members.size()) {}

bool MailCommunicator::Takes(const Work& work) const {
  const size_t bytes = work.payload.bytes();
  return bytes <= kMostBytes && algorithms::Pick(options_.choices, bytes).algorithm == Algorithm::kOneStep;
}

bool MailCommunicator::Follows(const Received& received, const MailedMark& mark) {
  if (mark.epoch == received.epoch) return mark.position == received.next;
  // An epoch ends at a position where its member has put a mark; the next one begins behind that.
  return mark.epoch == received.epoch + 1 && mark.position > received.first && mark.position <= received.next;
}

Status MailCommunicator::Receive(int member, const MailedMark& mark) {
  Received& received = received_[member];
  const bool begins = mark.epoch == received.epoch + 1;
  const bool misplaced = mark.epoch == epoch_ && (begins ? mark.position : received.first) != first_;
  const bool ahead = mark.epoch > epoch_ + 1 || mark.position >= released_ + 2 * kSlots;
  if (!Follows(received, mark) || misplaced || ahead || mark.data.size() > kMostBytes) {
    return Fail(
        Code::kInternal,
        "it announced an operation out of turn: {} bytes at position {} of epoch {}, after position {} of epoch "
        "{}, where this rank is at position {} of epoch {}",
        mark.data.size(), mark.position, mark.epoch, received.next, received.epoch, released_, epoch_);
  }
  if (begins) received.first = mark.position;
  received.epoch = mark.epoch;
  received.next = mark.position + 1;
  // Put before it knew that the epoch had ended: withdrawn.
  if (mark.epoch < epoch_) return {};
  Slot& slot = At(member, mark.position);
  slot.epoch = mark.epoch;
  slot.number = mark.position + 1;
  slot.uid = mark.uid;
  slot.first_dim = mark.first_dim;
  slot.data.assign(mark.data.begin(), mark.data.end());
  return {};
}

bool MailCommunicator::AgreesWithMe(int member, uint64_t epoch, uint64_t position) const {
  const uint64_t uid = At(options_.me, position).uid;
  return uid != 0 && Has(member, epoch, position) && At(member, position).uid == uid;
}

Announcer::Outcome MailCommunicator::Publish(uint64_t epoch, uint64_t position, uint64_t uid, int64_t first_dim,
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
  options_.post({epoch, position, uid, first_dim, slot.data});
  return Outcome::kPublished;
}

int MailCommunicator::Missing(uint64_t epoch, uint64_t position) const {
  for (int m = 0; m < members(); ++m) {
    if (!Has(m, epoch, position)) return m;
  }
  return -1;
}

void MailCommunicator::CollectMissing(uint64_t epoch, uint64_t position, std::vector<int>* missing) const {
  for (int m = 0; m < members(); ++m) {
    if (!Has(m, epoch, position)) missing->push_back(m);
  }
}

bool MailCommunicator::Agreed(uint64_t position) const {
  const uint64_t uid = At(options_.me, position).uid;
  if (uid == 0) return false;
  for (int m = 0; m < members(); ++m) {
    if (At(m, position).uid != uid) return false;
  }
  return true;
}

std::unique_ptr<collective::Machine> MailCommunicator::Begin(uint64_t position, const Work* work) {
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

void MailCommunicator::Reduce(uint64_t position, const Work& work, size_t begin, size_t bytes, std::byte* to) {
  if (bytes == 0 || to == nullptr) return;
  for (size_t i = 0; i < sources_.size(); ++i)
    sources_[i] = At(options_.order.members[i], position).data.data() + begin;
  void* target = to;
  kernel::ReduceGrouped(work.reduce_op, work.dtype, sources_, options_.order.host_sizes, {&target, 1},
                        bytes / SizeOf(work.dtype), work.scale);
}

void MailCommunicator::Gather(uint64_t position, const Work& work) {
  if (work.result_to == nullptr) return;
  const Traffic traffic(work, options_.me);
  for (int m = 0; m < members(); ++m) {
    const auto part = traffic.Incoming(m);
    const std::byte* const from = At(m, position).data.data() + part.begin;
    if (part.size() > 0) kernel::Copy(work.result_to + traffic.ResultAt(m), from, part.size());
  }
}

void MailCommunicator::Withdraw(uint64_t position) {
  first_ = position;
  ++epoch_;
}

void MailCommunicator::Release(uint64_t position) {
  finished_ |= 1u << (position - released_);
  while (finished_ & 1) {
    finished_ >>= 1;
    ++released_;
  }
}

}  // namespace hvd::comm::host
