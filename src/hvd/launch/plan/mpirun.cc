// SPDX-License-Identifier: Apache-2.0
#include "hvd/launch/plan/mpirun.h"

#include <fmt/ranges.h>

#include <cstdio>
#include <filesystem>

#include "hvd/launch/cli/complaint.h"
#include "hvd/launch/cli/exit_codes.h"
#include "hvd/launch/cli/parse.h"
#include "hvd/launch/cli/shell_words.h"
#include "hvd/launch/plan/command.h"
#include "hvd/launch/plan/this_machine.h"
#include "hvd/launch/run/spawn.h"
#include "hvd/net/fd.h"

namespace hvd::launch {
namespace {

constexpr int kManyHosts = 64;  // from here on Open MPI's own tree of ssh is more trouble than help

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

// What goes to ssh; one text, which mpirun splits at blanks.
std::string SshArguments(const Options& options) {
  std::string ssh;
  if (options.ssh_port) ssh += fmt::format("-p {}", *options.ssh_port);
  if (options.ssh_identity_file) ssh += fmt::format("{}-i {}", ssh.empty() ? "" : " ", *options.ssh_identity_file);
  return ssh;
}

// What would be silently dropped is refused: mpirun knows nothing of it.
Status CheckFlags(const Options& options, MpirunKind kind) {
  const bool hydra = kind == MpirunKind::kHydra;
  const std::pair<bool, const char*> ours[] = {{options.json.has_value(), "--json"},
                                               {options.log_dir.has_value(), "--log-dir"},
                                               {options.report_file.has_value(), "--report-file"},
                                               {options.only_rank.has_value(), "--only-rank"},
                                               {options.debug_rank.has_value(), "--debug-rank"},
                                               {options.cores_per_rank.has_value(), "--cores-per-rank"},
                                               {options.heap == "arena", "--heap arena"},
                                               {options.prefix.has_value(), "--prefix"},
                                               {options.color == "always", "--color always"},
                                               {options.grace_period.has_value(), "--grace-period"},
                                               {options.no_ssh.has_value(), "--no-ssh"},
                                               {options.driver_address.has_value(), "--driver-address"},
                                               {options.token_file.has_value(), "--token-file"}};
  for (const auto& [given, name] : ours) {
    if (!given) continue;
    return Fail(Code::kInvalidArgument, "{}: not with --mpi: mpirun starts the ranks, prints and ends; leave it out",
                name);
  }
  if (hydra && options.prefix_timestamp.value_or(false)) {
    return Fail(Code::kInvalidArgument, "--prefix-output-with-timestamp: MPICH's mpirun cannot; leave it out");
  }
  if (hydra && options.network_interfaces.size() > 1) {
    return Fail(Code::kInvalidArgument, "--network-interfaces: MPICH's mpirun takes one");
  }
  if (options.ssh_identity_file && options.ssh_identity_file->find_first_of(" \t") != std::string::npos) {
    return Fail(Code::kInvalidArgument, "-i '{}': mpirun takes no path with blanks", *options.ssh_identity_file);
  }
  return {};
}

void AddOpenMpi(const Options& options, const std::vector<Host>& hosts, MpirunKind kind, List* words) {
  Add(words, {"--allow-run-as-root", "--tag-output", "-H", HostList(hosts)});
  if (kind == MpirunKind::kSpectrum && options.tcp.value_or(false)) Add(words, {"-tcp"});
  if (kind == MpirunKind::kOpenMpi) Add(words, {"-mca", "pml", "ob1", "-mca", "btl", "^openib"});
  if (static_cast<int>(hosts.size()) >= kManyHosts) Add(words, {"-mca", "plm_rsh_no_tree_spawn", "true"});
  if (const std::string ssh = SshArguments(options); !ssh.empty()) Add(words, {"-mca", "plm_rsh_args", ssh});
  if (!options.network_interfaces.empty()) {
    Add(words, {"-mca", "btl_tcp_if_include", fmt::format("{}", fmt::join(options.network_interfaces, ","))});
  }
  if (options.prefix_timestamp.value_or(false)) Add(words, {"--timestamp-output"});
  // As everywhere else: no folder for the number that this mpirun gives its job.
  if (options.output_filename) Add(words, {"--output-filename", *options.output_filename + ":nojobid"});
}

void AddHydra(const Options& options, const std::vector<Host>& hosts, List* words) {
  Add(words, {"-hosts", HostList(hosts), "-prepend-rank"});
  if (!options.network_interfaces.empty()) Add(words, {"-iface", options.network_interfaces.front()});
  if (options.output_filename) {
    Add(words, {"-outfile-pattern", *options.output_filename + "/rank.%r/stdout", "-errfile-pattern",
                *options.output_filename + "/rank.%r/stderr"});
  }
}

// The hosts with as many slots as ranks will run there.
Result<std::vector<Host>> ReadHosts(const Options& options, std::string* note) {
  HVD_ASSIGN_OR_RETURN(const std::vector<Slot> slots, PlanSlots(options, ReadFile, IsThisMachine, note));
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

// Hydra makes no folders.
Status MakeFolders(const std::string& parent, int64_t ranks) {
  for (int64_t rank = 0; rank < ranks; ++rank) {
    const std::string folder = fmt::format("{}/rank.{}", parent, rank);
    std::error_code error;
    std::filesystem::create_directories(folder, error);
    if (error) return Fail(Code::kInvalidArgument, "{}: cannot make this folder: {}", folder, error.message());
  }
  return {};
}

struct Line {
  std::string program;
  List words;
  Environment environment;
  MpirunKind kind = MpirunKind::kOpenMpi;
  List shown_first{};  // variables that belong to the line as people would type it
  std::string note{};
};

constexpr const char* kHydraSsh = "HYDRA_LAUNCHER_EXTRA_ARGS";

void AddHydrasSsh(const Options& options, Line* line) {
  std::string ssh = SshArguments(options);
  if (ssh.empty()) return;
  if (const auto already = line->environment.Get(kHydraSsh)) ssh = *already + " " + ssh;
  line->shown_first.push_back(fmt::format("{}={}", kHydraSsh, Quoted(ssh)));
  line->environment.Set(kHydraSsh, std::move(ssh));
}

std::string Shown(const Line& line) {
  std::string text;
  for (const std::string& variable : line.shown_first) text += variable + " ";
  return text + Quoted(line.words) + "\n";
}

Result<Line> MakeLine(const std::string& self, const Options& options, const Environment& environment) {
  std::string note;
  HVD_ASSIGN_OR_RETURN(const std::vector<Host> hosts, ReadHosts(options, &note));
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
  HVD_RETURN_IF_ERROR(CheckFlags(options, *kind));
  plan.environment.Set("HOROVOD_CONTROLLER", "mpi");
  Line line{.program = mpirun->program, .words = {mpirun->program}, .environment = plan.environment, .kind = *kind};
  HVD_ASSIGN_OR_RETURN(const List words, MpirunWords(*kind, options, hosts, plan));
  Add(&line.words, words);
  if (*kind == MpirunKind::kHydra) AddHydrasSsh(options, &line);
  line.note = std::move(note);
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
  for (const std::string& note : options.notes) Note(note);
  if (!line->note.empty()) Note(line->note);
  if (options.dry_run) return Answer(Shown(*line));
  if (options.verbose) Note("becomes " + Shown(*line));
  if (line->kind == MpirunKind::kHydra && options.output_filename) {
    const Status made = MakeFolders(*options.output_filename, *options.num_proc);
    if (!made) return Complain(made.error(), kUsage);
  }
  Become(line->program, line->words, line->environment.Lines());
  return Complain({Code::kPermissionDenied, fmt::format("{} cannot be executed", line->program)}, kCannotRun);
}

}  // namespace hvd::launch
