// SPDX-License-Identifier: Apache-2.0
#include "hvd/trace/flight.h"

#include <fmt/ranges.h>

#include <algorithm>
#include <bit>
#include <cstring>

#include "hvd/trace/escape.h"
#include "hvd/trace/host.h"

namespace hvd::trace {
namespace {

uint64_t Pack(uint32_t low, uint32_t high) { return low | static_cast<uint64_t>(high) << 32; }

// As Description::what.
uint64_t What(const FlightOp& op) {
  const auto dims = static_cast<uint32_t>(std::min<size_t>(op.shape.size(), 255));
  const uint32_t kinds = (static_cast<uint32_t>(op.op) & 255) | (static_cast<uint32_t>(op.dtype) & 255) << 8 |
                         (static_cast<uint32_t>(op.reduce) & 255) << 16 | dims << 24;
  return Pack(static_cast<uint32_t>(op.set), kinds);
}

// Eight bytes of the text, or fewer and zeros.
uint64_t WordAt(std::string_view text, size_t at) {
  uint64_t word = 0;
  if (text.size() - at >= 8) {
    std::memcpy(&word, text.data() + at, 8);
  } else {
    for (size_t i = text.size(); i > at; --i) word = word << 8 | static_cast<unsigned char>(text[i - 1]);
  }
  return word;
}

}  // namespace

FlightRecorder::FlightRecorder(FlightOptions options)
    : options_(std::move(options)),
      path_(options_.folder.empty() ? "" : fmt::format("{}/flight.{}.json", options_.folder, options_.rank)),
      file_(options_.folder, path_),
      boot_(BootId()),
      mask_(std::bit_ceil(std::max(options_.entries, 1u)) - 1),
      entries_(std::make_unique<Entry[]>(mask_ + 1)),
      details_(std::make_unique<Detail[]>(mask_ + 1)),
      descriptions_(std::make_unique<Description[]>(2 * (mask_ + 1))),
      lines_capacity_(4096 + 128 * static_cast<size_t>(std::max(options_.size, 1))),
      lines_(std::make_unique<char[]>(lines_capacity_)) {}

bool FlightRecorder::IsDescribedBy(const FlightOp& op, Known known) const {
  // An operation makes at most one description. So one that has at most a ring of newer ones now will have at most two
  // by the time when this operation leaves the ring: the table still has it.
  if (known == kNone || described_ - known > mask_ + 1) return false;
  constexpr auto kOrder = std::memory_order_relaxed;  // Only the caller writes.
  const Description& description = descriptions_[known & (2 * mask_ + 1)];
  if (description.what.load(kOrder) != What(op) || description.bytes.load(kOrder) != op.bytes) return false;
  if (static_cast<uint32_t>(description.more.load(kOrder)) != static_cast<uint32_t>(op.root)) return false;
  for (size_t i = 0; i < std::min(op.shape.size(), kDims); ++i) {
    if (description.shape[i].load(kOrder) != static_cast<uint64_t>(op.shape[i])) return false;
  }
  return true;
}

FlightRecorder::Known FlightRecorder::Describe(const FlightOp& op) {
  const Known known = described_++;
  Description& description = descriptions_[known & (2 * mask_ + 1)];
  description.seq.store(2 * known + 1, std::memory_order_relaxed);
  // Release, each: nobody sees a new word beside the old `seq`. ReadDescription() has the other half.
  constexpr auto kOrder = std::memory_order_release;
  char cut[kNameBytes];
  std::string_view name = op.name;
  if (name.size() > kNameBytes) name = {cut, CutName(name, cut, sizeof(cut))};
  for (size_t i = 0; i * 8 < name.size(); ++i) description.name[i].store(WordAt(name, i * 8), kOrder);
  for (size_t i = 0; i < std::min(op.shape.size(), kDims); ++i) {
    description.shape[i].store(static_cast<uint64_t>(op.shape[i]), kOrder);
  }
  description.what.store(What(op), kOrder);
  description.more.store(Pack(static_cast<uint32_t>(op.root), static_cast<uint32_t>(name.size())), kOrder);
  description.bytes.store(op.bytes, kOrder);
  description.seq.store(2 * known + 2, kOrder);
  return known;
}

FlightRecorder::Id FlightRecorder::Submit(const FlightOp& op, Known* known, uint64_t now) {
  if (!IsDescribedBy(op, *known)) *known = Describe(op);
  const Id id = next_.load(std::memory_order_relaxed);
  Entry& entry = entries_[id & mask_];
  entry.seq.store(2 * id + 1, std::memory_order_relaxed);
  // Release, each: nobody sees a new word beside the old `seq`. Read() has the other half.
  constexpr auto kOrder = std::memory_order_release;
  entry.position.store(0, kOrder);
  entry.times[0].store(now, kOrder);
  for (size_t i = 1; i < kTimes; ++i) entry.times[i].store(0, kOrder);
  entry.state.store(*known << 8 | static_cast<uint64_t>(FlightState::kSubmitted), kOrder);
  entry.seq.store(2 * id + 2, kOrder);
  next_.store(id + 1, kOrder);
  // Of a ring that is larger than the nearest cache, the next entry is far away: fetch it while this operation runs.
  __builtin_prefetch(&entries_[(id + 1) & mask_], 1);
  return id;
}

FlightRecorder::Detail& FlightRecorder::DetailOf(Id id) {
  Detail& detail = details_[id & mask_];
  if (detail.owner.load(std::memory_order_relaxed) == id + 1) return detail;
  detail.owner.store(0, std::memory_order_relaxed);
  detail.fault.store(0, std::memory_order_release);
  for (auto& word : detail.missing) word.store(0, std::memory_order_release);
  detail.owner.store(id + 1, std::memory_order_release);
  return detail;
}

void FlightRecorder::MarkFailed(Id id, Code code, Rank at_fault, uint64_t now) {
  Entry* entry = Find(id);
  if (entry == nullptr) return;
  const uint64_t fault = Pack(static_cast<uint32_t>(code), static_cast<uint32_t>(at_fault));
  DetailOf(id).fault.store(fault, std::memory_order_release);
  entry->Reach(FlightState::kFailed, now);
}

void FlightRecorder::SetMissing(Id id, std::span<const Rank> ranks) {
  if (Find(id) == nullptr) return;
  std::array<uint32_t, kMissing + 1> words{};
  const size_t kept = std::min(ranks.size(), kMissing);
  for (size_t i = 0; i < kept; ++i) words[i] = static_cast<uint32_t>(ranks[i]);
  words.back() = static_cast<uint32_t>(ranks.size());
  Detail& detail = DetailOf(id);
  for (size_t i = 0; i < detail.missing.size(); ++i) {
    detail.missing[i].store(Pack(words[2 * i], words[2 * i + 1]), std::memory_order_release);
  }
}

void FlightRecorder::AddPeer(Rank rank, std::string_view host, int pid) {
  AddLine(fmt::format("{{\"peer\":{},\"host\":\"{}\",\"pid\":{}}}\n", rank, Escaped(host), pid));
}

void FlightRecorder::AddSet(int set, std::span<const Rank> ranks) {
  AddLine(fmt::format("{{\"set\":{},\"ranks\":[{}]}}\n", set, fmt::join(ranks, ",")));
}

void FlightRecorder::AddLine(const std::string& line) {
  const std::lock_guard lock(lines_mutex_);
  const size_t used = lines_used_.load(std::memory_order_relaxed);
  if (line.size() > lines_capacity_ - used) return;
  std::memcpy(&lines_[used], line.data(), line.size());
  lines_used_.store(used + line.size(), std::memory_order_release);
}

}  // namespace hvd::trace
