// SPDX-License-Identifier: Apache-2.0
#pragma once
// Turns timeline events into the lines of a trace file, and begins a new file when one is full.
//
// Thread safety: none.

#include <memory>
#include <string>
#include <unordered_map>

#include "hvd/trace/array_file.h"
#include "hvd/trace/timeline.h"

namespace hvd::trace {

class TimelineWriter {
 public:
  // Times before this call are not shown.
  static Result<std::unique_ptr<TimelineWriter>> Create(TimelineOptions options);

  Status Write(const TimelineEvent& event);
  // Says in the trace that events are missing.
  Status WriteDropped(uint64_t events);
  Status Flush() { return file_->Flush(); }
  Status Close() { return file_->Close(); }

 private:
  explicit TimelineWriter(TimelineOptions options);

  Status Open();
  std::string ClockLine() const;
  // kResourceExhausted: the file is full.
  Status TryWrite(const TimelineEvent& event);
  Status Rotate();
  // The number of the tensor's process, which is introduced in the file if that has not happened yet.
  Result<int> ProcessOf(const TimelineEvent& event);
  std::string Stamp(Time time, int process) const;
  std::string Span(std::string_view name, const TimelineEvent& event, int process, std::string_view args) const;

  TimelineOptions options_;
  const std::string boot_;
  const Time base_;
  const int64_t wall_base_ns_;
  std::unique_ptr<ArrayFile> file_;
  std::unordered_map<std::string, int> processes_;
  int last_process_ = 0;
};

}  // namespace hvd::trace
