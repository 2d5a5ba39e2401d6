// SPDX-License-Identifier: Apache-2.0
#include "hvd/base/config.h"

#include <unistd.h>

#include <algorithm>
#include <charconv>
#include <cstdlib>
#include <cstring>
#include <limits>
#include <string_view>
#include <variant>
#include <vector>

#include "hvd/base/variables.h"

namespace hvd {
namespace {

using Field = std::variant<int Config::*, int64_t Config::*, double Config::*, bool Config::*, std::string Config::*>;

constexpr double kNoMinimum = -std::numeric_limits<double>::infinity();
constexpr double kNoMaximum = std::numeric_limits<double>::infinity();

struct Knob {
  const char* name;
  Field field;
  const char* shown_default;  // for the documentation, where the plain default would mislead
  const char* text;
  double minimum = kNoMinimum;
  const char* words = nullptr;  // the only ones that it takes, in any case
  double maximum = kNoMaximum;
};

const std::vector<Knob>& Knobs() {
  static const std::vector<Knob> knobs{
      {"HOROVOD_RANK", &Config::rank, "0", "This process's rank. Set by launchers.", 0},
      {"HOROVOD_SIZE", &Config::size, "1", "Number of processes. Set by launchers.", 1},
      {"HOROVOD_LOCAL_RANK", &Config::local_rank, "found",
       "Rank among the processes of this host, as hvd.local_rank() reports it. Set by launchers, with LOCAL_SIZE.", 0},
      {"HOROVOD_LOCAL_SIZE", &Config::local_size, "found",
       "Number of processes on this host, as hvd.local_size() reports it. Memory is shared by host identity, whatever "
       "this says.",
       1},
      {"HOROVOD_CROSS_RANK", &Config::cross_rank, "found",
       "Index of this host among the hosts with this local rank. Set by launchers, with CROSS_SIZE.", 0},
      {"HOROVOD_CROSS_SIZE", &Config::cross_size, "found", "Number of hosts that have this local rank.", 1},
      {"HOROVOD_HOSTNAME", &Config::hostname, "found",
       "Identity of this host. Ranks with equal identity share memory. Without it: boot id, network namespace and "
       "user."},
      {"HOROVOD_RENDEZVOUS_ADDR", &Config::rendezvous_addr, "",
       "Address at which ranks find each other: host:port (rank 0 serves it unless it is served already) or "
       "file:///folder."},
      {"HOROVOD_GLOO_RENDEZVOUS_ADDR", &Config::gloo_rendezvous_addr, "",
       "Horovod's name for the host of HOROVOD_RENDEZVOUS_ADDR."},
      {"HOROVOD_GLOO_RENDEZVOUS_PORT", &Config::gloo_rendezvous_port, "",
       "Horovod's name for the port of HOROVOD_RENDEZVOUS_ADDR.", 1},
      {"HOROVOD_TOKEN_FILE", &Config::token_file, "",
       "File of mode 0600 with the job token: 64 hexadecimal digits. Needed as soon as ranks are on several hosts."},
      {"HOROVOD_GENERATION", &Config::generation, "0",
       "Number of this incarnation of the job; part of every handshake.", 0},
      {"HOROVOD_START_TIMEOUT", &Config::start_timeout_s, "30", "Seconds that init waits for all ranks.", 0.001},
      {"HOROVOD_OP_TIMEOUT_SECONDS", &Config::op_timeout_s, "0",
       "Seconds after which an operation that some rank has not submitted fails; 0: never.", 0},
      {"HOROVOD_CONTROLLER", &Config::controller, "mpi under mpirun",
       "mpi: MPI connects the ranks, also under srun. gloo: MPI is not used to start, also under mpirun.", kNoMinimum,
       "mpi gloo"},
      {"HOROVOD_CPU_OPERATIONS", &Config::cpu_operations, "gloo",
       "mpi: MPI carries operations on tensors in host memory. gloo: the engine itself does.", kNoMinimum, "mpi gloo"},
      {"HOROVOD_MPI_LIBRARY", &Config::mpi_library, "found",
       "Path of the MPI library to open. Without it: the one that is loaded already, else libmpi.so.40, "
       "libmpich.so.12 and the like."},
      {"HOROVOD_MPI_THREADS_DISABLE", &Config::mpi_threads_disable, "0",
       "1 initialises MPI without support for threads; HOROVOD_CPU_OPERATIONS=mpi needs that."},
      {"HOROVOD_GLOO_IFACE", &Config::iface, "found",
       "Network interface at which rank 0 waits for ranks of other hosts, where MPI or PMI tells them the address."},
      {"HOROVOD_INSECURE", &Config::insecure, "0",
       "1 allows several hosts without a token. Every machine on the network can then join."},
      {"HOROVOD_ENCRYPT", &Config::encrypt, "0", "1 puts data connections between hosts under TLS, too."},
      {"HOROVOD_HEARTBEAT_TIMEOUT_SECONDS", &Config::heartbeat_timeout_s, "5",
       "Seconds of silence after which a peer that an operation waits for is declared lost; 0: never.", 0},
      {"HOROVOD_STALL_CHECK_TIME_SECONDS", &Config::stall_check_s, "60",
       "Seconds after which an operation that some rank has not submitted is reported.", 0},
      {"HOROVOD_STALL_SHUTDOWN_TIME_SECONDS", &Config::stall_shutdown_s, "0",
       "Seconds after which such an operation ends the job; 0: never.", 0},
      {"HOROVOD_STALL_CHECK_DISABLE", &Config::stall_check_disable, "0", "1 switches the stall report off."},
      {"HOROVOD_FUSION_THRESHOLD", &Config::fusion_threshold, "134217728",
       "Most bytes that are reduced as one fused operation; 0 switches fusion off.", 0},
      {"HOROVOD_CACHE_CAPACITY", &Config::cache_capacity, "1024",
       "Number of operations per process set whose agreement is remembered, at first; it grows up to 16 times if more "
       "names come again and again; 0 switches the cache off.",
       0},
      {"HOROVOD_DYNAMIC_PROCESS_SETS", &Config::dynamic_process_sets, "0",
       "1 allows process sets to be added and removed after init."},
      {"HOROVOD_JOIN_EXTENDED", &Config::join_extended, "0",
       "1: while some ranks have joined, allgather, broadcast from another rank, alltoall and reducescatter work, "
       "too."},
      {"HOROVOD_CHECK_SYNC", &Config::check_sync, "at the start",
       "Steps between two checks of TensorFlow's tapes and optimizers that all ranks hold the same variables; 0: no "
       "check. Without it: in steps 2, 4 and 8, until the ranks are equal.",
       0},
      {"HOROVOD_DISABLE_SHM", &Config::disable_shm, "0", "1: ranks of one host use TCP instead of shared memory."},
      {"HOROVOD_EAGER_LIMIT", &Config::eager_limit, "by ranks",
       "Most bytes that a rank publishes beside its announcement, before agreement.", 0},
      {"HOROVOD_CHUNK_BYTES", &Config::chunk_bytes, "65536",
       "Bytes that private memory is staged by; small enough that a ring of them stays in the cache.", 4096, nullptr,
       64 << 20},
      {"HOROVOD_ARENA_BYTES", &Config::arena_bytes, "half of RAM / ranks of the host",
       "Most bytes of shared memory that one rank hands out.", 0},
      {"HOROVOD_SPIN_US", &Config::spin_us, "by cores", "Microseconds that a waiting rank polls before it sleeps.", 0},
      {"HOROVOD_THREAD_AFFINITY", &Config::thread_affinity, "",
       "Cores for the engine's threads, one per local rank, for example 0,4,8. A single number n binds local rank i to "
       "core n + i."},
      {"HOROVOD_TCP_CONGESTION", &Config::tcp_congestion, "cubic",
       "Congestion control of data connections; empty: the system's default."},
      {"HOROVOD_ALGORITHMS", &Config::algorithms, "",
       "Changes of the table of algorithms, such as allreduce:network:one_step=..128K;any:shm:direct=none; the same on "
       "all ranks. `horovodrun --algorithms` shows the table and how to write them."},
      {"HOROVOD_AUTOTUNE", &Config::autotune, "0",
       "1: rank 0 tries several values of HOROVOD_FUSION_THRESHOLD, HOROVOD_CHUNK_BYTES, HOROVOD_EAGER_LIMIT and "
       "HOROVOD_SPIN_US while the job runs and keeps the best, but for those that are set."},
      {"HOROVOD_AUTOTUNE_LOG", &Config::autotune_log, "",
       "CSV file for the measurements; the last row is the best. All values are in a second file, FILE.values."},
      {"HOROVOD_AUTOTUNE_WARMUP_SAMPLES", &Config::autotune_warmup_samples, "3",
       "Samples at the start that do not count.", 0},
      {"HOROVOD_AUTOTUNE_STEPS_PER_SAMPLE", &Config::autotune_steps_per_sample, "10",
       "Steps of a window; a sample is the median of 5 windows.", 1},
      {"HOROVOD_AUTOTUNE_BAYES_OPT_MAX_SAMPLES", &Config::autotune_max_samples, "20",
       "Most samples; with fewer than 6 nothing is tried.", 0},
      {"HOROVOD_AUTOTUNE_GAUSSIAN_PROCESS_NOISE", &Config::autotune_noise, "0.8",
       "Assumed error of one sample, relative to the spread of all samples, from 0 to 1.", 0, nullptr, 1},
      {"HOROVOD_AUTOTUNE_CONTINUE", &Config::autotune_continue, "0",
       "1: continues to tune after that, with less than 1 % of the steps, for jobs that change while they run."},
      {"HOROVOD_TIMELINE", &Config::timeline, "",
       "File for the timeline of rank 0 (Chrome trace JSON); DYNAMIC: only start_timeline begins one."},
      {"HOROVOD_TIMELINE_MARK_CYCLES", &Config::timeline_mark_cycles, "0",
       "1 marks every iteration of the engine in which data moved."},
      {"HOROVOD_TIMELINE_ALL_RANKS", &Config::timeline_all_ranks, "0",
       "1: every rank writes a timeline: t.json, t.1.json, ... `python -m horovod.timeline merge` joins them."},
      {"HOROVOD_TIMELINE_MAX_BYTES", &Config::timeline_max_bytes, "268435456",
       "Most bytes of a timeline and the part before it (FILE.1), together; 0: no limit.", 0},
      {"HOROVOD_FLIGHT_DIR", &Config::flight_dir, "",
       "Folder where ranks write their last operations on stalls, failures, crashes, SIGUSR2 and shutdown; `python -m "
       "horovod.flight` reads it."},
      {"HOROVOD_FLIGHT_ENTRIES", &Config::flight_entries, "1024", "Operations that the flight recorder keeps.", 16},
      {"HOROVOD_LOG_LEVEL", &Config::log_level, "warning", "trace, debug, info, warning, error or fatal."},
      {"HOROVOD_LOG_HIDE_TIME", &Config::log_hide_time, "0", "1 leaves the time out of log lines."},
  };
  return knobs;
}

std::string Lower(std::string_view text) {
  std::string lower(text);
  for (char& c : lower) c = static_cast<char>(std::tolower(static_cast<unsigned char>(c)));
  return lower;
}

template <typename Number>
bool ParseNumber(std::string_view text, Number* value) {
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), *value);
  return error == std::errc() && end == text.data() + text.size();
}

bool Parse(std::string_view text, int* value) { return ParseNumber(text, value); }
bool Parse(std::string_view text, int64_t* value) { return ParseNumber(text, value); }
bool Parse(std::string_view text, double* value) { return ParseNumber(text, value) && *value == *value; }
bool Parse(std::string_view text, std::string* value) {
  *value = text;
  return true;
}
bool Parse(std::string_view text, bool* value) {
  const std::string lower = Lower(text);
  *value = lower == "1" || lower == "true" || lower == "yes" || lower == "on";
  return *value || lower == "0" || lower == "false" || lower == "no" || lower == "off";
}

const char* Wanted(const Field& field) {
  constexpr const char* kWanted[] = {"a whole number", "a whole number", "a number", "0 or 1", "text"};
  return kWanted[field.index()];
}

template <typename T>
bool InRange(const T& value, const Knob& knob) {
  if constexpr (std::is_arithmetic_v<T>) {
    return static_cast<double>(value) >= knob.minimum && static_cast<double>(value) <= knob.maximum;
  }
  return true;
}

Result<std::string> OneOf(const Knob& knob, std::string_view text) {
  const std::string lower = Lower(text);
  std::string_view words = knob.words;
  while (!words.empty()) {
    const std::string_view word = words.substr(0, words.find(' '));
    if (word == lower) return lower;
    words.remove_prefix(std::min(word.size() + 1, words.size()));
  }
  return Fail(Code::kInvalidArgument, "{}={} is not valid: give one of \"{}\", or unset it", knob.name, text,
              knob.words);
}

// Two variables of which launchers set both or none.
Status CheckPair(const char* rank_name, int rank, const char* size_name, int size, int all) {
  if (rank < 0 && size < 0) return {};
  if (rank < 0 || size < 0) {
    const bool has_rank = rank >= 0;
    return Fail(Code::kInvalidArgument, "{}={} without {}: set both or neither", has_rank ? rank_name : size_name,
                has_rank ? rank : size, has_rank ? size_name : rank_name);
  }
  if (rank >= size) {
    return Fail(Code::kInvalidArgument, "{}={} is not below {}={}: it counts from 0", rank_name, rank, size_name, size);
  }
  if (all > 0 && size > all) {
    return Fail(Code::kInvalidArgument, "{}={} is above HOROVOD_SIZE={}", size_name, size, all);
  }
  return {};
}

}  // namespace

Result<Config> ConfigFrom(const Variables& variables) {
  Config config;
  for (const Knob& knob : Knobs()) {
    const char* text = variables(knob.name);
    if (text == nullptr || *text == '\0') continue;
    if (knob.words != nullptr) {
      HVD_ASSIGN_OR_RETURN(config.*std::get<std::string Config::*>(knob.field), OneOf(knob, text));
      continue;
    }
    const bool good = std::visit(
        [&](auto member) { return Parse(text, &(config.*member)) && InRange(config.*member, knob); }, knob.field);
    if (good) continue;
    std::string range;
    if (knob.minimum > kNoMinimum) range = fmt::format(" of at least {:g}", knob.minimum);
    if (knob.maximum < kNoMaximum) range += fmt::format(" and at most {:.12g}", knob.maximum);
    return Fail(Code::kInvalidArgument, "{}={} is not valid: give {}{}, or unset it", knob.name, text,
                Wanted(knob.field), range);
  }
  const auto given = [&](const char* name) {
    const char* text = variables(name);
    return text != nullptr && *text != '\0';
  };
  config.fusion_threshold_given = given("HOROVOD_FUSION_THRESHOLD");
  config.chunk_bytes_given = given("HOROVOD_CHUNK_BYTES");
  HVD_RETURN_IF_ERROR(
      CheckPair("HOROVOD_LOCAL_RANK", config.local_rank, "HOROVOD_LOCAL_SIZE", config.local_size, config.size));
  HVD_RETURN_IF_ERROR(
      CheckPair("HOROVOD_CROSS_RANK", config.cross_rank, "HOROVOD_CROSS_SIZE", config.cross_size, config.size));
  HVD_ASSIGN_OR_RETURN(config.launcher, FindLauncher(variables));
  return config;
}

Result<Config> ConfigFromEnvironment() {
  return ConfigFrom([](const char* name) { return std::getenv(name); });
}

std::vector<std::string> OwnVariables() {
  std::vector<std::string> names;
  for (const char* const* line = environ; line != nullptr && *line != nullptr; ++line) {
    const std::string_view name(*line, std::strcspn(*line, "="));
    if (name.starts_with("HOROVOD_")) names.emplace_back(name);
  }
  return names;
}

std::vector<std::string> ConfigNames() {
  std::vector<std::string> names;
  for (const Knob& knob : Knobs()) names.emplace_back(knob.name);
  return names;
}

std::string DescribeConfig() {
  std::string out = "| variable | default | meaning |\n|---|---|---|\n";
  for (const Knob& knob : Knobs()) {
    out +=
        fmt::format("| `{}` | {} | {} |\n", knob.name, *knob.shown_default ? knob.shown_default : "unset", knob.text);
  }
  return out + DescribeOtherVariables();
}

}  // namespace hvd
