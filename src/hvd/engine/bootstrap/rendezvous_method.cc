// SPDX-License-Identifier: Apache-2.0
#include "hvd/engine/bootstrap/rendezvous_method.h"

#include <fcntl.h>
#include <fmt/ranges.h>

#include <algorithm>

#include "hvd/engine/bootstrap/local_presence.h"
#include "hvd/engine/bootstrap/rendezvous_errors.h"
#include "hvd/mpi/session.h"
#include "hvd/pmi/pmix.h"

namespace hvd::engine::bootstrap {
namespace {

using Kind = RendezvousMethod::Kind;

bool ByMpirun(LauncherKind kind) { return kind == LauncherKind::kOpenMpi || kind == LauncherKind::kMpich; }
bool OperatesByMpi(const Config& config) { return config.cpu_operations == "mpi"; }

// Which MPI a launcher starts; jsrun's is IBM's Open MPI.
std::optional<mpi::Family> FamilyOf(const Launcher& launcher) {
  switch (launcher.kind) {
    case LauncherKind::kOpenMpi:
    case LauncherKind::kJsrun:
      return mpi::Family::kOpenMpi;
    case LauncherKind::kMpich:
      return mpi::Family::kMpich;
    default:
      return std::nullopt;
  }
}

Result<mpi::Library*> OpenMpi(const Config& config) {
  const Launcher& launcher = config.launcher;
  if (launcher.kind == LauncherKind::kSlurm && config.mpi_library.empty()) {
    // Either may run under srun; which one fits is mostly told by the interface that srun offers.
    const auto likely = launcher.pmix ? mpi::Family::kOpenMpi : mpi::Family::kMpich;
    if (auto library = mpi::Open(likely, ""); library) return library;
  }
  return mpi::Open(FamilyOf(launcher), config.mpi_library);
}

Status CheckThreads(mpi::Library* library) {
  if (library->ThreadLevel() == mpi::Threads::kMultiple) return {};
  return Fail(
      Code::kFailedPrecondition,
      "HOROVOD_CPU_OPERATIONS=mpi needs an MPI with support for threads, and {} was initialised without "
      "MPI_THREAD_MULTIPLE: unset HOROVOD_MPI_THREADS_DISABLE, initialise MPI by MPI_Init_thread if the program "
      "does so itself, or unset HOROVOD_CPU_OPERATIONS",
      library->name());
}

Time StartDeadline(const Config& config) { return SteadyClock().Now() + Seconds(config.start_timeout_s); }

// `error` of a call of MPI's that all ranks must come to, with those who have not, as far as that is known.
tl::unexpected<Error> NotAllCame(const Error& error, const Config& config, const std::vector<int>& absent,
                                 LocalPresence* roll) {
  if (error.code != Code::kDeadlineExceeded) return Fail(error);
  roll->Stay();
  const std::string who = absent.empty() ? fmt::format("rank {} of {} waited {:g} s for others in hvd.init()",
                                                       config.rank, config.size, config.start_timeout_s)
                                         : fmt::format("{} of {} did not come to hvd.init() within {:g} s",
                                                       NameOf(absent), config.size, config.start_timeout_s);
  return Fail(Error{error.code, fmt::format("{}: {}; HOROVOD_START_TIMEOUT sets the limit", who, error.message),
                    absent.empty() ? error.rank : absent[0]});
}

// The variables for which this rank uses MPI.
std::vector<std::string> WhatAsksForMpi(const Config& config) {
  std::vector<std::string> names;
  if (OperatesByMpi(config)) names.emplace_back("HOROVOD_CPU_OPERATIONS");
  if (config.controller == "mpi") names.emplace_back("HOROVOD_CONTROLLER");
  if (names.empty()) names.push_back(config.launcher.rank_variable);
  return names;
}

Status UseMpi(mpi::Library* library, const Config& config, RendezvousMethod* method) {
  LocalPresence roll(config.launcher);
  const auto threads = config.mpi_threads_disable ? mpi::Threads::kSingle : mpi::Threads::kMultiple;
  if (const Status begun = mpi::Begin(library, threads, StartDeadline(config)); !begun) {
    return NotAllCame(begun.error(), config, roll.Absent(), &roll);
  }
  if (OperatesByMpi(config)) HVD_RETURN_IF_ERROR(CheckThreads(library));
  method->mpi = library;
  method->comm = library->World();
  const int rank = library->Rank(method->comm);
  const int size = library->Size(method->comm);
  if (rank == config.rank && size == config.size) return {};
  return Fail(
      Code::kFailedPrecondition,
      "this is rank {} of {} by {}, and rank {} of {} by {}: the job was not started by that MPI. Start it by the "
      "mpirun of the same MPI, or unset {}",
      config.rank, config.size, config.launcher.name.empty() ? "HOROVOD_RANK and HOROVOD_SIZE" : config.launcher.name,
      rank, size, library->name(), fmt::join(WhatAsksForMpi(config), " and "));
}

Result<RendezvousMethod> ByCommunicator(Config* config, const void* mpi_comm) {
  HVD_ASSIGN_OR_RETURN(mpi::Library * library, mpi::Open(std::nullopt, config->mpi_library));
  if (!library->Initialized() || library->Finalized()) {
    return Fail(Code::kFailedPrecondition, "init was given an MPI communicator, but {} is not initialised",
                library->name());
  }
  if (OperatesByMpi(*config)) HVD_RETURN_IF_ERROR(CheckThreads(library));
  RendezvousMethod method;
  method.mpi = library;
  method.comm = library->CommAt(mpi_comm);
  config->rank = library->Rank(method.comm);
  config->size = library->Size(method.comm);
  if (config->rank < 0 || config->size < 1) {
    return Fail(Code::kInvalidArgument,
                "the communicator given to init is not one of {}: it is MPI_COMM_NULL, or another MPI library made it",
                library->name());
  }
  config->local_rank = config->local_size = config->cross_rank = config->cross_size = -1;
  config->rendezvous_addr.clear();
  method.kind = Kind::kMpi;
  method.why = fmt::format("by {}: init was given its communicator", library->name());
  return method;
}

void MeetLocally(Config* config, std::string_view why, RendezvousMethod* method) {
  config->rendezvous_addr = "local:" + config->launcher.job;
  method->kind = Kind::kAddress;
  method->why =
      fmt::format("by {} ({}), at a local socket: {}", config->launcher.name, config->launcher.rank_variable, why);
}

// torch.distributed uses MASTER_PORT itself.
Result<RendezvousMethod> ByMaster(Config* config) {
  const Launcher& launcher = config->launcher;
  RendezvousMethod method;
  if (launcher.all_local()) {
    MeetLocally(config, "all ranks are on this machine", &method);
    return method;
  }
  if (launcher.master_addr.empty() || launcher.master_port < 1 || launcher.master_port > 65534) {
    return Fail(Code::kInvalidArgument,
                "MASTER_ADDR={} MASTER_PORT={} is no address: correct it, or set "
                "HOROVOD_RENDEZVOUS_ADDR=host:port",
                launcher.master_addr, launcher.master_port);
  }
  const bool v6 = launcher.master_addr.find(':') != std::string::npos;
  config->rendezvous_addr =
      fmt::format("{}{}{}:{}", v6 ? "[" : "", launcher.master_addr, v6 ? "]" : "", launcher.master_port + 1);
  method.kind = Kind::kAddress;
  method.why =
      fmt::format("by {} ({}), at MASTER_ADDR and the port after MASTER_PORT", launcher.name, launcher.rank_variable);
  return method;
}

Result<RendezvousMethod> ByLauncher(Config* config) {
  const Launcher& launcher = config->launcher;
  if (launcher.kind == LauncherKind::kTorchrun || launcher.kind == LauncherKind::kVariables) return ByMaster(config);
  RendezvousMethod method;
  const auto told = [&](std::string_view how) {
    method.why = fmt::format("by {} ({}), introduced by {}", launcher.name, launcher.rank_variable, how);
    return method;
  };
  const bool must = OperatesByMpi(*config) || config->controller == "mpi";
  std::string tried = "HOROVOD_CONTROLLER=gloo is set";
  if (must || (config->controller != "gloo" && ByMpirun(launcher.kind))) {
    auto library = OpenMpi(*config);
    if (!library && (must || library.error().code != Code::kNotFound)) return Fail(library.error());
    if (library) {
      HVD_RETURN_IF_ERROR(UseMpi(*library, *config, &method));
      method.kind = Kind::kMpi;
      return told((*library)->name());
    }
    tried = library.error().message;
  }
  if (launcher.pmix) {
    const auto probed = pmi::ProbePmix();
    method.kind = Kind::kPmix;
    if (probed) return told("PMIx");
    tried += fmt::format("; PMIx: {}", probed.error().message);
  }
  if (launcher.pmi_fd >= 0) {
    method.kind = Kind::kPmi;
    if (::fcntl(launcher.pmi_fd, F_GETFD) >= 0) return told("PMI");
    tried += fmt::format("; PMI: descriptor {} is closed", launcher.pmi_fd);
  }
  if (launcher.all_local() && !launcher.job.empty()) {
    MeetLocally(config, "all ranks are on this machine", &method);
    return method;
  }
  if (launcher.kind == LauncherKind::kSlurm) {
    return Fail(
        Code::kFailedPrecondition,
        "srun started {} ranks on several hosts and nothing introduces them to each other: use srun --mpi=pmix or "
        "--mpi=pmi2, or set HOROVOD_RENDEZVOUS_ADDR=host:port and HOROVOD_TOKEN_FILE for all ranks",
        launcher.size);
  }
  return Fail(Code::kFailedPrecondition,
              "{} started {} ranks and nothing introduces them to each other ({}): install that library, or set "
              "HOROVOD_RENDEZVOUS_ADDR=host:port and HOROVOD_TOKEN_FILE for all ranks",
              launcher.name, launcher.size, tried);
}

Result<RendezvousMethod> ByEnvironment(Config* config) {
  RendezvousMethod method;
  if (config->size <= 1) {
    const std::string& hint = config->launcher.hint;
    method.why = fmt::format("alone: {}", hint.empty() ? "no launcher's variables are set" : hint);
    return method;
  }
  if (config->rendezvous_addr.empty() && config->launcher.kind != LauncherKind::kNone) return ByLauncher(config);
  if (config->rendezvous_addr.empty()) {
    return Fail(Code::kInvalidArgument,
                "HOROVOD_SIZE={} but nothing says where the ranks meet: set HOROVOD_RENDEZVOUS_ADDR=host:port to the "
                "same value for all (127.0.0.1:29500 on one machine)",
                config->size);
  }
  method.kind = Kind::kAddress;
  const bool own = config->launcher.kind == LauncherKind::kNone;
  method.why =
      fmt::format("by {}, at HOROVOD_RENDEZVOUS_ADDR", own ? "HOROVOD_RANK and HOROVOD_SIZE" : config->launcher.name);
  if (OperatesByMpi(*config)) {
    HVD_ASSIGN_OR_RETURN(mpi::Library * library, OpenMpi(*config));
    HVD_RETURN_IF_ERROR(UseMpi(library, *config, &method));
  }
  return method;
}

Status KeepOnly(std::span<const int> ranks, Config* config, RendezvousMethod* method) {
  const auto at = std::find(ranks.begin(), ranks.end(), config->rank);
  if (at == ranks.end()) {
    return Fail(Code::kInvalidArgument, "rank {} is not in comm={}: only the ranks listed there may call init",
                config->rank, fmt::format("{}", ranks));
  }
  for (const int rank : ranks) {
    if (rank < 0 || rank >= config->size || std::ranges::count(ranks, rank) > 1) {
      return Fail(Code::kInvalidArgument, "comm={} names rank {}, which must be from 0 to {} and there once",
                  fmt::format("{}", ranks), rank, config->size - 1);
    }
  }
  if (method->kind == Kind::kPmix || method->kind == Kind::kPmi) {
    return Fail(
        Code::kUnimplemented,
        "comm={} needs MPI (HOROVOD_CONTROLLER=mpi) or HOROVOD_RENDEZVOUS_ADDR: PMI introduces all ranks or none",
        fmt::format("{}", ranks));
  }
  if (method->mpi != nullptr) {
    constexpr int kTag = 0x4856;
    LocalPresence roll(config->launcher);
    const auto made = mpi::MakeComm(method->mpi, method->comm, ranks, kTag, StartDeadline(*config));
    if (!made) return NotAllCame(made.error(), *config, roll.Absent(ranks), &roll);
    method->comm = *made;
  }
  config->rank = static_cast<int>(at - ranks.begin());
  config->size = static_cast<int>(ranks.size());
  config->local_rank = config->local_size = config->cross_rank = config->cross_size = -1;
  config->group = fmt::format("{}", fmt::join(ranks, "-"));
  if (config->rendezvous_addr.starts_with("local:")) config->rendezvous_addr += "-ranks-" + config->group;
  return {};
}

}  // namespace

Result<RendezvousMethod> ChooseRendezvousMethod(Config* config, const InitArguments& given) {
  if (given.mpi_comm != nullptr) return ByCommunicator(config, given.mpi_comm);
  HVD_ASSIGN_OR_RETURN(RendezvousMethod method, ByEnvironment(config));
  if (!given.comm_ranks.empty()) HVD_RETURN_IF_ERROR(KeepOnly(given.comm_ranks, config, &method));
  return method;
}

}  // namespace hvd::engine::bootstrap
