// SPDX-License-Identifier: Apache-2.0
// MPI's collectives on float32, in place. Built once with each MPI. OPS: a comma list of allreduce (default),
// allgather, broadcast, barrier; allgather's bytes are those of each rank's block.
#include <mpi.h>

#include <functional>

#include "common.h"

namespace {

using peers::NowMicros;

struct Bench {
  peers::Settings settings;
  int rank = 0;

  void Run(const char* op, size_t bytes, float* refresh, size_t count, const std::function<void()>& body) {
    for (int i = 0; i < settings.Warmup(bytes); ++i) body();
    MPI_Barrier(MPI_COMM_WORLD);
    std::vector<double> times(settings.Iterations(bytes)), slowest(times.size());
    for (double& time : times) {
      if (settings.fresh) {
        if (refresh != nullptr) peers::Refresh(refresh, count);
        MPI_Barrier(MPI_COMM_WORLD);
      }
      const double start = NowMicros();
      body();
      time = NowMicros() - start;
    }
    MPI_Reduce(times.data(), slowest.data(), static_cast<int>(times.size()), MPI_DOUBLE, MPI_MAX, 0, MPI_COMM_WORLD);
    if (rank == 0) peers::Emit(op, settings.ranks, bytes, slowest);
  }

  void Allreduce(size_t bytes) {
    const size_t count = bytes / sizeof(float);
    float* data = peers::AllocateBuffer(bytes);
    const auto body = [&] {
      MPI_Allreduce(MPI_IN_PLACE, data, static_cast<int>(count), MPI_FLOAT, MPI_SUM, MPI_COMM_WORLD);
    };
    for (size_t i = 0; i < count; ++i) data[i] = rank + 1;
    body();
    const float expected = settings.ranks * (settings.ranks + 1) / 2;
    for (size_t i = 0; i < count; ++i) {
      if (data[i] != expected) MPI_Abort(MPI_COMM_WORLD, 1);
    }
    peers::Refresh(data, count);
    Run("allreduce", bytes, data, count, body);
    std::free(data);
  }

  void Allgather(size_t bytes) {
    const int count = static_cast<int>(bytes / sizeof(float));
    float* data = peers::AllocateBuffer(bytes * settings.ranks);
    Run("allgather", bytes, data + static_cast<size_t>(rank) * count, count,
        [&] { MPI_Allgather(MPI_IN_PLACE, 0, MPI_FLOAT, data, count, MPI_FLOAT, MPI_COMM_WORLD); });
    std::free(data);
  }

  void Broadcast(size_t bytes) {
    const int count = static_cast<int>(bytes / sizeof(float));
    float* data = peers::AllocateBuffer(bytes);
    Run("broadcast", bytes, data, count, [&] { MPI_Bcast(data, count, MPI_FLOAT, 0, MPI_COMM_WORLD); });
    std::free(data);
  }
};

}  // namespace

int main(int argc, char** argv) {
  MPI_Init(&argc, &argv);
  Bench bench;
  MPI_Comm_rank(MPI_COMM_WORLD, &bench.rank);
  MPI_Comm_size(MPI_COMM_WORLD, &bench.settings.ranks);
  const char* text = std::getenv("OPS");
  const std::string ops = text != nullptr ? text : "allreduce";
  const auto wanted = [&](const char* op) { return ops.find(op) != std::string::npos; };
  for (size_t bytes : bench.settings.Sizes()) {
    if (wanted("allreduce")) bench.Allreduce(bytes);
    if (wanted("allgather")) bench.Allgather(bytes);
    if (wanted("broadcast")) bench.Broadcast(bytes);
  }
  if (wanted("barrier")) bench.Run("barrier", 0, nullptr, 0, [] { MPI_Barrier(MPI_COMM_WORLD); });
  MPI_Finalize();
}
