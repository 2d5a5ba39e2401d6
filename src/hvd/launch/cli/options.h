// SPDX-License-Identifier: Apache-2.0
#pragma once
// What the user asked for, by flags and the config file. flag_table.cc has the one table that fills it; a member
// without a value was not given.

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

namespace hvd::launch {

using Switch = std::optional<bool>;
using Whole = std::optional<int64_t>;
using Number = std::optional<double>;
using Text = std::optional<std::string>;
using List = std::vector<std::string>;

struct Options {
  // What to do.
  Switch help, version, check_build, algorithms, dry_run;
  Whole num_proc;
  List command;

  // Where.
  Text hosts, hostfile, host_discovery_script;
  Whole ssh_port;
  Text ssh_identity_file;
  Switch no_ssh, disable_cache;
  Text driver_address, token_file;
  List network_interfaces;

  // How ranks are started and ended.
  Switch gloo, mpi, jsrun;
  Text controller;
  Text config_file;
  List exports;   // -x
  List withheld;  // --no-env
  Text env_file;
  Number start_timeout;
  Number grace_period;
  Switch die_with_parent;
  Text task_folder;  // horovod.run's
  Text compat, heap;
  Text mpi_args, binding_args;
  Switch tcp;

  // What people see.
  Switch verbose, json;
  Text output_filename, log_dir, report_file;
  Whole only_rank, debug_rank;
  Text prefix, color;
  Switch prefix_timestamp;

  // Settings of the library.
  Whole fusion_threshold_mb, cache_capacity;
  Number cycle_time_ms;
  Switch hierarchical_allreduce, hierarchical_allgather, torus_allreduce;
  Switch autotune, autotune_continue;
  Text autotune_log_file;
  Whole autotune_warmup_samples, autotune_steps_per_sample, autotune_bayes_opt_max_samples;
  Number autotune_gaussian_process_noise;
  Text timeline_filename;
  Switch timeline_mark_cycles;
  Switch stall_check;
  Number stall_warning_seconds, stall_shutdown_seconds;
  Switch mpi_threads_disable;
  Whole num_nccl_streams, thread_affinity, cores_per_rank;
  Number gloo_timeout_seconds;
  Text log_level;
  Switch log_with_timestamp;

  // Elastic.
  Whole min_np, max_np, slots_per_host, reset_limit;
  Number elastic_timeout;
  List blacklist_cooldown_range;
  bool elastic() const { return min_np || host_discovery_script; }

  // Lines for the user about what was accepted and does nothing.
  std::vector<std::string> notes;
};

}  // namespace hvd::launch
