// SPDX-License-Identifier: Apache-2.0
#include "hvd/trace/timeline_writer.h"

#include <stdio.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstring>

#include "hvd/base/planted_link.h"
#include "hvd/base/tensor_labels.h"
#include "hvd/trace/escape.h"
#include "hvd/trace/host.h"
#include "hvd/trace/ticks.h"

namespace hvd::trace {
namespace {

// Names that carry a counter would fill the memory otherwise; one that comes back later gets a second process.
constexpr size_t kMaxProcesses = 65536;

std::string Micros(Duration time) {
  const int64_t nanos = std::max<int64_t>(time.count(), 0);
  return fmt::format("{}.{:03}", nanos / 1000, nanos % 1000);
}

std::string ProcessName(int process, std::string_view escaped_name, std::string_view more_args) {
  return fmt::format(R"({{"ph": "M", "name": "process_name", "pid": {0}, "args": {{"name": "{1}"{2}}}}},)"
                     "\n"
                     R"({{"ph": "M", "name": "process_sort_index", "pid": {0}, "args": {{"sort_index": {0}}}}})",
                     process, escaped_name, more_args);
}

// What a symbolic link leads to, also if that is not there yet: files take each other's place by rename, which would
// replace the link itself.
Result<std::string> FollowLinks(std::string path) {
  constexpr int kMostLinks = 40;  // as the kernel's
  std::array<char, 4096> target;
  for (int links = 0; links < kMostLinks; ++links) {
    HVD_RETURN_IF_ERROR(CheckNoPlantedLink(path));
    const ssize_t length = ::readlink(path.c_str(), target.data(), target.size());
    if (length < 0) return path;  // no link, or none that can be read: opening it will tell
    const std::string_view next(target.data(), static_cast<size_t>(length));
    const size_t folder = next.starts_with('/') ? std::string::npos : path.rfind('/');
    path = (folder == std::string::npos ? std::string() : path.substr(0, folder + 1)).append(next);
  }
  return Fail(Code::kInvalidArgument, "{}: {}", path, std::strerror(ELOOP));
}

}  // namespace

TimelineWriter::TimelineWriter(TimelineOptions options)
    : options_(std::move(options)),
      boot_(BootId()),
      base_(Duration(ClockNanos(CLOCK_MONOTONIC))),
      wall_base_ns_(ClockNanos(CLOCK_REALTIME)) {}

Result<std::unique_ptr<TimelineWriter>> TimelineWriter::Create(TimelineOptions options) {
  HVD_ASSIGN_OR_RETURN(options.path, FollowLinks(std::move(options.path)));
  std::unique_ptr<TimelineWriter> writer(new TimelineWriter(std::move(options)));
  HVD_RETURN_IF_ERROR(writer->Open());
  return writer;
}

std::string TimelineWriter::ClockLine() const {
  return fmt::format(
      R"({{"ph": "M", "name": "hvd_clock", "pid": 0, "args": {{"rank": {}, "size": {}, "host": "{}", "pid": {}, )"
      R"("version": "{}", "boot": "{}", "monotonic_base_ns": {}, "wall_base_ns": {}, "clock_offset_ns": {}}}}})",
      options_.rank, options_.size, Escaped(options_.host), ::getpid(), HVD_VERSION, boot_,
      base_.time_since_epoch().count(), wall_base_ns_, options_.clock_offset_ns);
}

Status TimelineWriter::Open() {
  const std::string who = fmt::format("rank {}", options_.rank);
  const std::string start = fmt::format(R"(, "start_time_since_epoch_in_micros": {})", wall_base_ns_ / 1000);
  processes_.clear();
  auto file =
      ArrayFile::Create(options_.path, ProcessName(0, who, start) + ",\n" + ClockLine(), options_.max_bytes / 2);
  if (!file) return Fail(std::move(file).error());
  file_ = std::move(*file);
  return {};
}

Result<int> TimelineWriter::ProcessOf(const TimelineEvent& event) {
  const std::string_view name(event.name, event.name_length);
  std::string key = event.set == 0 ? std::string(name) : fmt::format("{} (set {})", name, event.set);
  if (const auto known = processes_.find(key); known != processes_.end()) return known->second;
  if (processes_.size() >= kMaxProcesses) processes_.clear();
  HVD_RETURN_IF_ERROR(file_->Append(ProcessName(last_process_ + 1, Escaped(key), {})));
  processes_.emplace(std::move(key), ++last_process_);
  return last_process_;
}

std::string TimelineWriter::Stamp(Time time, int process) const {
  return fmt::format(R"("ts": {}, "pid": {}, "tid": {})", Micros(time - base_), process, options_.rank);
}

// Begin and end in one unit: both are in the file, or none.
std::string TimelineWriter::Span(std::string_view name, const TimelineEvent& event, int process,
                                 std::string_view args) const {
  return fmt::format(
      "{{\"ph\": \"B\", \"name\": \"{}\", {}}},\n"
      "{{\"ph\": \"E\", {}{}}}",
      name, Stamp(event.begin, process), Stamp(std::max(event.begin, event.end), process), args);
}

Status TimelineWriter::Write(const TimelineEvent& event) {
  Status written = TryWrite(event);
  if (written || written.error().code != Code::kResourceExhausted) return written;
  HVD_RETURN_IF_ERROR(Rotate());
  return TryWrite(event);
}

Status TimelineWriter::Rotate() {
  HVD_RETURN_IF_ERROR(file_->Flush());
  const std::string before = options_.path + ".1";
  if (::rename(options_.path.c_str(), before.c_str()) != 0) {
    return Fail(Code::kUnknown, "cannot rename {} to {}: {}", options_.path, before, std::strerror(errno));
  }
  return Open();
}

Status TimelineWriter::TryWrite(const TimelineEvent& event) {
  using Kind = TimelineEvent::Kind;
  if (event.end < base_) return {};  // of before this file: its recorder was late
  if (event.kind == Kind::kCycle) {
    return file_->Append(fmt::format(R"({{"ph": "i", "name": "CYCLE_START", {}, "s": "g"}})", Stamp(event.begin, 0)));
  }
  if (event.kind == Kind::kClock) {
    options_.clock_offset_ns = event.shape[0];
    return file_->Append(ClockLine());
  }
  HVD_ASSIGN_OR_RETURN(const int process, ProcessOf(event));
  const auto op = static_cast<OpKind>(event.number);
  switch (event.kind) {
    case Kind::kReady:
      return file_->Append(
          fmt::format(R"({{"ph": "X", "name": "{}", {}, "dur": 0}})", event.number, Stamp(event.begin, process)));
    case Kind::kNegotiated:
      return file_->Append(Span(fmt::format("NEGOTIATE_{}", NameOf(op)), event, process, {}));
    case Kind::kExecuted: {
      const Shape shape(event.shape, event.shape + event.dims);
      // Now rather than when the row began: a peer may have announced the name before this rank labelled it.
      const std::string label = TensorLabel({event.name, event.name_length});
      const std::string variable = label.empty() ? label : fmt::format(R"(, "variable": "{}")", Escaped(label));
      return file_->Append(Span(NameOf(op), event, process,
                                fmt::format(R"(, "args": {{"dtype": "{}", "shape": "{}"{}}})",
                                            NameOf(static_cast<DType>(event.dtype)), ToString(shape), variable)));
    }
    case Kind::kActivity: {
      const Time begin = std::max(event.begin, base_);
      return file_->Append(fmt::format(R"({{"ph": "X", "name": "{}", {}, "dur": {}}})", event.activity,
                                       Stamp(begin, process), Micros(event.end - begin)));
    }
    case Kind::kCycle:
    case Kind::kClock:
      break;
  }
  return {};
}

Status TimelineWriter::WriteDropped(uint64_t events) {
  const Time now{Duration(ClockNanos(CLOCK_MONOTONIC))};
  const std::string unit =
      fmt::format(R"({{"ph": "i", "name": "DROPPED", {}, "s": "g", "args": {{"events": {}}}}})", Stamp(now, 0), events);
  Status written = file_->Append(unit);
  if (written || written.error().code != Code::kResourceExhausted) return written;
  HVD_RETURN_IF_ERROR(Rotate());
  return file_->Append(unit);
}

}  // namespace hvd::trace
