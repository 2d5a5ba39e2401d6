// SPDX-License-Identifier: Apache-2.0
#include "hvd/base/launcher.h"

#include <algorithm>
#include <array>
#include <charconv>
#include <string_view>

#include "hvd/base/config.h"

namespace hvd {
namespace {

struct Description {
  LauncherKind kind;
  const char* name;
  const char* rank;
  const char* size;
  const char* local_rank;
  const char* local_size;
  std::array<const char*, 2> needs;  // must be set, too
};

// In the order in which they are looked for.
constexpr std::array kLaunchers{
    Description{LauncherKind::kTorchrun,
                "torchrun",
                "RANK",
                "WORLD_SIZE",
                "LOCAL_RANK",
                "LOCAL_WORLD_SIZE",
                {"TORCHELASTIC_RUN_ID", "MASTER_PORT"}},
    Description{LauncherKind::kOpenMpi,
                "mpirun of Open MPI",
                "OMPI_COMM_WORLD_RANK",
                "OMPI_COMM_WORLD_SIZE",
                "OMPI_COMM_WORLD_LOCAL_RANK",
                "OMPI_COMM_WORLD_LOCAL_SIZE",
                {}},
    Description{LauncherKind::kMpich,
                "mpirun of MPICH",
                "PMI_RANK",
                "PMI_SIZE",
                "MPI_LOCALRANKID",
                "MPI_LOCALNRANKS",
                {"MPI_LOCALRANKID"}},
    Description{LauncherKind::kJsrun,
                "jsrun",
                "JSM_NAMESPACE_RANK",
                "JSM_NAMESPACE_SIZE",
                "JSM_NAMESPACE_LOCAL_RANK",
                "JSM_NAMESPACE_LOCAL_SIZE",
                {}},
    // Tasks of the step, not of the job: a batch script and a shell of salloc are no ranks.
    Description{LauncherKind::kSlurm,
                "srun",
                "SLURM_PROCID",
                "SLURM_STEP_NUM_TASKS",
                "SLURM_LOCALID",
                nullptr,
                {"SLURM_STEP_ID"}},
    Description{
        LauncherKind::kMpich, "a launcher that speaks PMI", "PMI_RANK", "PMI_SIZE", nullptr, nullptr, {"PMI_FD"}},
    Description{LauncherKind::kVariables,
                "the variables of torch.distributed",
                "RANK",
                "WORLD_SIZE",
                "LOCAL_RANK",
                "LOCAL_WORLD_SIZE",
                {"MASTER_ADDR", "MASTER_PORT"}},
};

class Reader {
 public:
  explicit Reader(const Variables& variables) : variables_(variables) {}

  bool Has(const char* name) const { return !Text(name).empty(); }
  std::string Text(const char* name) const {
    const char* text = variables_(name);
    return text == nullptr ? "" : text;
  }
  // -1: not set, or no name.
  Result<int> Number(const char* name) const {
    const std::string text = name == nullptr ? "" : Text(name);
    if (text.empty()) return -1;
    int value = -1;
    const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
    if (error != std::errc() || end != text.data() + text.size() || value < 0) {
      return Fail(Code::kInvalidArgument, "{}={} is no number: it is the launcher's to set; unset it, or correct it",
                  name, text);
    }
    return value;
  }

 private:
  const Variables& variables_;
};

// "2(x3),1" at node 3 is 1: how many tasks of the step run on each node.
int TasksOnNode(std::string_view text, int node) {
  int first = 0;
  while (!text.empty()) {
    int tasks = 0;
    int nodes = 1;
    const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), tasks);
    if (error != std::errc()) return -1;
    text.remove_prefix(static_cast<size_t>(end - text.data()));
    if (text.starts_with("(x")) {
      const auto [close, bad] = std::from_chars(text.data() + 2, text.data() + text.size(), nodes);
      if (bad != std::errc() || *close != ')') return -1;
      text.remove_prefix(static_cast<size_t>(close - text.data()) + 1);
    }
    first += nodes;
    if (node < first) return tasks;
    if (text.starts_with(',')) text.remove_prefix(1);
  }
  return -1;
}

// Names that a launcher gives its jobs, where it gives any.
std::string JobName(const Reader& reader, LauncherKind kind) {
  const auto joined = [&](const char* tag, std::initializer_list<const char*> names) {
    std::string job = tag;
    for (const char* name : names) {
      if (!reader.Has(name)) return std::string();
      job += "-" + reader.Text(name);
    }
    return job;
  };
  switch (kind) {
    case LauncherKind::kTorchrun:
      // One agent may run several jobs of a user; a restarted one must not meet what is left of the one before.
      return joined("torchrun", {"TORCHELASTIC_RUN_ID", "MASTER_PORT"}) + "-" +
             reader.Text("TORCHELASTIC_RESTART_COUNT");
    case LauncherKind::kVariables:
      return joined("variables", {"MASTER_PORT"});
    case LauncherKind::kOpenMpi:
    case LauncherKind::kJsrun:
      return joined("pmix", {"PMIX_NAMESPACE", "PMIX_SERVER_URI2"});
    case LauncherKind::kSlurm:
      return joined("slurm", {"SLURM_JOB_ID", "SLURM_STEP_ID"});
    default:
      return "";
  }
}

Result<Launcher> Read(const Reader& reader, const Description& description) {
  Launcher found;
  found.kind = description.kind;
  found.name = description.name;
  found.rank_variable = description.rank;
  found.size_variable = description.size;
  HVD_ASSIGN_OR_RETURN(found.rank, reader.Number(description.rank));
  HVD_ASSIGN_OR_RETURN(found.size, reader.Number(description.size));
  if (found.rank >= found.size) {
    return Fail(Code::kInvalidArgument, "{}={} is not below {}={}: ranks count from 0", description.rank, found.rank,
                description.size, found.size);
  }
  HVD_ASSIGN_OR_RETURN(found.local_rank, reader.Number(description.local_rank));
  HVD_ASSIGN_OR_RETURN(found.local_size, reader.Number(description.local_size));
  if (found.kind == LauncherKind::kSlurm) {
    HVD_ASSIGN_OR_RETURN(const int node, reader.Number("SLURM_NODEID"));
    found.local_size = TasksOnNode(reader.Text("SLURM_STEP_TASKS_PER_NODE"), std::max(node, 0));
  }
  if (found.local_rank < 0 || found.local_size <= found.local_rank || found.local_size > found.size) {
    found.local_rank = found.local_size = -1;
  }
  found.job = JobName(reader, found.kind);
  found.master_addr = reader.Text("MASTER_ADDR");
  HVD_ASSIGN_OR_RETURN(found.master_port, reader.Number("MASTER_PORT"));
  HVD_ASSIGN_OR_RETURN(found.pmi_fd, reader.Number("PMI_FD"));
  found.pmix = reader.Has("PMIX_NAMESPACE") && reader.Has("PMIX_RANK");
  return found;
}

// RANK and WORLD_SIZE are names that anybody may use: they are torch.distributed's if one of its others is there.
Launcher IncompleteVariables(const Reader& reader) {
  Launcher none;
  if (!reader.Has("RANK") || !reader.Has("WORLD_SIZE") || reader.Text("WORLD_SIZE") == "1") return none;
  const bool address = reader.Has("MASTER_ADDR");
  if (address == reader.Has("MASTER_PORT")) {
    none.hint = "RANK and WORLD_SIZE are ignored, because MASTER_ADDR and MASTER_PORT are not set";
  } else {
    none.missing = address ? "MASTER_PORT" : "MASTER_ADDR";
  }
  return none;
}

}  // namespace

Result<Launcher> FindLauncher(const Variables& variables) {
  const Reader reader(variables);
  for (const Description& description : kLaunchers) {
    if (!reader.Has(description.rank) || !reader.Has(description.size)) continue;
    if (std::ranges::any_of(description.needs,
                            [&](const char* name) { return name != nullptr && !reader.Has(name); })) {
      continue;
    }
    HVD_ASSIGN_OR_RETURN(Launcher found, Read(reader, description));
    if (found.size > 1) return found;
  }
  return IncompleteVariables(reader);
}

Status FollowLauncher(Config* config) {
  const Launcher& launcher = config->launcher;
  const bool complete = config->rank >= 0 && config->size > 0 && !config->rendezvous_addr.empty();
  if (!launcher.missing.empty() && config->rank < 0 && config->size < 0) {
    return Fail(Code::kInvalidArgument,
                "RANK, WORLD_SIZE and {} are set, as for torch.distributed, but {} is not: set it, too, or unset "
                "WORLD_SIZE for a job of one process",
                launcher.missing == "MASTER_PORT" ? "MASTER_ADDR" : "MASTER_PORT", launcher.missing);
  }
  if (launcher.kind == LauncherKind::kNone) return {};
  if (complete) {
    config->launcher = {};
    return {};
  }
  const auto differs = [&](const char* name, int own, const std::string& variable, int theirs) {
    return Fail(Code::kInvalidArgument,
                "HOROVOD_{}={} contradicts {}={}, which {} set: unset HOROVOD_RANK and HOROVOD_SIZE, or set "
                "HOROVOD_RENDEZVOUS_ADDR, too, for a job that does not follow {}",
                name, own, variable, theirs, launcher.name, launcher.name);
  };
  if (config->rank >= 0 && config->rank != launcher.rank) {
    return differs("RANK", config->rank, launcher.rank_variable, launcher.rank);
  }
  if (config->size >= 0 && config->size != launcher.size) {
    return differs("SIZE", config->size, launcher.size_variable, launcher.size);
  }
  config->rank = launcher.rank;
  config->size = launcher.size;
  if (config->local_size < 0) {
    config->local_rank = launcher.local_rank;
    config->local_size = launcher.local_size;
  }
  return {};
}

}  // namespace hvd
