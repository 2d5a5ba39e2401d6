// SPDX-License-Identifier: Apache-2.0
// Values that all members must share, and that change while the set works.
//
// They change at a position of the log, with the entry "tune". Operations that the log executes after it have the new
// values, those before it the old ones, whenever they begin. What is announced in memory has no place in that log; so
// the sequencer puts a void mark first, and logs the entry when the epoch is closed: all that was announced before lies
// at lower positions of the stream on every member, all that will be at higher ones. What is announced by mark message
// is done at one stroke and has no such values.
#include <algorithm>

#include "hvd/engine/process_set/process_set.h"

namespace hvd::engine {

void ProcessSet::Tune(const wire::Tuning& wanted) {
  if (sequencer_ == nullptr || options_.log == nullptr) return;
  // Where it announces, it stops doing so with its next operation: until then it has nothing to ask the others for.
  wanted_ = wanted;
  log_dirty_ = true;
}

bool ProcessSet::CanTune() const {
  return wanted_ && (!by_memory() || epoch_.closed) && left_.code == Code::kOk && !gave_up_;
}

void ProcessSet::BeginTuned(const algorithms::Table& table) {
  if (options_.log != nullptr) options_.log->Retune(0, 0, table);
  if (options_.announce != nullptr) options_.announce->Retune(0, 0, table);
}

void ProcessSet::ApplyTuning(const controller::LogEntry& entry) {
  const algorithms::Table table = options_.host->OnTuned(id(), entry.tuning);
  uint64_t oldest = next_log_start_;
  for (const Running& running : stages_.running) {
    if (!running.announced) oldest = std::min(oldest, running.position);
  }
  if (!stages_.queued.empty()) oldest = std::min(oldest, stages_.queued.front().position);
  options_.log->Retune(next_log_start_, oldest, table);
  // After a member left nothing is announced any more, but the log still ends what it agreed to.
  if (!by_memory() || left_.code != Code::kOk || !ReachClosed(entry.uid)) return;
  options_.announce->Retune(epoch_.head, epoch_.head, table);
}

}  // namespace hvd::engine
