// SPDX-License-Identifier: Apache-2.0
#pragma once
// Every knob of the library, one documented field each. config.cc holds the only getenv calls; its table becomes
// docs/reference/environment.md (`make docs`).

#include <cstdint>
#include <string>
#include <vector>

#include "hvd/base/launcher.h"
#include "hvd/base/result.h"

namespace hvd {

struct Config {
  // Who am I (set by launchers; api names of Horovod).
  int rank = -1;
  int size = -1;
  // The next two, and the two after them, are given together or not at all.
  int local_rank = -1;
  int local_size = -1;
  int cross_rank = -1;
  int cross_size = -1;
  std::string hostname;

  // How ranks find each other.
  std::string rendezvous_addr;
  std::string gloo_rendezvous_addr;
  int gloo_rendezvous_port = -1;
  std::string token_file;
  int generation = 0;
  double start_timeout_s = 30;
  double op_timeout_s = 0;
  Launcher launcher;  // who started this process, if the variables of launchers tell
  std::string controller;
  std::string cpu_operations;
  std::string mpi_library;
  bool mpi_threads_disable = false;
  std::string iface;
  std::string group;  // which part of what was started is this job; empty: all of it

  // Trust.
  bool insecure = false;
  bool encrypt = false;

  // Liveness.
  double heartbeat_timeout_s = 5;
  double stall_check_s = 60;
  double stall_shutdown_s = 0;
  bool stall_check_disable = false;

  // Agreement and fusion.
  int64_t fusion_threshold = 128 << 20;
  bool fusion_threshold_given = false;  // by the variable: not to be tuned
  int64_t cache_capacity = 1024;
  bool dynamic_process_sets = false;
  bool join_extended = false;
  int64_t check_sync = -1;  // read by the bindings

  // Data plane.
  bool disable_shm = false;
  int64_t eager_limit = -1;
  int64_t chunk_bytes = 64 << 10;
  bool chunk_bytes_given = false;  // as fusion_threshold_given
  int64_t arena_bytes = -1;
  int64_t spin_us = -1;
  std::string thread_affinity;
  std::string tcp_congestion = "cubic";
  std::string algorithms;

  // Tuning while the job runs.
  bool autotune = false;
  std::string autotune_log;
  int autotune_warmup_samples = 3;
  int autotune_steps_per_sample = 10;
  int autotune_max_samples = 20;
  double autotune_noise = 0.8;
  bool autotune_continue = false;

  // What happened.
  std::string timeline;
  bool timeline_mark_cycles = false;
  bool timeline_all_ranks = false;
  int64_t timeline_max_bytes = 256 << 20;
  std::string flight_dir;
  int64_t flight_entries = 1024;

  // Logging.
  std::string log_level = "warning";
  bool log_hide_time = false;
};

// Reads the environment. A value that cannot be parsed or is out of range is an error naming variable, value and range.
Result<Config> ConfigFromEnvironment();
// The same of an environment that another process has or will have.
Result<Config> ConfigFrom(const Variables& variables);

// The names of all variables.
std::vector<std::string> ConfigNames();

// The table of all variables in Markdown, for docs/reference/environment.md.
std::string DescribeConfig();

}  // namespace hvd
