// SPDX-License-Identifier: Apache-2.0
#include "hvd/base/variables.h"

#include <fmt/format.h>

#include <algorithm>
#include <iterator>

#include "hvd/base/config.h"
#include "hvd/base/suggest.h"

namespace hvd {
namespace {

struct Elsewhere {
  const char* name;
  const char* shown_default;
  const char* text;
};

constexpr Elsewhere kElsewhere[] = {
    {"HOROVOD_COMPAT", "1",
     "Bridges for old programs; 0: none, 1: for Keras 2, tf1: for TensorFlow 1, too (`--compat`)."},
    {"HOROVOD_HEAP", "system", "Where large blocks of malloc of ranks lie: `arena` or `system` (`--heap`)."},
    {"HOROVOD_CORES_PER_RANK", "unset", "Cores to which horovodrun binds each rank (`--cores-per-rank`)."},
    {"HOROVOD_ELASTIC_TIMEOUT", "600", "Seconds that an elastic job with too few ranks waits (`--elastic-timeout`)."},
    {"HOROVOD_SPARK_START_TIMEOUT", "600", "Seconds that Spark has to start all tasks of `horovod.spark.run`."},
    {"HOROVOD_JOB_ID", "unset", "Name of the job. Set by launchers."},
    {"HOROVOD_ELASTIC", "unset", "1: the rank is part of an elastic job. Set by launchers."},
    {"HOROVOD_ELASTIC_VERIFY", "0",
     "1 compares the arrays of an elastic state among the ranks after each commit and each change."},
    {"HOROVOD_ELASTIC_ID", "unset", "Number of a process of an elastic job. Set by launchers."},
    {"HOROVOD_INIT_PROCESS", "unset", "Process that is the rank; its children are not. Set by `hvd.init()`."},
};

struct WithoutEffect {
  const char* name;
  const char* why;
};

constexpr const char* kBuild = "hvd has one build for all machines, so nothing is chosen when it is installed";
constexpr const char* kOwnChoice = "the engine selects its algorithms itself; see --algorithms";
constexpr const char* kNoLibrary = "this release does not use that library";
constexpr const char* kSpark = "tasks of Spark have the environment of their executors";

constexpr WithoutEffect kWithoutEffect[] = {
    {"HOROVOD_CYCLE_TIME", "this engine has no cycle to wait for"},
    {"HOROVOD_HIERARCHICAL_ALLREDUCE", kOwnChoice},
    {"HOROVOD_HIERARCHICAL_ALLGATHER", kOwnChoice},
    {"HOROVOD_TORUS_ALLREDUCE", kOwnChoice},
    {"HOROVOD_NUM_NCCL_STREAMS", kNoLibrary},
    {"HOROVOD_CCL_CACHE", kNoLibrary},
    {"HOROVOD_CCL_BGT_AFFINITY", kNoLibrary},
    {"HOROVOD_GLOO_TIMEOUT_SECONDS", "a lost peer is noticed; HOROVOD_OP_TIMEOUT_SECONDS limits operations"},
    {"HOROVOD_BATCH_D2D_MEMCOPIES", "the engine batches copies by itself"},
    {"HOROVOD_DISABLE_GROUP_FUSION", "HOROVOD_FUSION_THRESHOLD limits what is reduced as one, groups included"},
    {"HOROVOD_ADASUM_MPI_CHUNK_SIZE", "Adasum needs no MPI; HOROVOD_CHUNK_BYTES is the engine's chunk"},
    {"HOROVOD_ENABLE_ASYNC_COMPLETION", "the engine waits for no device"},
    {"HOROVOD_ENABLE_XLA_OPS", "XLA cannot run collectives in this release"},
    {"HOROVOD_DISABLE_NVTX_RANGES", "there are no NVTX ranges"},
    {"HOROVOD_SPARK_PYTHONPATH", kSpark},
    {"HOROVOD_SPARK_WORK_DIR", kSpark},
    {"HOROVOD_SPARK_USE_LOCAL_RANK_GPU_INDEX", kSpark},
    {"HOROVOD_WITH_TENSORFLOW", kBuild},
    {"HOROVOD_WITHOUT_TENSORFLOW", kBuild},
    {"HOROVOD_WITH_PYTORCH", kBuild},
    {"HOROVOD_WITHOUT_PYTORCH", kBuild},
    {"HOROVOD_WITH_MXNET", kBuild},
    {"HOROVOD_WITHOUT_MXNET", kBuild},
    {"HOROVOD_WITH_MPI", kBuild},
    {"HOROVOD_WITHOUT_MPI", kBuild},
    {"HOROVOD_WITH_GLOO", kBuild},
    {"HOROVOD_WITHOUT_GLOO", kBuild},
    {"HOROVOD_WITH_NVTX", kBuild},
    {"HOROVOD_WITHOUT_NVTX", kBuild},
    {"HOROVOD_GPU", kBuild},
    {"HOROVOD_GPU_OPERATIONS", kBuild},
    {"HOROVOD_GPU_ALLREDUCE", kBuild},
    {"HOROVOD_GPU_ALLGATHER", kBuild},
    {"HOROVOD_GPU_BROADCAST", kBuild},
    {"HOROVOD_GPU_ALLTOALL", kBuild},
    {"HOROVOD_GPU_REDUCESCATTER", kBuild},
    {"HOROVOD_ALLOW_MIXED_GPU_IMPL", kBuild},
    {"HOROVOD_CUDA_HOME", kBuild},
    {"HOROVOD_ROCM_HOME", kBuild},
    {"HOROVOD_NCCL_HOME", kBuild},
    {"HOROVOD_NCCL_INCLUDE", kBuild},
    {"HOROVOD_NCCL_LIB", kBuild},
    {"HOROVOD_NCCL_LINK", kBuild},
    {"HOROVOD_BUILD_ARCH_FLAGS", kBuild},
    {"HOROVOD_BUILD_CUDA_CC_LIST", kBuild},
    {"HOROVOD_CMAKE", kBuild},
    {"HOROVOD_DEBUG", kBuild},
    {"HOROVOD_SKIP_COMPILE", kBuild},
    {"HOROVOD_LOCAL_VERSION", kBuild},
};

// All names that a user may have meant.
std::vector<std::string> KnownNames() {
  std::vector<std::string> names = ConfigNames();
  std::ranges::transform(kElsewhere, std::back_inserter(names), &Elsewhere::name);
  std::ranges::transform(kWithoutEffect, std::back_inserter(names), &WithoutEffect::name);
  return names;
}

}  // namespace

std::string_view WhyWithoutEffect(std::string_view name) {
  const auto found = std::ranges::find_if(kWithoutEffect, [&](const auto& one) { return name == one.name; });
  return found == std::end(kWithoutEffect) ? std::string_view() : found->why;
}

std::vector<std::string> NotesOnVariables(const std::vector<std::string>& names) {
  const std::vector<std::string> known = KnownNames();
  std::vector<std::string> notes;
  for (const std::string& name : names) {
    if (!name.starts_with("HOROVOD_")) continue;
    if (const std::string_view why = WhyWithoutEffect(name); !why.empty()) {
      notes.push_back(fmt::format("{} has no effect: {}", name, why));
    } else if (std::ranges::find(known, name) == known.end()) {
      const std::string nearest = Nearest(name, known);
      if (!nearest.empty()) notes.push_back(fmt::format("{} is not known; did you mean {}?", name, nearest));
    }
  }
  return notes;
}

std::string DescribeOtherVariables() {
  std::string out = "\nVariables that `horovodrun` or the Python packages read:\n\n";
  out += "| variable | default | meaning |\n|---|---|---|\n";
  for (const Elsewhere& one : kElsewhere) {
    out += fmt::format("| `{}` | {} | {} |\n", one.name, one.shown_default, one.text);
  }
  out += "\nVariables of Horovod that have no effect:\n\n| variable | why |\n|---|---|\n";
  for (const WithoutEffect& one : kWithoutEffect) out += fmt::format("| `{}` | {} |\n", one.name, one.why);
  return out;
}

}  // namespace hvd
