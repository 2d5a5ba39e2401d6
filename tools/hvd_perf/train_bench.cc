// SPDX-License-Identifier: Apache-2.0
#include "hvd_perf/train_bench.h"

#include <algorithm>
#include <functional>
#include <memory>

#include "hvd/hvd.h"
#include "hvd_perf/buffer.h"
#include "hvd_perf/compute.h"
#include "hvd_perf/process.h"

namespace hvd_perf {
namespace {

// One gradient and the operation that averages it, in place.
class Reduction {
 public:
  Reduction(const std::string& name, const Gradient& gradient, bool arena)
      : name_(name),
        ready_(gradient.ready),
        count_(static_cast<int64_t>(gradient.elements)),
        buffer_(gradient.elements * sizeof(float), arena, kAsMalloc) {
    hvd_request_default(&request_);
    request_.op = HVD_ALLREDUCE;
    request_.dtype = HVD_FLOAT32;
    request_.reduce_op = HVD_AVERAGE;
    request_.name = name_.c_str();
    request_.ndim = 1;
    request_.shape = &count_;
    request_.input = buffer_.Describe();
    request_.output = request_.input;
  }
  Reduction(const Reduction&) = delete;
  Reduction& operator=(const Reduction&) = delete;

  double ready() const { return ready_; }
  // What the backward pass does last for it.
  void Write(float value) { std::fill(values(), values() + count_, value); }
  void Submit() { Require(hvd_submit(nullptr, &request_, &handle_), name_); }
  void Finish() {
    Require(hvd_wait(nullptr, handle_, -1), name_);
    Require(hvd_release(nullptr, handle_), name_);
  }
  bool Holds(float value) {
    return std::all_of(values(), values() + count_, [value](float found) { return found == value; });
  }

 private:
  float* values() { return static_cast<float*>(buffer_.data()); }

  std::string name_;
  double ready_;
  int64_t count_;
  Buffer buffer_;
  hvd_request request_;
  hvd_handle handle_ = 0;
};

double Median(std::vector<double> values) {
  std::nth_element(values.begin(), values.begin() + values.size() / 2, values.end());
  return values[values.size() / 2];
}

class Training {
 public:
  Training(const Options& options, Group* group) : group_(group), value_(static_cast<float>(group->rank())) {
    for (const Gradient& gradient : options.model->gradients) {
      const std::string name = "hvd_perf.train." + std::to_string(reductions_.size());
      reductions_.push_back(std::make_unique<Reduction>(name, gradient, options.buffers == Buffers::kArena));
    }
  }

  void Check() {
    Refresh();
    Communicate();
    const float expected = static_cast<float>(group_->size() - 1) / 2;
    for (const auto& reduction : reductions_) {
      if (!reduction->Holds(expected)) Die("WRONG RESULT of training on rank " + std::to_string(group_->rank()));
    }
  }

  double TimeCommunication() {
    Refresh();
    return Time([this] { Communicate(); });
  }

  // What an accelerator writes is there when it is due: this core, which has to write it in its place, does so before.
  double TimeStep(Compute* compute, bool reduce) {
    if (!compute->writes()) Refresh();
    return Time([&] {
      compute->Begin();
      for (const auto& reduction : reductions_) {
        compute->Until(reduction->ready());
        if (compute->writes()) reduction->Write(value_);
        if (reduce) reduction->Submit();
      }
      for (const auto& reduction : reductions_) {
        if (reduce) reduction->Finish();
      }
    });
  }

 private:
  void Refresh() {
    for (const auto& reduction : reductions_) reduction->Write(value_);
  }
  void Communicate() {
    for (const auto& reduction : reductions_) reduction->Submit();
    for (const auto& reduction : reductions_) reduction->Finish();
  }
  // Seconds of this rank, from a common start.
  double Time(const std::function<void()>& action) {
    group_->Barrier();
    const double start = NowMicros();
    action();
    return (NowMicros() - start) / 1e6;
  }

  Group* group_;
  float value_;
  std::vector<std::unique_ptr<Reduction>> reductions_;
};

double MedianOfSlowest(Group* group, std::vector<double> times) {
  group->Max(&times);
  return Median(std::move(times));
}

TrainRow Measure(const std::string& name, Compute* compute, int steps, Training* training, Group* group) {
  std::vector<double> without, alone, with;
  for (int i = 0; i < steps; ++i) {
    without.push_back(training->TimeStep(compute, false));
    alone.push_back(training->TimeCommunication());
    with.push_back(training->TimeStep(compute, true));
  }
  return {name, steps, MedianOfSlowest(group, without), MedianOfSlowest(group, alone), MedianOfSlowest(group, with)};
}

}  // namespace

int StepsFor(const Options& options) { return options.iters > 0 ? options.iters : 10; }

std::vector<TrainRow> RunTrainBench(const Options& options, Group* group) {
  Training training(options, group);
  // Thrice: the first run of a name takes the cold road, later ones the cached one.
  for (int turn = 0; turn < 3; ++turn) training.Check();
  std::vector<double> alone(kMostCalibrations);
  for (double& time : alone) time = training.TimeCommunication();
  const double seconds = options.ratio * MedianOfSlowest(group, alone);
  std::vector<TrainRow> rows;
  if (options.wait) {
    rows.push_back(Measure("wait", WaitingCompute(seconds).get(), StepsFor(options), &training, group));
  }
  if (options.busy) {
    rows.push_back(Measure("busy", BusyCompute(seconds, group).get(), StepsFor(options), &training, group));
  }
  return rows;
}

}  // namespace hvd_perf
