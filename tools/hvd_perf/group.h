// SPDX-License-Identifier: Apache-2.0
#pragma once
#include <atomic>
#include <cstdint>
#include <vector>

#include "hvd_perf/options.h"

namespace hvd_perf {

// The ranks of one run, for what surrounds the timed operation: a barrier with little skew, and gathering the samples.
//
// Thread safety: one thread per rank.
class Group {
 public:
  virtual ~Group() = default;
  virtual int rank() const = 0;
  virtual int size() const = 0;
  virtual void Barrier() = 0;
  // Replaces each value by the largest of all ranks. Every rank passes equally many.
  virtual void Max(std::vector<double>* values) = 0;
};

// Memory that the forked processes of one run share with their parent.
//
// Lifetime: made before the fork; each process keeps its own mapping until it ends.
class SharedArea {
 public:
  SharedArea(int ranks, uint64_t samples);
  ~SharedArea();
  SharedArea(const SharedArea&) = delete;
  SharedArea& operator=(const SharedArea&) = delete;

  int ranks() const { return ranks_; }
  // Looks at a flag that a waiting rank takes before it yields. Counted before ranks are pinned.
  int spins() const { return spins_; }
  std::atomic<uint64_t>& flag(int rank) { return flags_[rank].value; }
  double* row(int rank) { return values_ + rank * samples_; }

  // A gate holds sleeping ranks, any number per core, until the parent opens it. It opens once.
  void ArriveAtGate();
  void AwaitArrivals();
  void OpenGate();

 private:
  struct alignas(128) Flag {  // two lines: adjacent-line prefetch would couple neighbours
    std::atomic<uint64_t> value;
  };
  int ranks_;
  int spins_;
  uint64_t samples_;
  uint64_t bytes_;
  void* memory_;
  std::atomic<uint32_t>* arrived_;
  std::atomic<uint32_t>* open_;
  Flag* flags_;
  double* values_;
};

// Ranks started by this program; libhvd takes no part in their barrier.
class ForkedGroup : public Group {
 public:
  ForkedGroup(SharedArea* area, int rank) : area_(area), rank_(rank) {}
  int rank() const override { return rank_; }
  int size() const override { return area_->ranks(); }
  void Barrier() override;
  void Max(std::vector<double>* values) override;

 private:
  SharedArea* area_;
  int rank_;
  uint64_t turn_ = 0;
};

// Ranks started by somebody else, on any hosts: everything goes through libhvd. Needs hvd_init.
class EnvironmentGroup : public Group {
 public:
  EnvironmentGroup();
  int rank() const override { return rank_; }
  int size() const override { return size_; }
  void Barrier() override;
  void Max(std::vector<double>* values) override;

 private:
  int rank_;
  int size_;
};

}  // namespace hvd_perf
