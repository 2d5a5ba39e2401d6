// SPDX-License-Identifier: Apache-2.0
#include "hvd_perf/collective_bench.h"

#include <algorithm>
#include <memory>
#include <string>

#include "hvd/hvd.h"
#include "hvd_perf/buffer.h"
#include "hvd_perf/process.h"
#include "hvd_perf/values.h"

namespace hvd_perf {
namespace {

constexpr int kRoot = 0;

// One operation that is run again and again: its name, buffers and request.
class Operation {
 public:
  Operation(const Options& options, const Group& group, uint64_t bytes, int slot)
      : options_(options), rank_(group.rank()), ranks_(group.size()), count_(bytes / ElementSize(options.dtype)) {
    name_ = "hvd_perf." + options.op_name + "." + std::to_string(bytes) + "." + std::to_string(slot);
    hvd_request_default(&request_);
    request_.op = options.op;
    request_.name = name_.c_str();
    if (options.op != HVD_BARRIER) Describe(bytes);
    if (options.prepared) {
      uint64_t id = 0;
      Require(hvd_prepare(nullptr, &request_, &id), "hvd_prepare");
      request_.prepared = id;
      request_.name = nullptr;
    }
  }

  // What a backward pass does: the whole input is written anew by its rank.
  void Refresh() {
    if (input_) input_->Clear();
    if (options_.new_pages) output_->DropPages();
  }
  void Run() { Require(hvd_run(nullptr, &request_, nullptr), name_); }
  void Submit() { Require(hvd_submit(nullptr, &request_, &handle_), name_); }
  void Finish() {
    Require(hvd_wait(nullptr, handle_, -1), name_);
    Require(hvd_release(nullptr, handle_), name_);
  }

  void FillForCheck() {
    if (output_) output_->Clear();
    if (input_)
      FillInput(input_->data(), static_cast<uint64_t>(shape_), options_.dtype, options_.reduce_op, rank_, ranks_);
  }
  void Check() {
    std::string wrong;
    const void* result = output_ ? output_->data() : input_ ? input_->data() : nullptr;
    if (options_.op == HVD_ALLREDUCE) {
      wrong = CheckAllreduce(result, count_, options_.dtype, options_.reduce_op, ranks_);
    } else if (options_.op == HVD_ALLGATHER) {
      wrong = CheckAllgather(result, count_, options_.dtype, options_.reduce_op, ranks_);
    } else if (options_.op == HVD_ALLTOALL) {
      wrong = CheckAlltoall(result, count_, options_.dtype, options_.reduce_op, ranks_, rank_);
    } else if (options_.op == HVD_REDUCESCATTER) {
      wrong = CheckReducescatter(result, count_, options_.dtype, options_.reduce_op, ranks_, rank_);
    } else if (options_.op == HVD_BROADCAST) {
      wrong = CheckBroadcast(result, count_, options_.dtype, options_.reduce_op, ranks_, kRoot);
    }
    if (!wrong.empty()) Die("WRONG RESULT on rank " + std::to_string(rank_) + " of " + name_ + ": " + wrong);
  }

 private:
  void Describe(uint64_t bytes) {
    request_.dtype = options_.dtype;
    request_.reduce_op = options_.reduce_op;
    request_.flags = options_.wire;
    request_.root_rank = kRoot;
    const bool many_in = options_.op == HVD_ALLTOALL || options_.op == HVD_REDUCESCATTER;
    const bool many_out = options_.op == HVD_ALLTOALL || options_.op == HVD_ALLGATHER;
    shape_ = static_cast<int64_t>(many_in ? count_ * ranks_ : count_);
    request_.ndim = 1;
    request_.shape = &shape_;
    input_ = std::make_unique<Buffer>(many_in ? bytes * ranks_ : bytes, options_.buffers == Buffers::kArena,
                                      options_.offset);
    if (!options_.in_place) {
      output_ = std::make_unique<Buffer>(many_out ? bytes * ranks_ : bytes, options_.buffers != Buffers::kPrivate,
                                         options_.offset);
    }
    request_.input = input_->Describe();
    request_.output = output_ ? output_->Describe() : request_.input;
  }

  const Options& options_;
  int rank_;
  int ranks_;
  uint64_t count_;  // elements of a block
  int64_t shape_ = 0;
  std::string name_;
  std::unique_ptr<Buffer> input_;
  std::unique_ptr<Buffer> output_;  // null: in place
  hvd_request request_;
  hvd_handle handle_ = 0;
};

using Operations = std::vector<std::unique_ptr<Operation>>;

void RunWindow(const Options& options, const Operations& operations) {
  if (!options.async) {
    for (const auto& operation : operations) operation->Run();
    return;
  }
  for (const auto& operation : operations) operation->Submit();
  for (const auto& operation : operations) operation->Finish();
}

Row Summarize(const Options& options, std::vector<double> times, uint64_t bytes, int ranks) {
  std::sort(times.begin(), times.end());
  Row row;
  row.bytes = bytes;
  row.count = bytes / ElementSize(options.dtype);
  row.iters = static_cast<int>(times.size());
  row.min_us = times.front();
  row.median_us = times[times.size() / 2];
  row.p90_us = times[std::min(times.size() - 1, times.size() * 9 / 10)];
  const bool blocks = options.op == HVD_ALLGATHER || options.op == HVD_ALLTOALL || options.op == HVD_REDUCESCATTER;
  row.algbw = (blocks ? bytes * ranks : bytes) / row.median_us / 1e3;
  const double share = static_cast<double>(ranks - 1) / ranks;
  row.busbw = row.algbw * (options.op == HVD_ALLREDUCE ? 2 * share : blocks ? share : 1);
  return row;
}

Row RunSize(const Options& options, Group* group, uint64_t bytes) {
  Operations operations;
  const int window = options.async ? options.window : 1;
  for (int slot = 0; slot < window; ++slot) {
    operations.push_back(std::make_unique<Operation>(options, *group, bytes, slot));
  }
  group->Barrier();
  // Thrice: the first run of a name takes the cold road, later ones the cached one.
  for (int turn = 0; options.check && turn < 3; ++turn) {
    for (const auto& operation : operations) operation->FillForCheck();
    group->Barrier();
    RunWindow(options, operations);
    for (const auto& operation : operations) operation->Check();
    group->Barrier();
  }
  for (const auto& operation : operations) operation->Refresh();
  const int iters = IterationsFor(options, bytes, group->size());
  const int warmup = options.warmup >= 0 ? options.warmup : std::max(2, iters / 10);
  for (int i = 0; i < warmup; ++i) RunWindow(options, operations);
  group->Barrier();
  std::vector<double> times(iters);
  for (double& time : times) {
    if (options.fresh) {
      for (const auto& operation : operations) operation->Refresh();
      group->Barrier();
    }
    const double start = NowMicros();
    RunWindow(options, operations);
    time = (NowMicros() - start) / window;
  }
  group->Max(&times);
  return Summarize(options, std::move(times), bytes, group->size());
}

}  // namespace

int IterationsFor(const Options& options, uint64_t bytes, int ranks) {
  if (options.iters > 0) return options.iters;
  constexpr struct {
    uint64_t bytes;
    int iters;
  } kTable[] = {{1u << 10, 4000}, {16u << 10, 2000}, {64u << 10, 1000}, {256u << 10, 500},
                {1u << 20, 200},  {4u << 20, 60},    {16u << 20, 20},   {64u << 20, 8}};
  int iters = 5;
  for (const auto& entry : kTable) {
    if (bytes <= entry.bytes) {
      iters = entry.iters;
      break;
    }
  }
  if (ranks > 2) iters /= 4;
  return std::max(3, iters / (options.async ? options.window : 1));
}

std::vector<Row> RunCollectiveBench(const Options& options, Group* group) {
  std::vector<Row> rows;
  for (uint64_t bytes : options.sizes) rows.push_back(RunSize(options, group, bytes));
  return rows;
}

}  // namespace hvd_perf
