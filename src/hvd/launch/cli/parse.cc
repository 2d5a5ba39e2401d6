// SPDX-License-Identifier: Apache-2.0
#include "hvd/launch/cli/parse.h"

#include <fcntl.h>
#include <poll.h>

#include <algorithm>
#include <cerrno>

#include "hvd/base/suggest.h"
#include "hvd/launch/cli/config_file.h"
#include "hvd/launch/cli/flags.h"
#include "hvd/net/fd.h"
#include "hvd/net/socket.h"

namespace hvd::launch {
namespace {

struct Given {
  const Flag* flag;
  std::string origin;
  std::string text;
};

// Which flags stand there, with their values as text, and where the command begins.
Result<std::vector<Given>> Scan(const std::vector<std::string>& arguments, List* command) {
  std::vector<Given> given;
  for (size_t i = 0; i < arguments.size(); ++i) {
    const std::string& argument = arguments[i];
    if (argument == "--") {
      command->assign(arguments.begin() + i + 1, arguments.end());
      break;
    }
    if (argument.size() < 2 || argument[0] != '-') {
      command->assign(arguments.begin() + i, arguments.end());
      break;
    }
    const size_t equals = argument.find('=');
    const std::string name = argument.substr(0, equals);
    const Flag* flag = FindFlag(name);
    if (flag == nullptr) {
      return Fail(Code::kInvalidArgument, "unknown flag {}{}", name, DidYouMean(name, FlagNames()));
    }
    if (flag->value == nullptr) {
      if (equals != std::string::npos) return Fail(Code::kInvalidArgument, "{}: takes no value", argument);
      given.push_back({flag, name, {}});
      continue;
    }
    if (equals != std::string::npos) {
      given.push_back({flag, name, argument.substr(equals + 1)});
      continue;
    }
    if (flag->built == Built::kNotYet) {
      given.push_back({flag, name, {}});
      break;  // it will be refused, whatever comes after it
    }
    if (i + 1 == arguments.size()) {
      return Fail(Code::kInvalidArgument, "{}: needs a value, {} {}", name, name, flag->value);
    }
    given.push_back({flag, name, arguments[++i]});
  }
  return given;
}

Status Apply(const std::vector<Given>& all, Options* options) {
  for (const Given& one : all) {
    HVD_RETURN_IF_ERROR(one.flag->value == nullptr ? Turn(*one.flag, one.origin, options)
                                                   : Assign(*one.flag, one.origin, one.text, options));
  }
  return {};
}

Status CheckTogether(const Options& options) {
  if (options.hosts && options.hostfile) {
    return Fail(Code::kInvalidArgument, "-H and --hostfile: give one of them, not both");
  }
  if (options.controller == "jsrun" && !options.gloo && !options.mpi) {
    return Fail(Code::kUnimplemented, "{}: controller: jsrun is not in this release; say gloo or mpi, or leave it out",
                *options.config_file);
  }
  if (options.gloo && options.mpi) return Fail(Code::kInvalidArgument, "--gloo and --mpi: give one of them, not both");
  if ((options.mpi_args || options.binding_args) && !options.mpi && options.controller != "mpi") {
    return Fail(Code::kInvalidArgument, "{}: needs --mpi", options.mpi_args ? "--mpi-args" : "--binding-args");
  }
  if (options.output_filename && options.log_dir) {
    return Fail(Code::kInvalidArgument, "--output-filename and --log-dir: give one of them, not both");
  }
  if (options.timeline_mark_cycles.value_or(false) && !options.timeline_filename) {
    return Fail(Code::kInvalidArgument, "--timeline-mark-cycles: needs --timeline-filename FILE");
  }
  return {};
}

Status CheckElastic(const Options& options) {
  if (!options.elastic()) {
    const char* const needs = options.max_np            ? "--max-np"
                              : options.slots_per_host  ? "--slots-per-host"
                              : options.elastic_timeout ? "--elastic-timeout"
                              : options.reset_limit     ? "--reset-limit"
                                                        : nullptr;
    if (needs == nullptr) return {};
    return Fail(Code::kInvalidArgument, "{}: is for elastic jobs: give --min-np N or --host-discovery-script COMMAND",
                needs);
  }
  if (options.mpi || options.controller == "mpi") {
    return Fail(Code::kInvalidArgument, "{}: mpirun cannot start elastic jobs; leave --mpi out",
                options.min_np ? "--min-np" : "--host-discovery-script");
  }
  if (options.host_discovery_script && (options.hosts || options.hostfile)) {
    return Fail(Code::kInvalidArgument, "--host-discovery-script and {}: give one of them, not both",
                options.hosts ? "-H" : "--hostfile");
  }
  if (options.debug_rank) {
    return Fail(Code::kInvalidArgument, "--debug-rank: ranks of an elastic job change; leave it out, or --min-np");
  }
  if (!options.num_proc) return {};
  const int64_t min_np = options.min_np.value_or(*options.num_proc);
  if (min_np > *options.num_proc) {
    return Fail(Code::kInvalidArgument, "--min-np {}: is more than -np {}; the job would begin with too few ranks",
                min_np, *options.num_proc);
  }
  if (options.max_np && *options.max_np < *options.num_proc) {
    return Fail(Code::kInvalidArgument, "--max-np {}: is less than -np {}", *options.max_np, *options.num_proc);
  }
  return {};
}

// A job needs more than a question such as --version.
Status CheckJob(const Options& options) {
  if (options.help || options.version || options.check_build || options.algorithms) return {};
  if (!options.num_proc && !options.command.empty() && options.command[0] == "doctor") {
    return Fail(Code::kInvalidArgument, "doctor: give it as the first word: horovodrun doctor [-np N] [-H HOSTS]");
  }
  const auto meant = std::ranges::find_if(
      options.command, [](const std::string& word) { return word == "-np" || word == "--num-proc" || word == "-n"; });
  if (!options.num_proc) {
    return Fail(Code::kInvalidArgument,
                "-np is missing: say how many processes to start, -np N{}; --help lists all flags{}",
                meant == options.command.end() ? "" : " (flags of horovodrun come before the command)",
                options.command.empty() ? "" : DidYouMean(options.command[0], {"doctor", "agent"}));
  }
  if (options.command.empty()) {
    return Fail(Code::kInvalidArgument, "the command is missing: horovodrun -np {} python train.py", *options.num_proc);
  }
  if (options.only_rank && *options.only_rank >= *options.num_proc) {
    return Fail(Code::kInvalidArgument, "--only-rank {}: expected a rank below -np {}", *options.only_rank,
                *options.num_proc);
  }
  return {};
}

}  // namespace

Result<Options> Parse(const std::vector<std::string>& arguments, const FileReader& read) {
  List command;
  HVD_ASSIGN_OR_RETURN(const std::vector<Given> given, Scan(arguments, &command));
  // The file first, so that flags override it; what it lists is replaced, not added to.
  Options options;
  const auto config = std::find_if(given.rbegin(), given.rend(),
                                   [](const Given& one) { return one.flag == FindFlag("--config-file"); });
  if (config != given.rend()) {
    auto text = read(config->text);
    if (!text) return Fail(Code::kInvalidArgument, "--config-file {}", text.error().message);
    HVD_RETURN_IF_ERROR(ReadConfig(*text, config->text, &options));
  }
  HVD_RETURN_IF_ERROR(Apply(given, &options));
  options.command = std::move(command);
  HVD_RETURN_IF_ERROR(CheckTogether(options));
  HVD_RETURN_IF_ERROR(CheckElastic(options));
  HVD_RETURN_IF_ERROR(CheckJob(options));
  return options;
}

Result<std::string> ReadFile(const std::string& path) {
  constexpr size_t kMost = 16 << 20;
  // A pipe that nobody writes to must not be waited for without a limit.
  constexpr int kPipeMillis = 10'000;
  const net::Fd fd(::open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NOCTTY | O_NONBLOCK));
  if (!fd) return Fail(Code::kNotFound, "{}: {}", path, net::ErrnoText(errno));
  std::string text;
  char buffer[16 << 10];
  while (true) {
    const ssize_t count = ::read(fd.get(), buffer, sizeof buffer);
    if (count < 0 && errno == EINTR) continue;
    if (count < 0 && errno == EAGAIN) {
      pollfd entry{fd.get(), POLLIN, 0};
      if (::poll(&entry, 1, kPipeMillis) > 0) continue;
      return Fail(Code::kDeadlineExceeded, "{}: nothing to read within {} s", path, kPipeMillis / 1000);
    }
    if (count < 0) return Fail(Code::kUnknown, "{}: {}", path, net::ErrnoText(errno));
    if (count == 0) return text;
    text.append(buffer, static_cast<size_t>(count));
    if (text.size() > kMost) return Fail(Code::kResourceExhausted, "{}: is larger than {} MiB", path, kMost >> 20);
  }
}

std::string HelpText() {
  std::string text =
      "usage: horovodrun -np N [flags] COMMAND...\n\n"
      "Starts N processes of a training program and shows their output. When one fails, the others are ended, the\n"
      "report says which was first and why, and the exit code is its.\n\n"
      "  horovodrun -np 4 python train.py\n"
      "  horovodrun -np 4 train.py --epochs 3\n"
      "  horovodrun -np 8 -H host1:4,host2:4 python train.py\n"
      "  horovodrun doctor [-np N] [-H HOSTS]    looks for what keeps a job from starting, or slows it down\n";
  for (const Section& section : Sections()) {
    std::string listed;
    for (const Flag& flag : section.flags) {
      if (flag.help == nullptr || flag.built != Built::kYes) continue;
      std::string names = flag.names;
      for (size_t at = 0; (at = names.find(' ', at)) != std::string::npos; at += 2) names.replace(at, 1, ", ");
      if (flag.value != nullptr) names += fmt::format(" {}", flag.value);
      listed += fmt::format("  {}\n        {}\n", names, flag.help);
    }
    if (!listed.empty()) text += fmt::format("\n{}:\n{}", section.title, listed);
  }
  text +=
      "\nExit codes: 0 all ranks ended well; the code of the rank that failed first; 128+N if it was ended by signal "
      "N,\n"
      "or if horovodrun was; 2 wrong usage; 121 a host cannot be reached; 122 a host cannot run the ranks; 123 a host "
      "was\n"
      "lost; 124 a host did not come in time; 125 horovodrun itself failed; 126, 127 the command cannot be run, or "
      "was\n"
      "not found.\n";
  return text;
}

}  // namespace hvd::launch
