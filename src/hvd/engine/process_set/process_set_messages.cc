// SPDX-License-Identifier: Apache-2.0
// Announcing by mark message, where it differs from announcing in memory; see process_set.h.
#include <algorithm>

#include "hvd/engine/process_set/process_set.h"
#include "hvd/wire/control.h"

namespace hvd::engine {
namespace {

// More operations of one member in flight than this, and the sequencer does better: it fuses.
constexpr size_t kMostInFlight = 4;

}  // namespace

bool ProcessSet::CanAnnounce(const Operation& op) const {
  if (!Announces(op.request.signature)) return false;
  if (options_.messages == nullptr) return true;
  return options_.messages->Takes(op.work) && stages_.announced.size() + stages_.waiting.size() < kMostInFlight;
}

void ProcessSet::OnMarks(int member, const wire::MarkMessage& message) {
  if (gave_up_) return;
  const Status taken =
      options_.messages == nullptr
          ? Fail(Code::kInternal,
                 "it announced an operation of process set {} by mark message, which the set does not do", id())
          : options_.messages->Receive(member, message);
  if (!taken) return GiveUp({taken.error().code, taken.error().message, options_.ranks[member]});
  if (epoch_.undecided()) DecideMarks();
  if (!stages_.waiting.empty()) PublishMarks();
  if (!kept_.empty()) ApplyKept();
}

bool ProcessSet::CheckMessages(const Operation& op, uint64_t position) {
  const comm::Work& work = op.work;
  for (int m = 0; m < size(); ++m) {
    size_t due = work.payload.bytes();
    bool fits = true;
    if (work.op == OpKind::kBroadcast && m != work.root) due = 0;
    if (controller::FirstDimIsFree(work.op)) {
      const int64_t rows = announcer_->FirstDim(m, position);
      fits = !__builtin_mul_overflow(static_cast<size_t>(rows), RowBytes(op.request.signature), &due) &&
             (work.op != OpKind::kAlltoall || rows % size() == 0);
    }
    const size_t brought = options_.messages->BytesOf(m, position);
    if (fits && brought == due) continue;
    GiveUp({Code::kInternal,
            fmt::format("it announced {} '{}' with {} bytes of data where {} are due", NameOf(work.op), op.request.name,
                        brought, due),
            options_.ranks[m]});
    return false;
  }
  return true;
}

bool ProcessSet::ShallResume(const std::vector<controller::LogEntry>& entries) {
  if (options_.messages != nullptr) {
    // Mark messages are not fused, so a burst is cheaper through the sequencer.
    const bool few = in_flight_.load(std::memory_order_relaxed) <= static_cast<int>(kMostInFlight);
    for (const controller::LogEntry& entry : entries) {
      if (entry.kind != controller::LogEntry::Kind::kExecute) continue;
      for (const controller::Execution& execution : entry.executions) {
        // One that is new is not in the book yet.
        const controller::PlanPtr plan = book_.FindByUid(execution.uid);
        const auto op = plan == nullptr ? stages_.sent.end() : stages_.sent.find(plan->name);
        options_.resume_policy.Executed(few && op != stages_.sent.end() && plan->cached && CanAnnounce(*op->second));
      }
    }
    if (!options_.resume_policy.due()) return false;
  }
  return epoch_.closed && left_.code == Code::kOk && sequencer_->idle();
}

bool ProcessSet::WaitsForMarks(const controller::LogEntry& entry) {
  if (entry.kind != controller::LogEntry::Kind::kResume || options_.messages == nullptr) return false;
  if (left_.code != Code::kOk || gave_up_) return false;
  while (epoch_.number < entry.uid && DecideMarks()) {
  }
  // The sequencer has seen this rank's mark at the position where the epoch ends, so that one is not decided here yet.
  return epoch_.number + 1 == entry.uid && epoch_.undecided() && !gave_up_;
}

void ProcessSet::SendStreamEnd() {
  if (options_.messages == nullptr) return;
  const wire::Bytes message = wire::Encode(wire::StreamEnd{serial(), epoch_.number, epoch_.first, epoch_.head});
  for (int m = 0; m < size(); ++m) {
    if (m != options_.me) options_.host->SendControl(options_.ranks[m], message);
  }
}

// The leaver has seen all marks of what it has decided, and relayed them: those that this rank lacks are on their way.
// An epoch that the leaver has left ended just before the one that it is in.
size_t ProcessSet::AgreedByLeaver(int member) const {
  const auto found = stream_ends_.find(member);
  if (found == stream_ends_.end()) return 0;
  const wire::StreamEnd& its = found->second;
  uint64_t below = 0;
  if (its.epoch == epoch_.number) below = its.head;
  if (its.epoch == epoch_.number + 1 && its.first > 0) below = its.first - 1;
  return below <= epoch_.head ? 0 : std::min<size_t>(below - epoch_.head, stages_.announced.size());
}

}  // namespace hvd::engine
