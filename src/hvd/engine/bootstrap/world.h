// SPDX-License-Identifier: Apache-2.0
#pragma once
// The job as one rank finds it after rendezvous: who is where, and the connections to them. bootstrap/bootstrap.h makes
// one from a store; tests and simulators make one by hand.

#include <atomic>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "hvd/algorithms/table.h"
#include "hvd/base/config.h"
#include "hvd/base/types.h"
#include "hvd/loop/loop.h"
#include "hvd/mpi/library.h"
#include "hvd/net/crypto.h"
#include "hvd/transport/pair.h"
#include "hvd/transport/window.h"
#include "hvd/tune/csv_log.h"

namespace hvd::engine {

struct RankInfo {
  std::string host_id;
  std::string hostname;
  int pid = 0;
};

// Where this rank stands among the others.
struct Layout {
  // As found by the hosts' identities: what the engine works with.
  Rank rank = 0;
  int size = 1;
  int local_rank = 0;
  int local_size = 1;
  int cross_rank = 0;
  int cross_size = 1;
  bool homogeneous = true;
  // What users are told: the launcher's values where it gave them, else the same as above.
  struct Reported {
    int local_rank = 0;
    int local_size = 1;
    int cross_rank = 0;
    int cross_size = 1;
  } reported;
  std::vector<int> host_of;       // by rank: index of the host, hosts ordered by their lowest rank
  std::vector<Rank> local_ranks;  // ranks of this host, ascending

  // Index into local_ranks, which is the window's; -1 for a rank of another host.
  int LocalOf(Rank other) const;
};

// Settings that must be equal on all ranks; rank 0's count.
struct SharedSettings {
  int64_t eager_bytes = 64 << 10;
  int64_t chunk_bytes = 64 << 10;
  int64_t fusion_threshold = 128 << 20;
  int64_t cache_capacity = 1024;
  std::string algorithms{};  // no rank's counts alone: those who differ do not start
};

struct World {
  Layout layout;
  int generation = 0;
  SharedSettings settings;
  std::vector<RankInfo> ranks;
  std::unique_ptr<loop::Loop> loop;
  // Set by the window's watcher when a peer left or died.
  std::shared_ptr<std::atomic<bool>> peers_changed = std::make_shared<std::atomic<bool>>(false);
  std::unique_ptr<transport::Window> window;            // the ranks of this host; nullptr: no shared memory
  std::vector<std::unique_ptr<transport::Pair>> pairs;  // by rank; nullptr for this one
  std::vector<transport::Pair*> polled;                 // those that no descriptor announces
  mpi::Library* mpi = nullptr;                          // nullptr: this job does not use MPI
  mpi::Handle mpi_comm = 0;                             // its ranks are the job's
  tune::CsvLog tune_log;                                // open on rank 0, where one is wanted
  std::optional<net::Key> object_key;                   // of the job's token, for what Python exchanges
};

// What a rank with this configuration would settle.
SharedSettings SettingsOf(const Config& config);
// Fails if the settings ask for something that is not there.
Result<algorithms::Table> TableOf(const SharedSettings& settings);

Layout MakeLayout(Rank rank, const std::vector<std::string>& host_ids);
// Fills in what the launcher gave (HOROVOD_LOCAL_RANK ...). Which ranks share memory is not touched by it.
void Report(const Config& config, Layout* layout);

}  // namespace hvd::engine
