// SPDX-License-Identifier: Apache-2.0
// MPI's collectives on float32; allreduce and broadcast in place. Built once with each MPI. OPS: a comma list of
// allreduce (default), allgather, broadcast, alltoall, reducescatter, barrier. Bytes are those of a block: each rank's
// input; alltoall: what one rank sends to one; reducescatter: each rank's output.
#include <mpi.h>

#include <functional>

#include "common.h"

namespace {

using peers::NowMicros;

struct Bench {
  peers::Settings settings;
  int rank = 0;

  static void Expect(float value, float expected) {
    if (value != expected) MPI_Abort(MPI_COMM_WORLD, 1);
  }

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
    for (size_t i = 0; i < count; ++i) Expect(data[i], expected);
    peers::Refresh(data, count);
    Run("allreduce", bytes, data, count, body);
    std::free(data);
  }

  // Not in place: Horovod's allgather has an output of its own, too.
  void Allgather(size_t bytes) {
    const int count = static_cast<int>(bytes / sizeof(float));
    float *in = peers::AllocateBuffer(bytes), *out = peers::AllocateBuffer(bytes * settings.ranks);
    const auto body = [&] { MPI_Allgather(in, count, MPI_FLOAT, out, count, MPI_FLOAT, MPI_COMM_WORLD); };
    for (int i = 0; i < count; ++i) in[i] = rank + 1;
    body();
    for (int i = 0; i < count * settings.ranks; ++i) Expect(out[i], i / count + 1);
    Run("allgather", bytes, in, count, body);
    std::free(in);
    std::free(out);
  }

  // Rank s sends s * ranks + d to rank d.
  void Alltoall(size_t bytes) {
    const size_t count = bytes / sizeof(float), ranks = settings.ranks;
    float *in = peers::AllocateBuffer(bytes * ranks), *out = peers::AllocateBuffer(bytes * ranks);
    const int n = static_cast<int>(count);
    const auto body = [&] { MPI_Alltoall(in, n, MPI_FLOAT, out, n, MPI_FLOAT, MPI_COMM_WORLD); };
    for (size_t i = 0; i < count * ranks; ++i) in[i] = static_cast<float>(rank * ranks + i / count);
    body();
    for (size_t i = 0; i < count * ranks; ++i) Expect(out[i], static_cast<float>(i / count * ranks + rank));
    Run("alltoall", bytes, in, count * ranks, body);
    std::free(in);
    std::free(out);
  }

  void Reducescatter(size_t bytes) {
    const size_t count = bytes / sizeof(float), ranks = settings.ranks;
    float *in = peers::AllocateBuffer(bytes * ranks), *out = peers::AllocateBuffer(bytes);
    const int n = static_cast<int>(count);
    const auto body = [&] { MPI_Reduce_scatter_block(in, out, n, MPI_FLOAT, MPI_SUM, MPI_COMM_WORLD); };
    for (size_t i = 0; i < count * ranks; ++i) in[i] = static_cast<float>(rank + i / count);
    body();
    const float expected = static_cast<float>(ranks * (ranks - 1) / 2 + ranks * rank);
    for (size_t i = 0; i < count; ++i) Expect(out[i], expected);
    Run("reducescatter", bytes, in, count * ranks, body);
    std::free(in);
    std::free(out);
  }

  void Broadcast(size_t bytes) {
    const int count = static_cast<int>(bytes / sizeof(float));
    float* data = peers::AllocateBuffer(bytes);
    const auto body = [&] { MPI_Bcast(data, count, MPI_FLOAT, 0, MPI_COMM_WORLD); };
    for (int i = 0; i < count; ++i) data[i] = rank + 1;
    body();
    for (int i = 0; i < count; ++i) Expect(data[i], 1);
    Run("broadcast", bytes, data, count, body);
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
    if (wanted("alltoall")) bench.Alltoall(bytes);
    if (wanted("reducescatter")) bench.Reducescatter(bytes);
  }
  if (wanted("barrier")) bench.Run("barrier", 0, nullptr, 0, [] { MPI_Barrier(MPI_COMM_WORLD); });
  MPI_Finalize();
}
