// SPDX-License-Identifier: Apache-2.0
#include "hvd/transport/shm/board.h"

#include <algorithm>
#include <bit>
#include <cstring>

#include "hvd/base/utf8.h"
#include "hvd/transport/shm/asymmetric_fence.h"

namespace hvd::transport::shm {
namespace {

constexpr uint64_t kMagic = 0x31'64'72'61'6f'62'76'68;  // "hvboard1"

// Cause as one word: kind 4 bits, rank + 1 20, pid 22 (the kernel's limit), detail 10, its author 8.
uint64_t Pack(const Cause& cause, int author) {
  static_assert(Board::kMaxRanks <= 256);
  const auto detail = static_cast<uint64_t>(std::clamp(cause.detail, 0, (1 << 10) - 1));
  return static_cast<uint64_t>(cause.kind & 0xf) | (static_cast<uint64_t>(cause.rank + 1) & 0xfffff) << 4 |
         (static_cast<uint64_t>(cause.pid) & 0x3fffff) << 24 | detail << 46 | static_cast<uint64_t>(author) << 56;
}

Cause Unpack(uint64_t word) {
  return Cause{.kind = static_cast<int32_t>(word & 0xf),
               .rank = static_cast<int32_t>(word >> 4 & 0xfffff) - 1,
               .detail = static_cast<int32_t>(word >> 46 & 0x3ff),
               .pid = static_cast<int32_t>(word >> 24 & 0x3fffff)};
}

}  // namespace

size_t Board::Bytes(int count) { return sizeof(Head) + sizeof(Cell) * static_cast<size_t>(count); }

Status Board::Format(std::byte* memory, std::span<const Rank> ranks, uint64_t generation) {
  auto* const head = reinterpret_cast<Head*>(memory);
  auto* const cells = reinterpret_cast<Cell*>(head + 1);
  pthread_mutexattr_t attributes;
  pthread_mutexattr_init(&attributes);
  int rc = pthread_mutexattr_setpshared(&attributes, PTHREAD_PROCESS_SHARED);
  rc |= pthread_mutexattr_setrobust(&attributes, PTHREAD_MUTEX_ROBUST);
  for (size_t i = 0; i < ranks.size(); ++i) {
    cells[i].rank = ranks[i];
    rc |= pthread_mutex_init(&cells[i].token, &attributes);
  }
  pthread_mutexattr_destroy(&attributes);
  if (rc != 0) return Fail(Code::kUnimplemented, "robust mutexes shared by processes are not available");
  head->generation = generation;
  head->count = static_cast<int32_t>(ranks.size());
  head->magic = kMagic;
  return {};
}

Status Board::Check(const std::byte* memory, std::span<const Rank> ranks, uint64_t generation) {
  const auto* const head = reinterpret_cast<const Head*>(memory);
  const auto* const cells = reinterpret_cast<const Cell*>(head + 1);
  bool same = head->magic == kMagic && head->generation == generation && head->count == std::ssize(ranks);
  for (size_t i = 0; same && i < ranks.size(); ++i) same = cells[i].rank == ranks[i];
  if (!same) return Fail(Code::kFailedPrecondition, "local ranks disagree about who is on this host");
  return {};
}

Board::Board(std::byte* memory, int count, int self, int pid)
    : head_(reinterpret_cast<Head*>(memory)),
      cells_(reinterpret_cast<Cell*>(head_ + 1)),
      count_(count),
      self_(self),
      bells_(new std::atomic<int>[static_cast<size_t>(count)]),
      heavy_fences_(RegisterForHeavyFences()) {
  for (int i = 0; i < count; ++i) bells_[i].store(-1, std::memory_order_relaxed);
  cell(self).pid.store(pid, std::memory_order_release);
}

void Board::SetProbeWord(const ProbeWord& word) {
  cell(self_).probe_value.store(word.value, std::memory_order_relaxed);
  cell(self_).probe_address.store(word.address, std::memory_order_release);
}

Board::ProbeWord Board::probe_word(int local) const {
  const uint64_t address = cell(local).probe_address.load(std::memory_order_acquire);
  return {address, cell(local).probe_value.load(std::memory_order_relaxed)};
}

void Board::WriteBell(int local) {
  if (local >= count_) return;  // a bit of `sleeping` or `listening` that no rank has set
  const int fd = bells_[local].load(std::memory_order_acquire);
  const uint64_t one = 1;
  // An eventfd that is full has its reader awake already; there is nothing to do about other errors.
  if (fd >= 0) [[maybe_unused]]
    const auto written = ::write(fd, &one, sizeof one);
}

// Pairs with BeginSleep: either the sleeper sees the store made before this call, or this call sees its bit.
void Board::Ring(int local) {
  std::atomic_thread_fence(std::memory_order_seq_cst);
  const uint64_t flags = head_->sleeping[local / 64].load(std::memory_order_relaxed) |
                         head_->listening[local / 64].load(std::memory_order_relaxed);
  if (flags >> (local % 64) & 1) WriteBell(local);
}

void Board::Listen(bool listens) {
  const uint64_t bit = uint64_t{1} << (self_ % 64);
  auto& flags = head_->listening[self_ / 64];
  if (((flags.load(std::memory_order_relaxed) & bit) != 0) != listens) {
    listens ? flags.fetch_or(bit, std::memory_order_relaxed) : flags.fetch_and(~bit, std::memory_order_relaxed);
  }
  std::atomic_thread_fence(std::memory_order_seq_cst);
}

void Board::UseAsymmetricFences() {
  if (!heavy_fences_) return;
  paying_.store(true, std::memory_order_relaxed);
  cell(self_).pays.store(1, std::memory_order_release);
}

bool Board::FencesArePaid() {
  if (paid_.load(std::memory_order_relaxed)) return true;
  if (!heavy_fences_) return false;
  for (int i = 0; i < count_; ++i) {
    if (i != self_ && cell(i).pays.load(std::memory_order_acquire) == 0) return false;
  }
  paid_.store(true, std::memory_order_relaxed);
  return true;
}

// On the way of every operation. Without a fence of its own the peers' BeginSleep has one for both; the compiler must
// still keep the order.
void Board::RingAll() {
  FencesArePaid() ? std::atomic_signal_fence(std::memory_order_seq_cst)
                  : std::atomic_thread_fence(std::memory_order_seq_cst);
  for (int word = 0; word * 64 < count_; ++word) {
    uint64_t asleep = head_->sleeping[word].load(std::memory_order_relaxed);
    if (self_ / 64 == word) asleep &= ~(uint64_t{1} << (self_ % 64));
    for (; asleep != 0; asleep &= asleep - 1) WriteBell(word * 64 + std::countr_zero(asleep));
  }
}

void Board::BeginSleep() {
  head_->sleeping[self_ / 64].fetch_or(uint64_t{1} << (self_ % 64), std::memory_order_relaxed);
  std::atomic_thread_fence(std::memory_order_seq_cst);
  if (paying_.load(std::memory_order_relaxed)) AsymmetricFence();
}

void Board::EndSleep() {
  head_->sleeping[self_ / 64].fetch_and(~(uint64_t{1} << (self_ % 64)), std::memory_order_relaxed);
}

bool Board::SetState(int local, PeerState state) {
  uint32_t alive = static_cast<uint32_t>(PeerState::kAlive);
  return cell(local).state.compare_exchange_strong(alive, static_cast<uint32_t>(state), std::memory_order_acq_rel);
}

Cause Board::cause() const { return Unpack(head_->cause.load(std::memory_order_acquire)); }

int Board::cause_author() const {
  const uint64_t word = head_->cause.load(std::memory_order_acquire);
  const int author = static_cast<int>(word >> 56);
  return word == 0 || author >= count_ ? -1 : author;
}

void Board::SetReason(std::string_view text) {
  Cell& mine = cell(self_);
  if (text.empty() || mine.reason_bytes.load(std::memory_order_relaxed) != 0) return;
  text = Cut(text, kMaxReasonBytes);
  std::memcpy(mine.reason, text.data(), text.size());
  mine.reason_bytes.store(static_cast<uint32_t>(text.size()), std::memory_order_release);  // pairs with reason()
}

std::string Board::reason(int local) const {
  const Cell& its = cell(local);
  const size_t bytes = its.reason_bytes.load(std::memory_order_acquire);
  return {its.reason, std::min(bytes, kMaxReasonBytes)};
}

bool Board::SetCause(const Cause& cause) {
  uint64_t none = 0;
  return head_->cause.compare_exchange_strong(none, Pack(cause, self_), std::memory_order_acq_rel);
}

void Board::WakeAllRanks() {
  head_->changes.fetch_add(1, std::memory_order_seq_cst);
  FutexWakeAll(&head_->changes);
  for (int i = 0; i < count_; ++i) WriteBell(i);
}

void Board::Beat() {
  auto& beat = cell(self_).beat;
  beat.store(beat.load(std::memory_order_relaxed) + 1, std::memory_order_relaxed);
}

}  // namespace hvd::transport::shm
