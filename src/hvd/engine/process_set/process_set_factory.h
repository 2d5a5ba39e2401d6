// SPDX-License-Identifier: Apache-2.0
#pragma once
// Makes the process sets of one rank: selects how the members of a set exchange marks and data, and takes the shared
// memory for it.
//
// shared memory  All members share a host: both the announcement stream and the data are in the window.
// messages       Members of several hosts, or a host without shared memory: pairs, and mark messages for what is small.
// mixed          Several hosts with several members each: pairs between hosts, the window inside each.
// MPI            HOROVOD_CPU_OPERATIONS=mpi: a communicator of the MPI library for each set.
//
// Every rank makes every set, member or not, in the same order: serial numbers and offsets in shared memory stay equal.
//
// Thread safety: call with the progress token.
// Lifetime: what the constructor is given and the factory itself outlive the sets.

#include <map>
#include <memory>
#include <string_view>
#include <vector>

#include "hvd/base/config.h"
#include "hvd/engine/bootstrap/world.h"
#include "hvd/engine/memory.h"
#include "hvd/engine/process_set/process_set.h"
#include "hvd/engine/process_set/stream_memory.h"
#include "hvd/engine/recorder.h"
#include "hvd/wire/control.h"

namespace hvd::comm::builtin {
struct PairOptions;
}

namespace hvd::engine {

// Whether `ranks` can be a process set in a job of `size` ranks; sorts them. `title` names the set in errors.
Status CheckRanks(std::string_view title, int size, std::vector<Rank>* ranks);

class ProcessSetFactory {
 public:
  ProcessSetFactory(const World* world, const Config* config, ProcessSetDelegate* host, Recorder* recorder);

  // Reads the table of algorithms. Call once, before Make. Fails if the settings ask for what is not there.
  Status LoadTable();
  const algorithms::Table& table() const { return table_; }

  // Whether MPI carries the operations of every set.
  bool OperatesByMpi() const { return world_->mpi != nullptr && config_->cpu_operations == "mpi"; }
  // Makes the set with this id and these sorted ranks, and gives it the next serial number.
  std::unique_ptr<ProcessSet> Make(int id, std::vector<Rank> ranks, int64_t fusion_threshold, ResumePolicy policy);
  // Serial number of the next set.
  int next_serial() const { return next_serial_; }
  // The shared memory of a set that was removed may be given to the next one.
  void Recycle(int id);

 private:
  struct Streams {
    std::byte* announce = nullptr;
    std::byte* log = nullptr;
    size_t bytes = 0;     // of each stream
    bool clears = false;  // whether this rank zeroes them when they are given back
  };

  void ConnectByMemory(ProcessSetOptions* set);
  void ConnectByPairs(ProcessSetOptions* set);
  void ConnectMixed(ProcessSetOptions* set, comm::builtin::PairOptions pairs);
  void ConnectByMessages(ProcessSetOptions* set, const comm::builtin::PairOptions& pairs);
  void ConnectByMpi(ProcessSetOptions* set);

  const World* const world_;
  const Config* const config_;
  ProcessSetDelegate* const host_;
  Recorder* const recorder_;
  ArenaMemory arena_;
  algorithms::Table table_;
  StreamMemory stream_memory_;
  std::map<int, Streams> streams_;  // by the set's id
  wire::Bytes mark_buffer_;         // of the mark message that is being sent
  int next_serial_ = 0;
};

}  // namespace hvd::engine
