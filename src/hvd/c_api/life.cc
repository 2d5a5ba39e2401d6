// SPDX-License-Identifier: Apache-2.0
// Library, life cycle and properties.
#include <sched.h>

#include <algorithm>
#include <atomic>
#include <condition_variable>
#include <cstdlib>
#include <cstring>
#include <map>
#include <mutex>
#include <string>

#include "hvd/base/log.h"
#include "hvd/base/tensor_labels.h"
#include "hvd/base/variables.h"
#include "hvd/c_api/argument_check.h"
#include "hvd/c_api/context.h"
#include "hvd/engine/bootstrap/bootstrap.h"
#include "hvd/engine/memory.h"
#include "hvd/mpi/session.h"

namespace {

using hvd::Code;
using hvd::Config;
using hvd::Fail;
using hvd::Result;
using hvd::c_api::Call;
using hvd::c_api::ProcessContext;
using hvd::c_api::Report;
using hvd::engine::Completer;

// The process-wide engine comes and goes in one call at a time. The lock is not held meanwhile: making one may take
// minutes, and hvd_shutdown must be able to say that nobody wants it any more.
struct Life {
  std::mutex mutex;
  std::condition_variable changed;
  bool busy = false;      // some call makes or ends it
  bool starting = false;  // makes
  bool cancelled = false;
};

Life& TheLife() {
  static Life* const life = new Life;  // never destroyed: see ProcessContext
  return *life;
}

// What the options leave open comes from the environment.
Result<Config> Resolve(const hvd_init_options& options) {
  HVD_ASSIGN_OR_RETURN(Config config, hvd::ConfigFromEnvironment());
  if (options.rank >= 0) config.rank = options.rank;
  if (options.size >= 0) config.size = options.size;
  if (options.host_id != nullptr) config.hostname = options.host_id;
  if (options.rendezvous != nullptr) config.rendezvous_addr = options.rendezvous;
  if (options.token_file != nullptr) config.token_file = options.token_file;
  if (options.generation >= 0) config.generation = options.generation;
  if (options.timeout_s > 0) config.start_timeout_s = options.timeout_s;
  for (double* seconds : {&config.start_timeout_s, &config.op_timeout_s, &config.heartbeat_timeout_s,
                          &config.stall_check_s, &config.stall_shutdown_s}) {
    *seconds = hvd::c_api::Bounded(*seconds);
  }
  constexpr int kMostFlightEntries = 1 << 20;  // some 300 bytes each
  if (config.flight_entries > kMostFlightEntries) {
    return Fail(Code::kInvalidArgument, "HOROVOD_FLIGHT_ENTRIES={} is above {}, the most that are kept",
                config.flight_entries, kMostFlightEntries);
  }
  if (config.rendezvous_addr.empty() && !config.gloo_rendezvous_addr.empty() && config.gloo_rendezvous_port > 0) {
    const bool v6 = config.gloo_rendezvous_addr.find(':') != std::string::npos;
    config.rendezvous_addr = v6 ? fmt::format("[{}]:{}", config.gloo_rendezvous_addr, config.gloo_rendezvous_port)
                                : fmt::format("{}:{}", config.gloo_rendezvous_addr, config.gloo_rendezvous_port);
  }
  // A caller that says who it is was not started by a launcher, whatever that one started.
  if (options.rank >= 0 || options.size >= 0) config.launcher = {};
  HVD_RETURN_IF_ERROR(hvd::FollowLauncher(&config));
  if (config.size < 0 && config.rank < 0) config.size = 1;
  if (config.size == 1 && config.rank < 0) config.rank = 0;
  if (config.size == 0) return Fail(Code::kInvalidArgument, "size is 0: a job has at least one rank");
  if (config.size < 0 || config.rank < 0) {
    const bool has_rank = config.rank >= 0;
    return Fail(Code::kInvalidArgument, "HOROVOD_{}={} without HOROVOD_{}: set both, or neither for a job of one",
                has_rank ? "RANK" : "SIZE", has_rank ? config.rank : config.size, has_rank ? "SIZE" : "RANK");
  }
  constexpr int kMaxSize = 65536;
  if (config.size > kMaxSize) {
    return Fail(Code::kInvalidArgument, "HOROVOD_SIZE={} is above {}, the most ranks of one job", config.size,
                kMaxSize);
  }
  if (config.rank >= config.size) {
    return Fail(Code::kInvalidArgument, "HOROVOD_RANK={} is not below HOROVOD_SIZE={}: ranks count from 0", config.rank,
                config.size);
  }
  return config;
}

hvd::engine::bootstrap::InitArguments GivenTo(const hvd_init_options& options) {
  hvd::engine::bootstrap::InitArguments given;
  given.mpi_comm = options.mpi_comm;
  if (options.comm_rank_count > 0) {
    given.comm_ranks = {options.comm_ranks, static_cast<size_t>(options.comm_rank_count)};
  }
  return given;
}

std::vector<std::vector<hvd::Rank>> Sets(const hvd_init_options& options) {
  std::vector<std::vector<hvd::Rank>> sets;
  const int32_t* at = options.process_set_ranks;
  for (int32_t i = 0; i < options.process_set_count; ++i) {
    sets.emplace_back(at, at + options.process_set_sizes[i]);
    std::sort(sets.back().begin(), sets.back().end());
    at += options.process_set_sizes[i];
  }
  return sets;
}

// Jobs that meet at the same place again and again, without saying which generation they are, count by themselves.
int NextGeneration(const Config& config) {
  static std::mutex mutex;
  static std::map<std::string, int>* const counts = new std::map<std::string, int>;
  std::lock_guard lock(mutex);
  return (*counts)[fmt::format("{} {}", config.rank, config.rendezvous_addr)]++;
}

// Once: programs may call init again. horovodrun, which names its jobs, has said it already.
void WarnOfVariables() {
  static std::atomic<bool> done = false;
  const std::vector<std::string> names = hvd::OwnVariables();
  if (done.exchange(true) || std::ranges::count(names, "HOROVOD_JOB_ID") > 0) return;
  for (const std::string& note : hvd::NotesOnVariables(names)) hvd::log::Warning("{}", note);
}

Result<std::unique_ptr<hvd::engine::Engine>> MakeEngine(const hvd_init_options& options) {
  HVD_ASSIGN_OR_RETURN(Config config, Resolve(options));
  if (!hvd::log::SetLevel(config.log_level)) {
    return Fail(Code::kInvalidArgument,
                "HOROVOD_LOG_LEVEL={} is no level: give trace, debug, info, warning, error or fatal", config.log_level);
  }
  hvd::log::HideTime(config.log_hide_time);
  HVD_ASSIGN_OR_RETURN(const hvd::engine::bootstrap::RendezvousMethod method,
                       hvd::engine::bootstrap::ChooseRendezvousMethod(&config, GivenTo(options)));
  hvd::log::SetRank(config.rank);
  hvd::log::Info("rank {} of {}, {}", config.rank, config.size, method.why);
  if (config.rank == 0) WarnOfVariables();
  const bool meets = config.size > 1;  // a rank alone meets nobody, and must not get ahead of the others' count
  if (meets && options.generation < 0 && config.generation == 0) config.generation = NextGeneration(config);
  hvd::engine::bootstrap::BootstrapOptions boot;
  boot.config = config;
  boot.method = method;
  boot.process_sets = Sets(options);
  const bool dynamic = config.dynamic_process_sets || (options.flags & HVD_INIT_DYNAMIC_PROCESS_SETS) != 0;
  boot.crash_signals = (options.flags & HVD_INIT_NO_SIGNAL_HANDLERS) == 0;
  boot.handlers_are_fatal = (options.flags & HVD_INIT_HANDLERS_ARE_FATAL) != 0;
  HVD_ASSIGN_OR_RETURN(hvd::engine::World world, hvd::engine::bootstrap::Bootstrap(boot));
  // Always: the last init may have set another limit.
  hvd::engine::LimitArena(config.arena_bytes, world.layout.local_size);
  return hvd::engine::Engine::Create(std::move(world),
                                     {.config = config,
                                      .process_sets = boot.process_sets,
                                      .surviving_sets = (options.flags & HVD_INIT_SURVIVING_PROCESS_SETS) != 0,
                                      .dynamic_sets = dynamic,
                                      .signals = boot.crash_signals});
}

// Ends the engine of a context: new calls find none, running ones end with an error, then it goes.
void End(hvd_context* context) {
  hvd::engine::Engine* engine = context->engine.exchange(nullptr, std::memory_order_seq_cst);
  if (engine == nullptr) return;
  if (engine->uses_mpi() && engine->revoked()) hvd::mpi::Distrust();
  engine->Shutdown();
  while (context->calls.load(std::memory_order_acquire) > 0) sched_yield();
  delete engine;
  hvd::c_api::EngineEnds();
}

Result<hvd::engine::Engine*> NewEngine(const hvd_init_options& options) {
  hvd::c_api::EngineBegins();
  auto engine = MakeEngine(options);
  if (engine) return engine->release();
  hvd::c_api::EngineEnds();
  return Fail(std::move(engine).error());
}

int InitProcess(const hvd_init_options& options) {
  Life& life = TheLife();
  std::unique_lock lock(life.mutex);
  life.changed.wait(lock, [&] { return !life.busy; });
  if (ProcessContext().engine.load(std::memory_order_acquire) != nullptr) return HVD_OK;
  life.busy = life.starting = true;
  life.cancelled = false;
  lock.unlock();
  auto engine = NewEngine(options);
  lock.lock();
  life.starting = false;
  if (engine) ProcessContext().engine.store(*engine, std::memory_order_seq_cst);
  if (life.cancelled) {
    lock.unlock();
    End(&ProcessContext());
    lock.lock();
  }
  life.busy = false;
  life.changed.notify_all();
  if (life.cancelled) return Report(Code::kAborted, "hvd_init was given up: hvd_shutdown was called meanwhile");
  if (!engine) return Report(engine.error());
  static std::once_flag once;
  std::call_once(once, [] { std::atexit([] { hvd_shutdown(nullptr); }); });
  return HVD_OK;
}

int ShutdownProcess() {
  Life& life = TheLife();
  std::unique_lock lock(life.mutex);
  if (life.starting) {
    life.cancelled = true;
    return HVD_OK;
  }
  life.changed.wait(lock, [&] { return !life.busy; });
  life.busy = true;
  lock.unlock();
  End(&ProcessContext());
  lock.lock();
  life.busy = false;
  life.changed.notify_all();
  return HVD_OK;
}

int RefuseInCallback(std::string_view function) {
  return Report(Code::kFailedPrecondition,
                fmt::format("{} in a callback of an operation: the engine cannot end or start before it returns; tell "
                            "another thread to do it",
                            function));
}

}  // namespace

extern "C" {

HVD_API int hvd_abi_version(void) { return HVD_ABI_VERSION; }
HVD_API const char* hvd_version(void) { return HVD_VERSION; }

HVD_API const char* hvd_mpi_library(void) {
  thread_local std::string name;
  const auto config = hvd::ConfigFromEnvironment();
  const auto library = hvd::mpi::Open(std::nullopt, config ? config->mpi_library : "");
  if (!library) return Report(library.error()), "";
  name = (*library)->name();
  return name.c_str();
}

HVD_API const char* hvd_describe_config(void) {
  static const std::string text = hvd::DescribeConfig();
  return text.c_str();
}

HVD_API void hvd_init_options_default(hvd_init_options* options) {
  if (options == nullptr) return;
  std::memset(options, 0, sizeof *options);
  options->struct_size = sizeof *options;
  options->rank = options->size = options->generation = -1;
}

HVD_API int hvd_init(const hvd_init_options* given, hvd_context** ctx) {
  if (hvd::c_api::InForkedChild()) return hvd::c_api::ReportForked();
  hvd_init_options options;
  hvd_init_options_default(&options);
  if (given != nullptr) {
    std::memcpy(&options, given, std::min(given->struct_size, sizeof options));
    options.struct_size = given->struct_size;
  }
  if (auto good = hvd::c_api::Check(options); !good) return Report(good.error());
  if (Completer::InJob()) return RefuseInCallback("hvd_init");
  if (ctx == nullptr) return InitProcess(options);
  auto engine = NewEngine(options);
  if (!engine) return Report(engine.error());
  *ctx = new hvd_context;
  (*ctx)->engine.store(*engine, std::memory_order_seq_cst);
  return HVD_OK;
}

HVD_API int hvd_shutdown(hvd_context* ctx) {
  if (hvd::c_api::InForkedChild()) return HVD_OK;
  if (Completer::InJob()) return RefuseInCallback("hvd_shutdown");
  if (ctx == nullptr) return ShutdownProcess();
  End(ctx);
  delete ctx;
  return HVD_OK;
}

HVD_API int hvd_note_failure(hvd_context* ctx, const char* text) {
  if (hvd::c_api::InForkedChild()) return HVD_OK;
  if (text == nullptr) return Report(Code::kInvalidArgument, "hvd_note_failure: text is NULL");
  const Call engine(ctx);
  if (engine) engine->NoteFailure(text);
  return HVD_OK;
}

HVD_API int hvd_label_tensor(hvd_context* /*ctx*/, const char* name, const char* label) {
  if (hvd::c_api::InForkedChild()) return HVD_OK;
  if (name == nullptr || label == nullptr) return Report(Code::kInvalidArgument, "hvd_label_tensor: a text is NULL");
  hvd::LabelTensor(name, label);
  return HVD_OK;
}

HVD_API int hvd_authenticate(hvd_context* ctx, const void* purpose, uint64_t purpose_bytes, const void* data,
                             uint64_t bytes, unsigned char* code) {
  const bool good = code != nullptr && (purpose != nullptr || purpose_bytes == 0) && (data != nullptr || bytes == 0);
  if (!good) return Report(Code::kInvalidArgument, "hvd_authenticate: purpose, data or code is NULL");
  const Call engine(ctx);
  if (!engine) return engine.Refuse();
  const auto made = engine->Authenticate({static_cast<const std::byte*>(purpose), purpose_bytes},
                                         {static_cast<const std::byte*>(data), bytes});
  if (!made) return Report(made.error());
  std::copy(made->begin(), made->end(), code);
  return HVD_OK;
}

HVD_API int hvd_is_initialized(hvd_context* ctx) { return Call(ctx) ? 1 : 0; }

HVD_API int hvd_health(hvd_context* ctx) {
  const Call engine(ctx);
  if (!engine) return engine.Refuse();
  const hvd::Error error = engine->Health();
  return error.code == Code::kOk ? HVD_OK : Report(error);
}

HVD_API int hvd_query(hvd_context* ctx, int32_t what, int32_t* value) {
  if (value == nullptr) return Report(Code::kInvalidArgument, "hvd_query: value is NULL");
  const Call engine(ctx);
  if (!engine) return engine.Refuse();
  const auto& layout = engine->layout();
  const auto& reported = layout.reported;
  const int32_t values[] = {layout.rank,         layout.size,         reported.local_rank,  reported.local_size,
                            reported.cross_rank, reported.cross_size, layout.homogeneous,   engine->generation(),
                            engine->uses_shm(),  engine->uses_mpi(),  engine->mpi_threads()};
  if (what < 0 || what >= static_cast<int32_t>(std::size(values))) {
    return Report(Code::kInvalidArgument, fmt::format("hvd_query: {} is no property", what));
  }
  *value = values[what];
  return HVD_OK;
}

HVD_API int hvd_timeline_start(hvd_context* ctx, const char* path, int32_t mark_cycles) {
  if (path == nullptr || *path == '\0') return Report(Code::kInvalidArgument, "hvd_timeline_start: path is empty");
  const Call engine(ctx);
  if (!engine) return engine.Refuse();
  const auto started = engine->recorder().StartTimeline(path, mark_cycles != 0);
  return started ? HVD_OK : Report(started.error());
}

HVD_API int hvd_timeline_stop(hvd_context* ctx) {
  const Call engine(ctx);
  if (!engine) return engine.Refuse();
  engine->recorder().StopTimeline();
  return HVD_OK;
}

}  // extern "C"
