// SPDX-License-Identifier: Apache-2.0
#include "hvd/trace/flight.h"

#include <fmt/ranges.h>

#include <algorithm>
#include <bit>
#include <cstring>

#include "hvd/trace/host.h"
#include "hvd/trace/text.h"

namespace hvd::trace {
namespace {

uint64_t Pack(uint32_t low, uint32_t high) { return low | static_cast<uint64_t>(high) << 32; }

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
      unfinished_path_(path_ + ".part"),
      boot_(BootId()),
      mask_(std::bit_ceil(std::max(options_.entries, 1u)) - 1),
      entries_(std::make_unique<Entry[]>(mask_ + 1)),
      lines_capacity_(4096 + 128 * static_cast<size_t>(std::max(options_.size, 1))),
      lines_(std::make_unique<char[]>(lines_capacity_)) {}

FlightRecorder::Id FlightRecorder::Submit(const FlightOp& op) {
  const Id id = next_.fetch_add(1, std::memory_order_relaxed);
  Entry& entry = entries_[id & mask_];
  // Whoever finds another one at work on the entry (the ring went round meanwhile) leaves it alone and is not recorded.
  uint64_t seq = entry.seq.load(std::memory_order_relaxed);
  if (seq % 2 != 0 || seq > 2 * id) return kNone;
  if (!entry.seq.compare_exchange_strong(seq, 2 * id + 1, std::memory_order_relaxed)) return kNone;

  // Release, each: nobody sees a new word beside the old `seq`. Read() has the other half.
  constexpr auto kOrder = std::memory_order_release;
  const size_t dims = std::min<size_t>(op.shape.size(), 255);
  char cut[kNameBytes];
  std::string_view name = op.name;
  if (name.size() > kNameBytes) name = {cut, CutName(name, cut, sizeof(cut))};
  for (size_t i = 0; i * 8 < name.size(); ++i) entry.name[i].store(WordAt(name, i * 8), kOrder);
  for (size_t i = 0; i < std::min(dims, kDims); ++i) entry.shape[i].store(static_cast<uint64_t>(op.shape[i]), kOrder);
  const uint32_t kinds = (static_cast<uint32_t>(op.op) & 255) | (static_cast<uint32_t>(op.dtype) & 255) << 8 |
                         (static_cast<uint32_t>(op.reduce) & 255) << 16 | static_cast<uint32_t>(dims) << 24;
  entry.what.store(Pack(static_cast<uint32_t>(op.set), kinds), kOrder);
  entry.more.store(Pack(static_cast<uint32_t>(op.root), static_cast<uint32_t>(name.size())), kOrder);
  entry.bytes.store(op.bytes, kOrder);
  entry.position.store(0, kOrder);
  for (auto& time : entry.times) time.store(0, kOrder);
  entry.missing.back().store(0, kOrder);
  entry.Reach(FlightState::kSubmitted, ticks_.Now(), 0);
  entry.seq.store(2 * id + 2, std::memory_order_release);
  // The next one begins by reading this.
  __builtin_prefetch(&entries_[(id + 1) & mask_], 1);
  return id;
}

void FlightRecorder::MarkFailed(Id id, Code code, Rank at_fault) {
  Entry* entry = Find(id);
  if (entry == nullptr) return;
  const uint64_t detail = Pack(static_cast<uint32_t>(code) << 8, static_cast<uint32_t>(at_fault));
  entry->Reach(FlightState::kFailed, ticks_.Now(), detail);
}

void FlightRecorder::SetMissing(Id id, std::span<const Rank> ranks) {
  Entry* entry = Find(id);
  if (entry == nullptr) return;
  std::array<uint32_t, kMissing + 1> words{};
  const size_t kept = std::min(ranks.size(), kMissing);
  for (size_t i = 0; i < kept; ++i) words[i] = static_cast<uint32_t>(ranks[i]);
  words.back() = static_cast<uint32_t>(ranks.size());
  for (size_t i = 0; i < entry->missing.size(); ++i) {
    entry->missing[i].store(Pack(words[2 * i], words[2 * i + 1]), std::memory_order_release);
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
