// SPDX-License-Identifier: Apache-2.0
#include "hvd_perf/group.h"

#include <linux/futex.h>
#include <sched.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>
#include <climits>
#include <cstring>

#include "hvd/hvd.h"
#include "hvd_perf/process.h"

namespace hvd_perf {
namespace {

void Relax() {
#if defined(__x86_64__)
  __builtin_ia32_pause();
#elif defined(__aarch64__)
  asm volatile("yield");
#endif
}

void FutexWait(std::atomic<uint32_t>* word, uint32_t while_value) {
  syscall(SYS_futex, reinterpret_cast<uint32_t*>(word), FUTEX_WAIT, while_value, nullptr, nullptr, 0);
}

void FutexWake(std::atomic<uint32_t>* word) {
  syscall(SYS_futex, reinterpret_cast<uint32_t*>(word), FUTEX_WAKE, INT_MAX, nullptr, nullptr, 0);
}

}  // namespace

SharedArea::SharedArea(int ranks, uint64_t samples)
    : ranks_(ranks), spins_(ranks <= UsableCores() ? 4000 : 64), samples_(samples) {
  bytes_ = 256 + sizeof(Flag) * ranks + sizeof(double) * ranks * samples;
  memory_ = mmap(nullptr, bytes_, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  if (memory_ == MAP_FAILED) Die("no shared memory for the samples");
  char* at = static_cast<char*>(memory_);
  arrived_ = new (at) std::atomic<uint32_t>(0);
  open_ = new (at + 128) std::atomic<uint32_t>(0);
  flags_ = reinterpret_cast<Flag*>(at + 256);
  for (int i = 0; i < ranks; ++i) new (&flags_[i]) Flag{};
  values_ = reinterpret_cast<double*>(flags_ + ranks);
}

SharedArea::~SharedArea() { munmap(memory_, bytes_); }

void SharedArea::ArriveAtGate() {
  arrived_->fetch_add(1, std::memory_order_acq_rel);
  FutexWake(arrived_);
  while (open_->load(std::memory_order_acquire) == 0) FutexWait(open_, 0);
}

void SharedArea::AwaitArrivals() {
  for (uint32_t n; (n = arrived_->load(std::memory_order_acquire)) < static_cast<uint32_t>(ranks_);) {
    FutexWait(arrived_, n);
  }
}

void SharedArea::OpenGate() {
  open_->store(1, std::memory_order_release);
  FutexWake(open_);
}

void ForkedGroup::Barrier() {
  ++turn_;
  area_->flag(rank_).store(turn_, std::memory_order_release);
  for (int i = 0; i < size(); ++i) {
    for (int spin = 0; area_->flag(i).load(std::memory_order_acquire) < turn_; ++spin) {
      if (spin < area_->spins()) {
        Relax();
      } else {
        sched_yield();
      }
    }
  }
}

void ForkedGroup::Max(std::vector<double>* values) {
  std::copy(values->begin(), values->end(), area_->row(rank_));
  Barrier();
  for (int i = 0; i < size(); ++i) {
    for (size_t k = 0; k < values->size(); ++k) (*values)[k] = std::max((*values)[k], area_->row(i)[k]);
  }
  Barrier();  // nobody may overwrite a row that another still reads
}

EnvironmentGroup::EnvironmentGroup() {
  Require(hvd_query(nullptr, HVD_RANK, &rank_), "rank");
  Require(hvd_query(nullptr, HVD_SIZE, &size_), "size");
}

void EnvironmentGroup::Barrier() {
  hvd_request request;
  hvd_request_default(&request);
  request.op = HVD_BARRIER;
  request.name = "hvd_perf.barrier";
  Require(hvd_run(nullptr, &request, nullptr), "barrier");
}

void EnvironmentGroup::Max(std::vector<double>* values) {
  const int64_t count = static_cast<int64_t>(values->size());
  const std::string name = "hvd_perf.max." + std::to_string(count);
  hvd_request request;
  hvd_request_default(&request);
  request.op = HVD_ALLREDUCE;
  request.dtype = HVD_FLOAT64;
  request.reduce_op = HVD_MAX;
  request.ndim = 1;
  request.shape = &count;
  request.name = name.c_str();
  request.input = {values->data(), values->size() * sizeof(double), HVD_CPU, 0};
  request.output = request.input;
  Require(hvd_run(nullptr, &request, nullptr), "gathering the samples");
}

}  // namespace hvd_perf
