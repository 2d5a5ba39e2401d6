// SPDX-License-Identifier: Apache-2.0
// Dumps of the flight recorder: lines of JSON. First a header, then what is known of peers and process sets, then one
// line per operation from the oldest to the newest, then {"end":true}, without which a file is not whole.
//
// Everything below Dump() may run inside a signal handler: no allocation, no lock, no stdio.
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>

#include "hvd/trace/escape.h"
#include "hvd/trace/flight.h"

namespace hvd::trace {
namespace {

constexpr std::array<std::string_view, 6> kStates{"submitted", "sent", "agreed", "running", "done", "failed"};

uint32_t Low(uint64_t word) { return static_cast<uint32_t>(word); }
uint32_t High(uint64_t word) { return static_cast<uint32_t>(word >> 32); }

}  // namespace

std::string_view NameOf(FlightState state) {
  const auto i = static_cast<size_t>(state);
  return i < kStates.size() ? kStates[i] : "unknown";
}

bool FlightRecorder::Read(Id id, Copy* copy) const {
  const Entry& entry = entries_[id & mask_];
  if (entry.seq.load(std::memory_order_acquire) != 2 * id + 2) return false;
  // Acquire, each: if one of them is of a later operation, so is the `seq` that is read last.
  constexpr auto kOrder = std::memory_order_acquire;
  copy->state = entry.state.load(kOrder);
  copy->position = entry.position.load(kOrder);
  for (size_t i = 0; i < copy->times.size(); ++i) copy->times[i] = entry.times[i].load(kOrder);
  ReadDetail(id, copy);
  return entry.seq.load(std::memory_order_relaxed) == 2 * id + 2 && ReadDescription(copy->state >> 8, copy);
}

bool FlightRecorder::ReadDescription(Known known, Copy* copy) const {
  const Description& description = descriptions_[known & (2 * mask_ + 1)];
  if (description.seq.load(std::memory_order_acquire) != 2 * known + 2) return false;
  constexpr auto kOrder = std::memory_order_acquire;
  copy->what = description.what.load(kOrder);
  copy->more = description.more.load(kOrder);
  copy->bytes = description.bytes.load(kOrder);
  for (size_t i = 0; i < copy->shape.size(); ++i) copy->shape[i] = description.shape[i].load(kOrder);
  for (size_t i = 0; i < copy->name.size(); ++i) copy->name[i] = description.name[i].load(kOrder);
  return description.seq.load(std::memory_order_relaxed) == 2 * known + 2;
}

void FlightRecorder::ReadDetail(Id id, Copy* copy) const {
  const Detail& detail = details_[id & mask_];
  constexpr auto kOrder = std::memory_order_acquire;
  const bool own = detail.owner.load(kOrder) == id + 1;
  copy->fault = own ? detail.fault.load(kOrder) : 0;
  for (size_t i = 0; i < copy->missing.size(); ++i) copy->missing[i] = own ? detail.missing[i].load(kOrder) : 0;
}

void FlightRecorder::Copy::WriteKind(LineWriter& out) const {
  const uint32_t kinds = High(what);
  const auto op = static_cast<OpKind>(kinds & 255);
  out.Key("op").String(NameOf(op));
  if (op != OpKind::kBarrier && op != OpKind::kJoin) {
    out.Key("dtype").String(NameOf(static_cast<DType>(kinds >> 8 & 255)));
    const size_t dims = kinds >> 24;
    out.Key("shape").Text("[");
    for (size_t i = 0; i < std::min(dims, kDims); ++i) {
      out.Text(i == 0 ? "" : ",").Number(static_cast<int64_t>(shape[i]));
    }
    out.Text("]");
    if (dims > kDims) out.Key("dimensions").Number(static_cast<int64_t>(dims));
    out.Key("bytes").Number(static_cast<int64_t>(bytes));
  }
  if (op == OpKind::kAllreduce || op == OpKind::kReducescatter) {
    out.Key("reduce").String(NameOf(static_cast<ReduceOp>(kinds >> 16 & 255)));
  }
  if (op == OpKind::kBroadcast) out.Key("root").Number(static_cast<int32_t>(Low(more)));
}

void FlightRecorder::Copy::WriteMissing(LineWriter& out) const {
  const uint32_t count = High(missing.back());
  if (count == 0) return;
  out.Key("missing").Text("[");
  for (size_t i = 0; i < std::min<size_t>(count, kMissing); ++i) {
    const uint64_t word = missing[i / 2];
    out.Text(i == 0 ? "" : ",").Number(static_cast<int32_t>(i % 2 == 0 ? Low(word) : High(word)));
  }
  out.Text("]").Key("missing_count").Number(count);
}

void FlightRecorder::Copy::WriteTo(LineWriter& out, Id id, const TickScale& ticks, const TickScale::Pair& now) const {
  const auto reached = static_cast<FlightState>(state & 255);
  out.Open().Key("n").Number(static_cast<int64_t>(id));
  out.Key("set").Number(static_cast<int32_t>(Low(what)));
  out.Key("name").String(name_text());
  WriteKind(out);
  out.Key("state").String(NameOf(reached));
  if (reached == FlightState::kFailed) {
    out.Key("code").Number(Low(fault));
    if (const auto rank = static_cast<int32_t>(High(fault)); rank >= 0) out.Key("at_fault").Number(rank);
  }
  if (position != 0) out.Key("position").Number(static_cast<int64_t>(position - 1));
  if (reached < FlightState::kDone) WriteMissing(out);
  out.Key("ns").Open();
  for (size_t i = 0; i < times.size(); ++i) {
    if (times[i] == 0) continue;
    const bool failed = i + 1 == times.size() && reached == FlightState::kFailed;
    out.Key(failed ? "failed" : kStates[i]).Number(ticks.ToNanos(times[i], now));
  }
  out.Close().Close().Text("\n");
}

bool FlightRecorder::WriteAll(LineWriter& out, std::string_view reason) noexcept {
  const TickScale::Pair now = ticks_.Read();
  const uint64_t end = next_.load(std::memory_order_acquire);
  const uint64_t begin = end > mask_ + 1 ? end - mask_ - 1 : 0;
  out.Open().Key("flight").Number(1);
  out.Key("rank").Number(options_.rank).Key("size").Number(options_.size);
  out.Key("generation").Number(options_.generation);
  out.Key("pid").Number(::getpid()).Key("host").String(options_.host).Key("boot").String(boot_);
  out.Key("version").String(HVD_VERSION).Key("reason").String(reason);
  out.Key("monotonic_ns").Number(now.nanos).Key("wall_ns").Number(ClockNanos(CLOCK_REALTIME));
  out.Key("submitted").Number(static_cast<int64_t>(end)).Key("kept").Number(static_cast<int64_t>(end - begin));
  out.Close().Text("\n");
  out.Text({lines_.get(), lines_used_.load(std::memory_order_acquire)});
  int64_t skipped = 0;
  for (Id id = begin; id < end; ++id) {
    Copy copy;
    if (Read(id, &copy)) {
      copy.WriteTo(out, id, ticks_, now);
    } else {
      ++skipped;
    }
  }
  out.Open().Key("end").Text("true").Key("skipped").Number(skipped).Close().Text("\n");
  return out.Flush();
}

bool FlightRecorder::Write(std::string_view reason) noexcept {
  if (dumping_.exchange(true, std::memory_order_acquire)) return true;
  const int fd = file_.Begin();
  bool good = fd >= 0;
  if (good) {
    LineWriter out(fd, buffer_.data(), buffer_.size());
    good = WriteAll(out, reason);
    good = file_.Finish(fd, good);
  }
  dumping_.store(false, std::memory_order_release);
  return good;
}

std::string FlightRecorder::Snapshot(std::string_view reason) {
  std::string text;
  if (path_.empty() || dumping_.exchange(true, std::memory_order_acquire)) return text;
  LineWriter out(&text, buffer_.data(), buffer_.size());
  WriteAll(out, reason);
  dumping_.store(false, std::memory_order_release);
  return text;
}

Status FlightRecorder::Dump(std::string_view reason) {
  if (path_.empty() || Write(reason)) return {};
  return Fail(Code::kUnknown, "cannot write {}: {}", path_, std::strerror(errno));
}

bool FlightRecorder::DumpFromSignal(std::string_view reason) noexcept {
  if (!path_.empty()) return Write(reason);
  if (reason.starts_with("crash")) return true;
  char buffer[256];
  LineWriter out(STDERR_FILENO, buffer, sizeof buffer);
  out.Text("hvd: rank ").Number(options_.rank).Text(" (pid ").Number(::getpid()).Text("): ").Text(reason);
  out.Text(": no flight recorder file is written, because HOROVOD_FLIGHT_DIR is not set\n");
  return out.Flush();
}

}  // namespace hvd::trace
