// SPDX-License-Identifier: Apache-2.0
// Gloo's allreduce over TCP on the loopback, float32, in place. ALGO: ring (Gloo's default) or halving_doubling.
#include <gloo/allreduce.h>
#include <gloo/allreduce_halving_doubling.h>
#include <gloo/barrier.h>
#include <gloo/rendezvous/context.h>
#include <gloo/rendezvous/file_store.h>
#include <gloo/rendezvous/prefix_store.h>
#include <gloo/transport/tcp/device.h>
#include <sys/wait.h>

#include <filesystem>
#include <functional>
#include <memory>

#include "common.h"

namespace {

using ContextPtr = std::shared_ptr<gloo::rendezvous::Context>;

void SumFloats(void* out, const void* a, const void* b, size_t n) {
  auto* __restrict x = static_cast<float*>(out);
  const auto *p = static_cast<const float*>(a), *q = static_cast<const float*>(b);
  for (size_t i = 0; i < n; ++i) x[i] = p[i] + q[i];
}

void MaxDoubles(void* out, const void* a, const void* b, size_t n) {
  auto* x = static_cast<double*>(out);
  const auto *p = static_cast<const double*>(a), *q = static_cast<const double*>(b);
  for (size_t i = 0; i < n; ++i) x[i] = std::max(p[i], q[i]);
}

void Barrier(const ContextPtr& context) {
  gloo::BarrierOptions options(context);
  options.setTag(9);
  gloo::barrier(options);
}

// The operation under test on `data`; what it captures lives as long as it.
std::function<void()> MakeAllreduce(const ContextPtr& context, float* data, size_t count) {
  const char* algorithm = std::getenv("ALGO");
  if (algorithm != nullptr && std::string(algorithm) == "halving_doubling") {
    auto sum = std::make_shared<gloo::ReductionFunction<float>>(
        gloo::SUM, [](float* a, const float* b, size_t n) { SumFloats(a, a, b, n); });
    auto run = std::make_shared<gloo::AllreduceHalvingDoubling<float>>(context, std::vector<float*>{data},
                                                                       static_cast<int>(count), sum.get());
    return [sum, run] { run->run(); };
  }
  auto options = std::make_shared<gloo::AllreduceOptions>(context);
  options->setOutput(data, count);
  options->setReduceFunction(SumFloats);
  auto tag = std::make_shared<uint32_t>(0);
  return [options, tag] {
    options->setTag((*tag)++ & 0xff);
    gloo::allreduce(*options);
  };
}

bool RunSize(const peers::Settings& settings, int rank, size_t bytes, const ContextPtr& context,
             const ContextPtr& control) {
  const size_t count = bytes / sizeof(float);
  float* data = peers::AllocateBuffer(bytes);
  for (size_t i = 0; i < count; ++i) data[i] = rank + 1;
  const auto allreduce = MakeAllreduce(context, data, count);
  allreduce();
  const float expected = settings.ranks * (settings.ranks + 1) / 2;
  for (size_t i = 0; i < count; ++i) {
    if (data[i] != expected) return false;
  }
  peers::Refresh(data, count);
  for (int i = 0; i < settings.Warmup(bytes); ++i) allreduce();
  std::vector<double> times(settings.Iterations(bytes));
  for (double& time : times) {
    if (settings.fresh) {
      peers::Refresh(data, count);
      Barrier(control);
    }
    const double start = peers::NowMicros();
    allreduce();
    time = peers::NowMicros() - start;
  }
  gloo::AllreduceOptions slowest(control);
  slowest.setOutput(times.data(), times.size());
  slowest.setReduceFunction(MaxDoubles);
  gloo::allreduce(slowest);
  if (rank == 0) peers::Emit("allreduce", settings.ranks, bytes, times);
  Barrier(control);
  std::free(data);
  return true;
}

bool RunRank(const peers::Settings& settings, int rank, const std::string& folder) {
  gloo::transport::tcp::attr attributes;
  attributes.hostname = "127.0.0.1";
  auto device = gloo::transport::tcp::CreateDevice(attributes);
  gloo::rendezvous::FileStore files(folder);
  gloo::rendezvous::PrefixStore main_store("main", files), control_store("control", files);
  auto context = std::make_shared<gloo::rendezvous::Context>(rank, settings.ranks);
  context->connectFullMesh(main_store, device);
  auto control = std::make_shared<gloo::rendezvous::Context>(rank, settings.ranks);
  control->connectFullMesh(control_store, device);
  for (size_t bytes : settings.Sizes()) {
    if (!RunSize(settings, rank, bytes, context, control)) return false;
  }
  Barrier(control);
  return true;
}

}  // namespace

int main() {
  const peers::Settings settings;
  std::string folder = (std::filesystem::temp_directory_path() / "gloo_bench.XXXXXX").string();
  if (mkdtemp(folder.data()) == nullptr) return 1;
  for (int rank = 0; rank < settings.ranks; ++rank) {
    if (fork() != 0) continue;
    // Not pinned: Gloo's own thread per rank wants a core of its own beside the caller.
    bool good = false;
    try {
      good = RunRank(settings, rank, folder);
    } catch (const std::exception& e) {
      std::fprintf(stderr, "rank %d: %s\n", rank, e.what());
    }
    std::fflush(stdout);
    _exit(good ? 0 : 1);
  }
  int bad = 0;
  for (int status, rank = 0; rank < settings.ranks; ++rank) {
    wait(&status);
    bad |= status;
  }
  std::filesystem::remove_all(folder);
  return bad != 0;
}
