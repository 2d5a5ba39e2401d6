// SPDX-License-Identifier: Apache-2.0
// hvd_perf: how fast libhvd is on this machine, measured through its C ABI. See --help and docs/operate/benchmarks.md.
#include <algorithm>

#include "hvd/hvd.h"
#include "hvd_perf/collective_bench.h"
#include "hvd_perf/compute.h"
#include "hvd_perf/group.h"
#include "hvd_perf/lifecycle_bench.h"
#include "hvd_perf/options.h"
#include "hvd_perf/process.h"
#include "hvd_perf/report.h"
#include "hvd_perf/train_bench.h"

namespace hvd_perf {
namespace {

// The most times that a rank has at once.
uint64_t Samples(const Options& options) {
  uint64_t samples = std::max(StepsFor(options), kMostCalibrations);
  for (uint64_t bytes : options.sizes) {
    samples = std::max<uint64_t>(samples, IterationsFor(options, bytes, options.ranks));
  }
  return samples;
}

// As one rank of an initialised job, to its end; rank 0 reports.
void Measure(const Options& options, Group* group) {
  std::vector<Row> rows;
  std::vector<TrainRow> steps;
  if (options.bench == Bench::kTrain) {
    steps = RunTrainBench(options, group);
  } else {
    rows = RunCollectiveBench(options, group);
  }
  Require(hvd_shutdown(nullptr), "hvd_shutdown");
  if (group->rank() != 0) return;
  if (options.bench == Bench::kTrain) {
    ReportTraining(options, group->size(), steps);
  } else {
    ReportRows(options, group->size(), rows);
  }
}

int RunForked(const Options& options) {
  SharedArea area(options.ranks, Samples(options));
  Rendezvous rendezvous(options.tcp_store);
  return RunRanks(options, [&](int rank) {
    PinRank(options, rank, options.ranks);
    InitRank(rendezvous.address(), rank, options.ranks);
    ForkedGroup group(&area, rank);
    Measure(options, &group);
  });
}

int RunInEnvironment(const Options& options) {
  Require(hvd_init(nullptr, nullptr), "hvd_init");
  int32_t local_rank = 0, local_size = 1;
  Require(hvd_query(nullptr, HVD_LOCAL_RANK, &local_rank), "local rank");
  Require(hvd_query(nullptr, HVD_LOCAL_SIZE, &local_size), "local size");
  PinRank(options, local_rank, local_size);
  EnvironmentGroup group;
  Measure(options, &group);
  return 0;
}

int Main(int argc, char** argv) {
  int exit_code = 0;
  const std::optional<Options> options = ParseOptions(argc, argv, &exit_code);
  if (!options) return exit_code;
  switch (options->bench) {
    case Bench::kInit:
      return RunInitBench(*options);
    case Bench::kIdle:
      return RunIdleBench(*options);
    case Bench::kMemory:
      return RunMemoryBench(*options);
    case Bench::kCollective:
    case Bench::kTrain:
      break;
  }
  return options->fork ? RunForked(*options) : RunInEnvironment(*options);
}

}  // namespace
}  // namespace hvd_perf

int main(int argc, char** argv) { return hvd_perf::Main(argc, argv); }
