// SPDX-License-Identifier: Apache-2.0
#include "hvd_perf/lifecycle_bench.h"

#include <sys/resource.h>
#include <time.h>

#include <algorithm>
#include <cstdio>
#include <cstring>
#include <string>
#include <vector>

#include "hvd/hvd.h"
#include "hvd_perf/group.h"
#include "hvd_perf/process.h"
#include "hvd_perf/report.h"

namespace hvd_perf {
namespace {

// A value in MiB of a "Name:   1234 kB" line.
double MegaBytesOf(const char* path, const char* name) {
  std::FILE* file = std::fopen(path, "r");
  if (file == nullptr) return 0;
  char line[256];
  double kilobytes = 0;
  const size_t length = std::strlen(name);
  while (std::fgets(line, sizeof line, file) != nullptr) {
    if (std::strncmp(line, name, length) == 0 && line[length] == ':') std::sscanf(line + length + 1, "%lf", &kilobytes);
  }
  std::fclose(file);
  return kilobytes / 1024;
}

// RSS with its parts; PSS counts a page that k processes share as 1/k.
constexpr struct {
  const char* figure;
  const char* path;
  const char* name;
} kMemory[] = {{"rss_mib", "/proc/self/status", "VmRSS"},
               {"rss_anon_mib", "/proc/self/status", "RssAnon"},
               {"rss_file_mib", "/proc/self/status", "RssFile"},
               {"rss_shmem_mib", "/proc/self/status", "RssShmem"},
               {"pss_mib", "/proc/self/smaps_rollup", "Pss"}};

std::vector<double> MemoryNow() {
  std::vector<double> values;
  for (const auto& entry : kMemory) values.push_back(MegaBytesOf(entry.path, entry.name));
  return values;
}

void SmallAllreduce() {
  float value = 1;
  hvd_request request;
  hvd_request_default(&request);
  request.op = HVD_ALLREDUCE;
  request.dtype = HVD_FLOAT32;
  request.reduce_op = HVD_SUM;
  request.name = "hvd_perf.small";
  request.input = {&value, sizeof value, HVD_CPU, 0};
  request.output = request.input;
  Require(hvd_run(nullptr, &request, nullptr), "a 4 byte allreduce");
}

struct CpuUse {
  double seconds;
  double switches;
};

// Of all threads of this process.
CpuUse CpuNow() {
  rusage usage{};
  getrusage(RUSAGE_SELF, &usage);
  timespec cpu{};
  clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &cpu);
  return {cpu.tv_sec + cpu.tv_nsec * 1e-9, static_cast<double>(usage.ru_nvcsw)};
}

void Sleep(double seconds) {
  timespec left{static_cast<time_t>(seconds), static_cast<long>((seconds - static_cast<time_t>(seconds)) * 1e9)};
  while (nanosleep(&left, &left) != 0) {
  }
}

// Seconds from the first rank's call of hvd_init to the last one's return. Processes are new for each repetition: a
// second init in the same process would find memory and mappings warm. Negative: a rank failed.
double TimeOneInit(const Options& options) {
  SharedArea area(options.ranks, 2);
  Rendezvous rendezvous(options.tcp_store);
  const auto body = [&](int rank) {
    PinRank(options, rank, options.ranks);
    area.ArriveAtGate();
    area.row(rank)[0] = NowMicros();
    InitRank(rendezvous.address(), rank, options.ranks);
    area.row(rank)[1] = NowMicros();
    ForkedGroup(&area, rank).Barrier();
    Require(hvd_shutdown(nullptr), "hvd_shutdown");
  };
  const auto start = [&] {
    area.AwaitArrivals();
    area.OpenGate();
  };
  if (RunRanks(options, body, start) != 0) return -1;
  double first = area.row(0)[0], last = area.row(0)[1];
  for (int rank = 1; rank < options.ranks; ++rank) {
    first = std::min(first, area.row(rank)[0]);
    last = std::max(last, area.row(rank)[1]);
  }
  return (last - first) / 1e6;
}

}  // namespace

int RunInitBench(const Options& options) {
  std::vector<double> seconds;
  for (int i = 0; i < options.repeats; ++i) {
    seconds.push_back(TimeOneInit(options));
    if (seconds.back() < 0) return 1;
  }
  std::sort(seconds.begin(), seconds.end());
  const Figures figures = {{"ranks", static_cast<double>(options.ranks)},
                           {"repeats", static_cast<double>(options.repeats)},
                           {"min_s", seconds.front()},
                           {"median_s", seconds[seconds.size() / 2]},
                           {"max_s", seconds.back()}};
  ReportFigures(options, "init, processes already started", figures);
  return 0;
}

int RunIdleBench(const Options& options) {
  SharedArea area(options.ranks, 2);
  Rendezvous rendezvous(options.tcp_store);
  return RunRanks(options, [&](int rank) {
    PinRank(options, rank, options.ranks);
    InitRank(rendezvous.address(), rank, options.ranks);
    ForkedGroup group(&area, rank);
    SmallAllreduce();
    group.Barrier();
    Sleep(0.2);  // what follows an operation (spinning, saying goodbye to the rendezvous) is not idling
    const CpuUse before = CpuNow();
    const double start = NowMicros();
    Sleep(options.idle_s);
    const double elapsed = (NowMicros() - start) / 1e6;
    const CpuUse after = CpuNow();
    std::vector<double> worst = {100 * (after.seconds - before.seconds) / elapsed,
                                 (after.switches - before.switches) / elapsed};
    group.Max(&worst);
    SmallAllreduce();  // still alive
    Require(hvd_shutdown(nullptr), "hvd_shutdown");
    if (rank != 0) return;
    const Figures figures = {{"ranks", static_cast<double>(options.ranks)},
                             {"seconds", options.idle_s},
                             {"cpu_percent", worst[0]},
                             {"context_switches_per_s", worst[1]}};
    ReportFigures(options, "idle after init, worst rank", figures);
  });
}

int RunMemoryBench(const Options& options) {
  constexpr size_t kParts = std::size(kMemory);
  SharedArea area(options.ranks, 2 * kParts);
  Rendezvous rendezvous(options.tcp_store);
  return RunRanks(options, [&](int rank) {
    ForkedGroup group(&area, rank);
    MemoryNow();  // the reading itself touches pages of the C library the first time
    group.Barrier();
    const std::vector<double> before = MemoryNow();
    group.Barrier();  // PSS is counted over all ranks: nobody goes on while another reads
    InitRank(rendezvous.address(), rank, options.ranks);
    group.Barrier();
    std::vector<double> added = MemoryNow();
    group.Barrier();
    SmallAllreduce();
    group.Barrier();
    const std::vector<double> later = MemoryNow();
    added.insert(added.end(), later.begin(), later.end());
    for (size_t i = 0; i < added.size(); ++i) added[i] -= before[i % kParts];
    group.Max(&added);
    Require(hvd_shutdown(nullptr), "hvd_shutdown");
    if (rank != 0) return;
    Figures figures = {{"ranks", static_cast<double>(options.ranks)}};
    for (size_t i = 0; i < added.size(); ++i) {
      figures.emplace_back((i < kParts ? "init_" : "first_op_") + std::string(kMemory[i % kParts].figure), added[i]);
    }
    ReportFigures(options, "memory added since before init, worst rank", figures);
  });
}

}  // namespace hvd_perf
