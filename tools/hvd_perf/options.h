// SPDX-License-Identifier: Apache-2.0
#pragma once
#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "hvd_perf/models.h"

namespace hvd_perf {

enum class Bench { kCollective, kTrain, kInit, kIdle, kMemory };
// Where operands lie: in memory of hvd_alloc, of malloc, or the input there and the output here.
enum class Buffers { kArena, kPrivate, kMixed };

// An offset: where malloc puts the memory.
inline constexpr int kAsMalloc = -1;

// What the command line asked for. Plain data; parsed once, before any process is started.
struct Options {
  Bench bench = Bench::kCollective;
  int32_t op = 0;         // HVD_ALLREDUCE ...
  int32_t dtype = 7;      // HVD_FLOAT32 ...
  int32_t reduce_op = 1;  // HVD_SUM ...
  int32_t wire = 0;       // HVD_WIRE_FLOAT16 ..., allreduce
  std::string op_name = "allreduce";
  std::string dtype_name = "float32";
  std::string reduce_op_name = "sum";
  std::string wire_name = "none";
  std::vector<uint64_t> sizes;  // bytes of a block, see --help
  int ranks = 2;
  bool fork = true;   // false: this process is one rank, described by the environment
  bool fresh = true;  // every rank rewrites its buffer before each timed operation
  Buffers buffers = Buffers::kArena;
  std::string buffers_name = "arena";
  int offset = kAsMalloc;        // of private buffers: bytes past the begin of a page
  bool in_place = true;          // allreduce and broadcast
  bool new_pages = false;        // out of place, private: every operation's output faults its pages in
  bool async = false;            // hvd_submit and hvd_wait instead of hvd_run
  bool prepared = false;         // ids from hvd_prepare instead of names
  int window = 1;                // operations in flight (async)
  int iters = 0;                 // 0: by size
  int warmup = -1;               // -1: a tenth of iters
  bool check = true;             // compare results with the expected ones before timing
  int pin = -1;                  // -1: when every rank can have its own core
  bool tcp_store = false;        // rendezvous through rank 0's TCP store instead of a folder
  std::string json;              // empty: none; "-": standard output, instead of the table
  int repeats = 5;               // --init-bench
  double idle_s = 5;             // --idle-bench
  const Model* model = nullptr;  // --train
  double ratio = 0;              // of compute's time to the reduction's; 0: the model's
  bool wait = true;              // compute elsewhere
  bool busy = true;              // compute on the ranks' cores
  int time_limit_s = 300;        // seconds after which a rank ends itself
};

// nullopt after --help or a wrong argument, which has been explained on stderr; *exit_code says which.
std::optional<Options> ParseOptions(int argc, char** argv, int* exit_code);

}  // namespace hvd_perf
