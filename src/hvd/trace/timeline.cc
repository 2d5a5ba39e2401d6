// SPDX-License-Identifier: Apache-2.0
#include "hvd/trace/timeline.h"

#include <linux/futex.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>
#include <climits>

#include "hvd/base/log.h"
#include "hvd/base/signal_mask.h"
#include "hvd/trace/escape.h"
#include "hvd/trace/timeline_writer.h"

namespace hvd::trace {
namespace {

// How long events are collected before they are written: what a killed rank can lose, and the most often that the
// thread wakes up while there is something to write.
constexpr timespec kLinger{.tv_sec = 0, .tv_nsec = 50000000};

void FutexWait(std::atomic<uint32_t>* word, uint32_t expected, const timespec* timeout) {
  ::syscall(SYS_futex, word, FUTEX_WAIT_PRIVATE, expected, timeout, nullptr, 0);
}
void FutexWake(std::atomic<uint32_t>* word) {
  ::syscall(SYS_futex, word, FUTEX_WAKE_PRIVATE, INT_MAX, nullptr, nullptr, 0);
}

}  // namespace

std::string TimelinePath(std::string_view path, Rank rank) {
  if (rank == 0) return std::string(path);
  const size_t slash = path.rfind('/');
  const size_t dot = path.rfind('.');
  const bool has_suffix = dot != std::string_view::npos && (slash == std::string_view::npos || dot > slash + 1);
  const size_t cut = has_suffix ? dot : path.size();
  return fmt::format("{}.{}{}", path.substr(0, cut), rank, path.substr(cut));
}

Status Timeline::Start(TimelineOptions options) {
  Stop();
  const std::lock_guard lock(mutex_);
  if (thread_.joinable()) return Fail(Code::kFailedPrecondition, "the timeline was started by somebody else meanwhile");
  const bool mark_cycles = options.mark_cycles;
  HVD_ASSIGN_OR_RETURN(auto writer, TimelineWriter::Create(std::move(options)));
  if (made_ == nullptr) made_ = std::make_unique<Queue>(capacity_);
  while (made_->Pop([](const TimelineEvent&) {})) {
  }
  mark_cycles_.store(mark_cycles, std::memory_order_relaxed);
  stopping_.store(false, std::memory_order_relaxed);
  bell_.store(kWorking, std::memory_order_relaxed);
  dropped_shown_ = made_->dropped();
  {
    const SignalsBlocked blocked;
    thread_ = std::thread([this, writer = std::move(writer)]() mutable { Run(std::move(writer)); });
    pthread_setname_np(thread_.native_handle(), "hvd-timeline");
  }
  queue_.store(made_.get(), std::memory_order_release);
  return {};
}

void Timeline::Stop() {
  const std::lock_guard lock(mutex_);
  queue_.store(nullptr, std::memory_order_relaxed);
  if (!thread_.joinable()) return;
  stopping_.store(true, std::memory_order_seq_cst);
  Ring();
  thread_.join();
}

void Timeline::Flush() {
  const std::lock_guard lock(mutex_);
  if (!thread_.joinable()) return;
  const uint64_t wanted = made_->begun();
  for (uint64_t written = written_.load(std::memory_order_acquire); written < wanted;
       written = written_.load(std::memory_order_acquire)) {
    Ring();
    written_.wait(written, std::memory_order_acquire);
  }
}

uint64_t Timeline::dropped() {
  const std::lock_guard lock(mutex_);
  return made_ == nullptr ? 0 : made_->dropped();
}

void Timeline::Record(TimelineEvent::Kind kind, int set, std::string_view name, int32_t number, Time begin, Time end,
                      DType dtype, std::span<const int64_t> shape, const char* activity) {
  Queue* const queue = queue_.load(std::memory_order_acquire);
  if (queue == nullptr) return;
  queue->Push([&](TimelineEvent& event) {
    event.kind = kind;
    event.set = set;
    event.number = number;
    event.dtype = static_cast<int32_t>(dtype);
    event.activity = activity;
    event.begin = begin;
    event.end = end;
    event.dims = static_cast<uint8_t>(std::min(shape.size(), TimelineEvent::kDims));
    std::copy_n(shape.begin(), event.dims, event.shape);
    event.name_length = static_cast<uint8_t>(CutName(name, event.name, TimelineEvent::kNameBytes));
  });
  const uint32_t bell = bell_.load(std::memory_order_seq_cst);
  if (bell == kIdle || (bell == kLingering && queue->half_full())) Ring();
}

void Timeline::Ring() {
  if (bell_.exchange(kWorking, std::memory_order_seq_cst) != kWorking) FutexWake(&bell_);
}

void Timeline::Sleep(Bell how) {
  bell_.store(how, std::memory_order_seq_cst);
  const bool called = stopping_.load(std::memory_order_seq_cst) || (how == kIdle && !made_->empty());
  if (!called) FutexWait(&bell_, how, how == kLingering ? &kLinger : nullptr);
  bell_.store(kWorking, std::memory_order_relaxed);
}

bool Timeline::Drain(TimelineWriter* writer) {
  Status status;
  // At most a queue full at a time, so that the file is flushed while others record without end.
  uint64_t count = 0;
  while (status && count < made_->capacity() &&
         made_->Pop([&](const TimelineEvent& event) { status = writer->Write(event); })) {
    ++count;
  }
  if (const uint64_t dropped = made_->dropped(); status && dropped != dropped_shown_) {
    status = writer->WriteDropped(dropped - dropped_shown_);
    dropped_shown_ = dropped;
  }
  if (status) status = writer->Flush();
  if (!status) {
    queue_.store(nullptr, std::memory_order_relaxed);
    log::Warning("the timeline ends here: {}", status.error().message);
    while (made_->Pop([](const TimelineEvent&) {})) {
    }
  }
  written_.store(made_->taken(), std::memory_order_release);
  written_.notify_all();
  return status && count > 0;
}

void Timeline::Run(std::unique_ptr<TimelineWriter> writer) {
  while (true) {
    const bool stopping = stopping_.load(std::memory_order_acquire);
    const bool busy = Drain(writer.get());
    if (stopping) break;
    Sleep(busy ? kLingering : kIdle);
  }
  if (Status closed = writer->Close(); !closed) log::Warning("{}", closed.error().message);
}

}  // namespace hvd::trace
