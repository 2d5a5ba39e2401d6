// SPDX-License-Identifier: Apache-2.0
// The floor: what naive shared-memory allreduces of float32 reach, with no engine, names, agreement or error handling.
// MODE: direct  user data lies in shared memory; barrier; rank r sums slice r of all buffers and stores it to all;
// barrier.
//       staged  private user data: copied in, then as direct, then copied out.
//       slots   private user data: pipelined through a few cache-resident shared slots per rank, flags instead of
//       barriers.
#include <sys/mman.h>
#include <sys/wait.h>

#include <atomic>

#include "common.h"

namespace {

constexpr int kMaxRanks = 64;
constexpr size_t kMaxSamples = 4000;
constexpr size_t kSlotFloats = 32768;  // 128 KiB
constexpr uint64_t kSlots = 4;         // per rank and direction

struct alignas(128) Flag {
  std::atomic<uint64_t> value;
};

struct Control {
  Flag barrier[kMaxRanks], in[kMaxRanks], out[kMaxRanks], done[kMaxRanks];
  double samples[kMaxRanks][kMaxSamples];
};

size_t SliceBegin(size_t count, int slice, int ranks) {
  if (slice == ranks) return count;
  return std::min(count, (count / ranks + 15) / 16 * 16 * slice);
}

[[gnu::noinline]] void AddTo(float* __restrict to, const float* __restrict from, size_t n) {
  for (size_t i = 0; i < n; ++i) to[i] += from[i];
}

// Not inlined: the compiler would forget __restrict there and not vectorise.
[[gnu::noinline]] void SumIntoBoth(float* __restrict a, float* __restrict b, size_t n) {
  for (size_t i = 0; i < n; ++i) {
    const float sum = a[i] + b[i];
    a[i] = sum;
    b[i] = sum;
  }
}

class Rank {
 public:
  Rank(Control* control, int rank, int ranks, bool crowded)
      : control_(control), rank_(rank), ranks_(ranks), crowded_(crowded) {}

  void Barrier() {
    control_->barrier[rank_].value.store(++turn_, std::memory_order_release);
    AwaitOthers(control_->barrier, turn_);
  }

  void Direct(const std::vector<float*>& buffers, size_t count) {
    Barrier();
    const size_t begin = SliceBegin(count, rank_, ranks_), end = SliceBegin(count, rank_ + 1, ranks_);
    if (ranks_ == 2) {
      SumIntoBoth(buffers[0] + begin, buffers[1] + begin, end - begin);
    } else {
      constexpr size_t kBlock = 2048;  // stays in the first-level cache between the passes
      for (size_t at = begin; at < end; at += kBlock) {
        const size_t n = std::min(kBlock, end - at);
        for (int i = 1; i < ranks_; ++i) AddTo(buffers[rank_] + at, buffers[(rank_ + i) % ranks_] + at, n);
        for (int i = 1; i < ranks_; ++i) std::memcpy(buffers[(rank_ + i) % ranks_] + at, buffers[rank_] + at, n * 4);
      }
    }
    Barrier();
  }

  void Staged(const std::vector<float*>& buffers, float* data, size_t count) {
    std::memcpy(buffers[rank_], data, count * 4);
    Direct(buffers, count);
    std::memcpy(data, buffers[rank_], count * 4);
  }

  // Block by block: publish what others own, add up the own slice, fetch the other slices; three blocks under way.
  void Slots(float* slots, float* data, size_t count) {
    const uint64_t blocks = (count + kSlotFloats - 1) / kSlotFloats, first = next_block_;
    next_block_ += blocks;
    const auto length = [&](uint64_t j) { return std::min(kSlotFloats, count - j * kSlotFloats); };
    for (uint64_t t = 0; t < blocks + 2; ++t) {
      if (t < blocks) CopyIn(slots, data + t * kSlotFloats, first + t, length(t));
      if (t >= 1 && t - 1 < blocks) Reduce(slots, data + (t - 1) * kSlotFloats, first + t - 1, length(t - 1));
      if (t >= 2) CopyOut(slots, data + (t - 2) * kSlotFloats, first + t - 2, length(t - 2));
    }
  }

 private:
  void Await(const std::atomic<uint64_t>& flag, uint64_t value) {
    const int limit = crowded_ ? 64 : 4000;
    for (int spin = 0; flag.load(std::memory_order_acquire) < value; ++spin) {
      if (spin >= limit) sched_yield();
#if defined(__x86_64__)
      else
        __builtin_ia32_pause();
#endif
    }
  }
  void AwaitOthers(Flag* flags, uint64_t value) {
    for (int i = 1; i < ranks_; ++i) Await(flags[(rank_ + i) % ranks_].value, value);
  }
  void Publish(Flag* flags, uint64_t block) { flags[rank_].value.store(block + 1, std::memory_order_release); }
  float* Slot(float* slots, int rank, uint64_t block, bool out) {
    return slots + ((rank * 2 + out) * kSlots + block % kSlots) * kSlotFloats;
  }

  void CopyIn(float* slots, const float* data, uint64_t block, size_t n) {
    if (block >= kSlots) AwaitOthers(control_->done, block - kSlots + 1);
    const size_t begin = SliceBegin(n, rank_, ranks_), end = SliceBegin(n, rank_ + 1, ranks_);
    float* slot = Slot(slots, rank_, block, false);
    std::memcpy(slot, data, begin * 4);
    std::memcpy(slot + end, data + end, (n - end) * 4);
    Publish(control_->in, block);
  }
  void Reduce(float* slots, float* data, uint64_t block, size_t n) {
    AwaitOthers(control_->in, block + 1);
    const size_t begin = SliceBegin(n, rank_, ranks_), size = SliceBegin(n, rank_ + 1, ranks_) - begin;
    for (int i = 1; i < ranks_; ++i) AddTo(data + begin, Slot(slots, (rank_ + i) % ranks_, block, false) + begin, size);
    std::memcpy(Slot(slots, rank_, block, true) + begin, data + begin, size * 4);
    Publish(control_->out, block);
  }
  void CopyOut(float* slots, float* data, uint64_t block, size_t n) {
    for (int i = 1; i < ranks_; ++i) {
      const int peer = (rank_ + i) % ranks_;
      Await(control_->out[peer].value, block + 1);
      const size_t begin = SliceBegin(n, peer, ranks_), end = SliceBegin(n, peer + 1, ranks_);
      std::memcpy(data + begin, Slot(slots, peer, block, true) + begin, (end - begin) * 4);
    }
    Publish(control_->done, block);
  }

  Control* control_;
  int rank_;
  int ranks_;
  bool crowded_;
  uint64_t turn_ = 0;
  uint64_t next_block_ = 0;
};

void* SharedMemory(size_t bytes) {
  return mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
}

bool RunRank(const peers::Settings& settings, Control* control, float* shared, size_t stride, int index, bool crowded) {
  const char* text = std::getenv("MODE");
  const std::string mode = text != nullptr ? text : "direct";
  Rank rank(control, index, settings.ranks, crowded);
  std::vector<float*> buffers;
  for (int i = 0; i < settings.ranks; ++i) buffers.push_back(shared + i * stride);
  std::memset(buffers[index], 0, stride * 4);
  rank.Barrier();
  volatile float touched = 0;  // maps the peers' pages here before anything is timed
  for (float* buffer : buffers) {
    for (size_t i = 0; i < stride; i += 1024) touched = touched + buffer[i];
  }
  float* data = mode == "direct" ? buffers[index] : peers::AllocateBuffer(settings.Largest());
  for (size_t bytes : settings.Sizes()) {
    const size_t count = bytes / 4;
    const auto allreduce = [&] {
      if (mode == "direct") rank.Direct(buffers, count);
      if (mode == "staged") rank.Staged(buffers, data, count);
      if (mode == "slots") rank.Slots(shared, data, count);
    };
    rank.Barrier();
    for (size_t i = 0; i < count; ++i) data[i] = index + 1 + i % 7;
    allreduce();
    for (size_t i = 0; i < count; ++i) {
      if (data[i] != settings.ranks * (settings.ranks + 1) / 2 + settings.ranks * static_cast<int>(i % 7)) return false;
    }
    rank.Barrier();
    peers::Refresh(data, count);
    for (int i = 0; i < settings.Warmup(bytes); ++i) allreduce();
    rank.Barrier();
    const int iterations = settings.Iterations(bytes);
    for (int i = 0; i < iterations; ++i) {
      if (settings.fresh) {
        peers::Refresh(data, count);
        rank.Barrier();
      }
      const double start = peers::NowMicros();
      allreduce();
      control->samples[index][i] = peers::NowMicros() - start;
    }
    rank.Barrier();
    if (index == 0) {
      std::vector<double> slowest(control->samples[0], control->samples[0] + iterations);
      for (int r = 1; r < settings.ranks; ++r) {
        for (int i = 0; i < iterations; ++i) slowest[i] = std::max(slowest[i], control->samples[r][i]);
      }
      peers::Emit("allreduce", settings.ranks, bytes, slowest);
    }
  }
  return true;
}

}  // namespace

int main() {
  const peers::Settings settings;
  if (settings.ranks < 1 || settings.ranks > kMaxRanks) return 2;
  constexpr size_t kPage = 4096;
  // Buffers start on different sets of the cache.
  const size_t stride = (std::max(settings.Largest(), 2 * kSlots * kSlotFloats * 4) / kPage + 3) * kPage / 4;
  auto* control = static_cast<Control*>(SharedMemory(sizeof(Control)));
  auto* shared = static_cast<float*>(SharedMemory(stride * 4 * settings.ranks));
  if (control == MAP_FAILED || shared == MAP_FAILED) return 1;
  const bool crowded = settings.ranks > sysconf(_SC_NPROCESSORS_ONLN);
  for (int rank = 0; rank < settings.ranks; ++rank) {
    if (fork() != 0) continue;
    peers::PinTo(rank);
    const bool good = RunRank(settings, control, shared, stride, rank, crowded);
    if (!good) std::fprintf(stderr, "wrong result on rank %d\n", rank);
    std::fflush(stdout);
    _exit(good ? 0 : 1);
  }
  int bad = 0;
  for (int status, rank = 0; rank < settings.ranks; ++rank) {
    wait(&status);
    bad |= status;
  }
  return bad != 0;
}
