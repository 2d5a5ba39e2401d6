// SPDX-License-Identifier: Apache-2.0
#include "hvd/launch/mpirun.h"

#include <fmt/ranges.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cstdio>

#include "hvd/launch/command.h"
#include "hvd/launch/complaint.h"
#include "hvd/launch/exit_codes.h"
#include "hvd/launch/parse.h"
#include "hvd/launch/spawn.h"
#include "hvd/net/fd.h"

namespace hvd::launch {
namespace {

constexpr int kManyHosts = 64;  // from here on Open MPI's own tree of ssh is more trouble than help

// As a shell would, without expanding anything.
Result<List> SplitWords(std::string_view flag, std::string_view text) {
  List words;
  std::string word;
  bool in_word = false;
  char quote = 0;
  for (const char c : text) {
    if (quote != 0) {
      c == quote ? static_cast<void>(quote = 0) : word.push_back(c);
    } else if (c == '\'' || c == '"') {
      quote = c;
      in_word = true;
    } else if (c == ' ' || c == '\t' || c == '\n') {
      if (in_word) words.push_back(std::move(word));
      word.clear();
      in_word = false;
    } else {
      word.push_back(c);
      in_word = true;
    }
  }
  if (quote != 0) return Fail(Code::kInvalidArgument, "{} {}: a quotation mark is not closed", flag, text);
  if (in_word) words.push_back(std::move(word));
  return words;
}

void Add(List* words, std::initializer_list<std::string> more) { words->insert(words->end(), more); }
void Add(List* words, const List& more) { words->insert(words->end(), more.begin(), more.end()); }

std::string HostList(const std::vector<Host>& hosts) {
  std::string text;
  for (const Host& host : hosts) text += fmt::format("{}{}:{}", text.empty() ? "" : ",", host.name, host.slots);
  return text;
}

// What remote ranks need of this environment; not what belongs to this shell or to an outer launcher.
bool Travels(std::string_view name) {
  for (const std::string_view kept : {"BASH_FUNC_", "OMPI_", "PMI_", "PMIX_", "SLURM_", "HYDI_", "MPI_LOCAL"}) {
    if (name.starts_with(kept)) return false;
  }
  for (const std::string_view kept : {"OLDPWD", "PWD", "SHLVL", "_", "_HOROVOD_SECRET_KEY", "CUDA_VISIBLE_DEVICES"}) {
    if (name == kept) return false;
  }
  return true;
}

void AddOpenMpi(const Options& options, const std::vector<Host>& hosts, MpirunKind kind, List* words) {
  Add(words, {"--allow-run-as-root", "--tag-output", "-H", HostList(hosts)});
  if (kind == MpirunKind::kSpectrum && options.tcp.value_or(false)) Add(words, {"-tcp"});
  if (kind == MpirunKind::kOpenMpi) Add(words, {"-mca", "pml", "ob1", "-mca", "btl", "^openib"});
  if (static_cast<int>(hosts.size()) >= kManyHosts) Add(words, {"-mca", "plm_rsh_no_tree_spawn", "true"});
  std::string ssh;
  if (options.ssh_port) ssh += fmt::format("-p {}", *options.ssh_port);
  if (options.ssh_identity_file) ssh += fmt::format("{}-i {}", ssh.empty() ? "" : " ", *options.ssh_identity_file);
  if (!ssh.empty()) Add(words, {"-mca", "plm_rsh_args", ssh});
  if (!options.network_interfaces.empty()) {
    Add(words, {"-mca", "btl_tcp_if_include", fmt::format("{}", fmt::join(options.network_interfaces, ","))});
  }
  if (options.output_filename) Add(words, {"--output-filename", *options.output_filename});
}

void AddHydra(const Options& options, const std::vector<Host>& hosts, List* words) {
  Add(words, {"-hosts", HostList(hosts), "-prepend-rank"});
  if (!options.network_interfaces.empty()) Add(words, {"-iface", options.network_interfaces.front()});
  if (options.output_filename) {
    Add(words, {"-outfile-pattern", *options.output_filename + "/rank.%r.stdout", "-errfile-pattern",
                *options.output_filename + "/rank.%r.stderr"});
  }
}

// The hosts with as many slots as ranks will run there.
Result<std::vector<Host>> ReadHosts(const Options& options) {
  HVD_ASSIGN_OR_RETURN(const std::vector<Slot> slots, PlanSlots(options, ReadFile));
  std::vector<Host> used;
  for (const Slot& slot : slots) {
    if (slot.local_rank == 0) used.push_back({slot.host, slot.local_size});
  }
  return used;
}

// What it prints, together; bounded in size, and by its own end in time.
std::string AskVersion(const std::string& program) {
  FILE* pipe = ::popen(fmt::format("exec '{}' --version 2>&1", program).c_str(), "re");
  if (pipe == nullptr) return "";
  std::string text(64 << 10, '\0');
  text.resize(::fread(text.data(), 1, text.size(), pipe));
  ::pclose(pipe);
  return text;
}

struct Line {
  std::string program;
  List words;
  Environment environment;
};

Result<Line> MakeLine(const std::string& self, const Options& options, const Environment& environment) {
  HVD_ASSIGN_OR_RETURN(const std::vector<Host> hosts, ReadHosts(options));
  // mpirun reaches the hosts itself; the rest of the plan is as without it.
  Options local = options;
  local.hosts.reset();
  local.hostfile.reset();
  HVD_ASSIGN_OR_RETURN(Plan plan, MakePlan(local, environment, self, ReadFile));
  auto mpirun = ResolveCommand({"mpirun"}, self, environment);
  if (!mpirun) {
    return Fail(Code::kNotFound, "--mpi: there is no mpirun in PATH: install Open MPI or MPICH, or leave --mpi out");
  }
  const auto kind = RecogniseMpirun(AskVersion(mpirun->program));
  if (!kind) return Fail(Code::kInvalidArgument, "--mpi: {}: {}", mpirun->program, kind.error().message);
  plan.environment.Set("HOROVOD_CONTROLLER", "mpi");
  Line line{mpirun->program, {mpirun->program}, plan.environment};
  HVD_ASSIGN_OR_RETURN(const List words, MpirunWords(*kind, options, hosts, plan));
  Add(&line.words, words);
  return line;
}

}  // namespace

Result<MpirunKind> RecogniseMpirun(std::string_view version) {
  const auto has = [&](std::string_view word) { return version.find(word) != std::string_view::npos; };
  if (has("IBM Spectrum MPI")) return MpirunKind::kSpectrum;
  if (has("Open MPI") || has("OpenRTE")) return MpirunKind::kOpenMpi;
  if (has("HYDRA") || has("Intel(R) MPI") || has("MPICH") || has("MVAPICH")) return MpirunKind::kHydra;
  return Fail(Code::kNotFound,
              "its --version names neither Open MPI, Spectrum MPI, MPICH nor Intel MPI; start the job by it directly");
}

Result<List> MpirunWords(MpirunKind kind, const Options& options, const std::vector<Host>& hosts, const Plan& plan) {
  List words{"-np", fmt::format("{}", *options.num_proc)};
  const bool hydra = kind == MpirunKind::kHydra;
  hydra ? AddHydra(options, hosts, &words) : AddOpenMpi(options, hosts, kind, &words);
  if (options.binding_args) {
    HVD_ASSIGN_OR_RETURN(const List binding, SplitWords("--binding-args", *options.binding_args));
    Add(&words, binding);
  } else if (!hydra) {
    Add(&words, {"-bind-to", "none", "-map-by", "slot"});
  }
  if (options.mpi_args) {
    HVD_ASSIGN_OR_RETURN(const List more, SplitWords("--mpi-args", *options.mpi_args));
    Add(&words, more);
  }
  // Hydra hands all variables on.
  for (const std::string& one : plan.environment.Lines()) {
    const std::string name = one.substr(0, one.find('='));
    if (!hydra && Travels(name)) Add(&words, {"-x", name});
  }
  Add(&words, {plan.program});
  words.insert(words.end(), plan.arguments.begin() + 1, plan.arguments.end());
  return words;
}

bool UsesMpirun(const Options& options) {
  return options.mpi.value_or(false) || (!options.gloo.value_or(false) && options.controller == "mpi");
}

int RunMpirun(const std::string& self, const Options& options, const Environment& environment) {
  auto line = MakeLine(self, options, environment);
  if (!line) return Complain(line.error(), CodeFor(line.error()));
  if (options.dry_run) {
    const std::string text = fmt::format("{}\n", fmt::join(line->words, " "));
    [[maybe_unused]] const ssize_t written = ::write(1, text.data(), text.size());
    return 0;
  }
  Become(line->program, line->words, line->environment.Lines());
  return Complain({Code::kPermissionDenied, fmt::format("{} cannot be executed", line->program)}, kCannotRun);
}

}  // namespace hvd::launch
