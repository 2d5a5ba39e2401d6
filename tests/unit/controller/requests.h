// SPDX-License-Identifier: Apache-2.0
#pragma once
// What tests of the controller ask a sequencer for, and what they look for in its log.

#include <utility>
#include <vector>

#include "hvd/controller/sequencer.h"

namespace hvd::controller {

inline SequencerOptions Options(int members, int64_t capacity = 16) {
  SequencerOptions options;
  options.process_set = 2;
  for (int i = 0; i < members; ++i) options.members.push_back(10 + i);
  options.cache_capacity = capacity;
  options.fusion_threshold = 1 << 20;
  return options;
}

inline Signature Allreduce(Shape shape = {4}) {
  Signature s;
  s.shape = std::move(shape);
  return s;
}

inline Signature With(OpKind op, Shape shape) {
  Signature s = Allreduce(std::move(shape));
  s.op = op;
  return s;
}

inline std::vector<LogEntry::Kind> Kinds(const std::vector<LogEntry>& log) {
  std::vector<LogEntry::Kind> kinds;
  for (const LogEntry& entry : log) kinds.push_back(entry.kind);
  return kinds;
}

}  // namespace hvd::controller
