// SPDX-License-Identifier: Apache-2.0
#include "hvd/launch/plan/cores.h"

#include <algorithm>
#include <charconv>

#include "hvd/launch/run/spawn.h"

namespace hvd::launch {
namespace {

constexpr const char* kThreads = "OMP_NUM_THREADS";
constexpr const char* kCores = "HOROVOD_CORES_PER_RANK";

int ThreadsOf(int local_size) { return std::max(1, static_cast<int>(OwnCores().size()) / local_size); }

}  // namespace

Result<std::vector<int>> ShareCores(const Slot& slot, Environment* environment) {
  const auto text = environment->Get(kCores);
  const bool has_threads = environment->Get(kThreads).has_value();
  if (!text) {
    if (!has_threads && slot.local_size > 1) environment->Set(kThreads, fmt::format("{}", ThreadsOf(slot.local_size)));
    return std::vector<int>();
  }
  int wanted = 0;
  const auto [end, error] = std::from_chars(text->data(), text->data() + text->size(), wanted);
  if (error != std::errc() || end != text->data() + text->size() || wanted < 1) {
    return Fail(Code::kInvalidArgument, "{}={}: expected a whole number from 1 on", kCores, *text);
  }
  const std::vector<int> cores = OwnCores();
  const size_t first = static_cast<size_t>(slot.local_rank) * static_cast<size_t>(wanted);
  if (first + static_cast<size_t>(wanted) > cores.size()) {
    return Fail(Code::kInvalidArgument, "--cores-per-rank {}: host {} has {} cores for {} ranks", wanted, slot.host,
                cores.size(), slot.local_size);
  }
  if (!has_threads) environment->Set(kThreads, fmt::format("{}", wanted));
  return std::vector<int>(cores.begin() + static_cast<std::ptrdiff_t>(first),
                          cores.begin() + static_cast<std::ptrdiff_t>(first) + wanted);
}

std::string DescribeShare(int local_size, const Environment& environment) {
  if (local_size < 2 || environment.Get(kCores)) return {};
  const int cores = static_cast<int>(OwnCores().size());
  std::string share;
  if (!environment.Get(kThreads)) {
    share = fmt::format("{}={} is set for each rank, because {} ranks share {} cores; set it yourself to change it",
                        kThreads, ThreadsOf(local_size), local_size, cores);
  }
  if (local_size <= cores) return share;
  return fmt::format("{}{}{} ranks on {} cores: up to {} ranks share a core and slow each other down", share,
                     share.empty() ? "" : ". ", local_size, cores, (local_size + cores - 1) / cores);
}

}  // namespace hvd::launch
