// SPDX-License-Identifier: Apache-2.0
#include "hvd/launch/plan/plan.h"

#include <strings.h>

#include <algorithm>
#include <cctype>
#include <iterator>
#include <map>

#include "hvd/launch/cli/check_here.h"
#include "hvd/launch/cli/flags.h"
#include "hvd/launch/plan/command.h"
#include "hvd/launch/plan/heap.h"
#include "hvd/launch/plan/rank_config.h"
#include "hvd/launch/plan/this_machine.h"
#include "hvd/net/address.h"

namespace hvd::launch {
namespace {

// What an outer launcher told this one about itself is not for the ranks of this job.
constexpr const char* kOuterJob[] = {"HOROVOD_RENDEZVOUS_ADDR", "HOROVOD_TOKEN_FILE", "HOROVOD_GENERATION",
                                     "HOROVOD_ELASTIC", "HOROVOD_ELASTIC_ID"};

// In the order of their first rank, each once.
std::vector<std::string> HostsOf(const std::vector<Slot>& slots) {
  std::vector<std::string> hosts;
  for (const Slot& slot : slots) {
    if (hosts.empty() || hosts.back() != slot.host) hosts.push_back(slot.host);
  }
  return hosts;
}

// What each rank gets from this program; see RankEnvironment.
constexpr const char* kReserved[] = {"HOROVOD_RANK",
                                     "HOROVOD_SIZE",
                                     "HOROVOD_LOCAL_RANK",
                                     "HOROVOD_LOCAL_SIZE",
                                     "HOROVOD_CROSS_RANK",
                                     "HOROVOD_CROSS_SIZE",
                                     "HOROVOD_HOSTNAME",
                                     "HOROVOD_RENDEZVOUS_ADDR",
                                     "HOROVOD_GLOO_RENDEZVOUS_ADDR",
                                     "HOROVOD_GLOO_RENDEZVOUS_PORT",
                                     "HOROVOD_TOKEN_FILE",
                                     "HOROVOD_GENERATION",
                                     "HOROVOD_ELASTIC_ID",
                                     kJobVariable};

Status CheckVariable(std::string_view origin, const std::string& name, std::string_view expected) {
  const auto good = [](char c) { return std::isalnum(static_cast<unsigned char>(c)) != 0 || c == '_' || c == '.'; };
  const bool digit = !name.empty() && std::isdigit(static_cast<unsigned char>(name[0])) != 0;
  if (name.empty() || digit || !std::ranges::all_of(name, good)) {
    return Fail(Code::kInvalidArgument, "{}: expected {}; a NAME has letters, digits, _ and .", origin, expected);
  }
  if (std::ranges::any_of(kReserved, [&](const char* reserved) { return name == reserved; })) {
    return Fail(Code::kInvalidArgument, "{}: {} is for horovodrun to set, on each rank; leave it out", origin, name);
  }
  return {};
}

// HOROVOD_CPU_OPERATIONS is set for the ranks, so nobody else would say that a value is wrong.
Status CheckOperations(const Environment& environment) {
  const std::string value = environment.Get("HOROVOD_CPU_OPERATIONS").value_or("gloo");
  if (::strcasecmp(value.c_str(), "gloo") == 0 || ::strcasecmp(value.c_str(), "mpi") == 0) return {};
  return Fail(Code::kInvalidArgument, "HOROVOD_CPU_OPERATIONS={} is not valid: give one of \"mpi gloo\", or unset it",
              value);
}

Status CheckDebugRank(int rank, const Plan& plan) {
  if (rank >= static_cast<int>(plan.slots.size())) {
    return Fail(Code::kInvalidArgument, "--debug-rank {}: the job has the ranks 0 to {}", rank, plan.slots.size() - 1);
  }
  const std::string& host = plan.slots[rank].host;
  if (std::ranges::find(plan.remote_hosts, host) == plan.remote_hosts.end()) return {};
  return Fail(Code::kInvalidArgument, "--debug-rank {}: the rank is on host {}, which does not have this terminal",
              rank, host);
}

Status ReadEnvFile(const std::string& path, std::string_view text, Plan* plan) {
  if (text.starts_with(kByteOrderMark)) text.remove_prefix(kByteOrderMark.size());
  for (int number = 1; !text.empty(); ++number) {
    const size_t end = std::min(text.find('\n'), text.size());
    std::string_view line = text.substr(0, end);
    text.remove_prefix(std::min(end + 1, text.size()));
    if (line.ends_with('\r')) line.remove_suffix(1);
    if (line.starts_with("export ")) line.remove_prefix(7);
    if (line.empty() || line.starts_with('#')) continue;
    const size_t equals = line.find('=');
    const std::string name(line.substr(0, equals == std::string_view::npos ? 0 : equals));
    HVD_RETURN_IF_ERROR(CheckVariable(fmt::format("--env-file {}:{}", path, number), name, "NAME=VALUE"));
    std::string_view value = line.substr(equals + 1);
    const bool quoted = value.size() >= 2 && (value[0] == '"' || value[0] == '\'') && value.back() == value[0];
    if (quoted) value = value.substr(1, value.size() - 2);
    plan->given.push_back(name);
    plan->environment.Set(name, std::string(value));
  }
  return {};
}

}  // namespace

Status PlanEnvironment(const Options& options, const FileReader& read, Plan* plan) {
  Environment& environment = plan->environment;
  for (const char* name : kOuterJob) environment.Unset(name);
  for (const std::string& name : options.withheld) environment.Unset(name);
  if (options.env_file) {
    auto text = read(*options.env_file);
    if (!text) return Fail(Code::kInvalidArgument, "--env-file {}", text.error().message);
    HVD_RETURN_IF_ERROR(ReadEnvFile(*options.env_file, *text, plan));
  }
  for (const std::string& one : options.exports) {
    const size_t equals = one.find('=');
    const std::string name = one.substr(0, equals);
    HVD_RETURN_IF_ERROR(CheckVariable(fmt::format("-x {}", name), name, "NAME or NAME=VALUE"));
    plan->given.push_back(name);
    if (equals != std::string::npos) {
      environment.Set(name, one.substr(equals + 1));
    } else if (!environment.Get(name)) {
      return Fail(Code::kInvalidArgument, "-x {}: it is not set here; give -x {}=VALUE", name, name);
    }
  }
  for (auto& [name, value] : Exports(options)) environment.Set(name, std::move(value));
  // Lines appear when they are printed, not when the program ends.
  if (!environment.Get("PYTHONUNBUFFERED")) environment.Set("PYTHONUNBUFFERED", "1");
  HVD_RETURN_IF_ERROR(CheckHeap(environment));
  return CheckOperations(environment);
}

Result<std::vector<Host>> GivenHosts(const Options& options, const FileReader& read, int slots) {
  std::vector<Host> hosts{{"localhost", slots}};
  if (options.hosts) {
    HVD_ASSIGN_OR_RETURN(hosts, ParseHosts(*options.hosts, "-H"));
  }
  if (options.hostfile) {
    auto text = read(*options.hostfile);
    if (!text) return Fail(Code::kInvalidArgument, "--hostfile {}", text.error().message);
    HVD_ASSIGN_OR_RETURN(hosts, ParseHostfile(*text, *options.hostfile));
  }
  return hosts;
}

Result<std::vector<Slot>> PlanSlots(const Options& options, const FileReader& read, const IsHere& is_here,
                                    std::string* note) {
  const int count = static_cast<int>(*options.num_proc);
  HVD_ASSIGN_OR_RETURN(auto hosts, GivenHosts(options, read, count));
  *note = MergeThisMachine(is_here, count, &hosts);
  return AssignSlots(std::move(hosts), count);
}

Result<Plan> MakePlan(const Options& options, const Environment& environment, const std::string& self,
                      const FileReader& read) {
  Plan plan;
  // Each name is looked up once: a name server may be slow.
  std::map<std::string, bool> known;
  const IsHere is_here = [&known](const std::string& host) {
    const auto found = known.find(host);
    return found != known.end() ? found->second : known.emplace(host, IsThisMachine(host)).first->second;
  };
  HVD_ASSIGN_OR_RETURN(plan.slots, PlanSlots(options, read, is_here, &plan.note));
  for (const std::string& host : HostsOf(plan.slots)) {
    if (!is_here(host)) plan.remote_hosts.push_back(host);
  }
  plan.environment = environment;
  HVD_RETURN_IF_ERROR(PlanEnvironment(options, read, &plan));
  if (const List names = InterfacesOf(options); !names.empty()) plan.nic = names.front();
  // What all ranks would refuse in hvd.init() is refused once, before anything is started.
  const auto config = RankConfig(RankEnvironment(plan, plan.slots.front(), {}));
  if (!config) return Fail(Code::kInvalidArgument, "{}", config.error().message);
  if (options.debug_rank) HVD_RETURN_IF_ERROR(CheckDebugRank(static_cast<int>(*options.debug_rank), plan));
  HVD_ASSIGN_OR_RETURN(Command command, ResolveCommand(options.command, self, plan.environment));
  plan.program = std::move(command.program);
  plan.arguments = std::move(command.arguments);
  return plan;
}

std::vector<Slot> SlotsOf(const Plan& plan, const std::string& host) {
  std::vector<Slot> slots;
  std::ranges::copy_if(plan.slots, std::back_inserter(slots), [&](const Slot& slot) { return slot.host == host; });
  return slots;
}

Environment RankEnvironment(const Plan& plan, const Slot& slot, const RankPlace& place) {
  Environment environment = plan.environment;
  const auto number = [&](const char* name, int value) { environment.Set(name, fmt::format("{}", value)); };
  number("HOROVOD_RANK", slot.rank);
  number("HOROVOD_SIZE", static_cast<int>(plan.slots.size()));
  number("HOROVOD_LOCAL_RANK", slot.local_rank);
  number("HOROVOD_LOCAL_SIZE", slot.local_size);
  number("HOROVOD_CROSS_RANK", slot.cross_rank);
  number("HOROVOD_CROSS_SIZE", slot.cross_size);
  environment.Set("HOROVOD_HOSTNAME", slot.host);
  environment.Set("HOROVOD_RENDEZVOUS_ADDR", place.store);
  if (!plan.nic.empty() && !environment.Get("HOROVOD_GLOO_IFACE")) {
    environment.Set("HOROVOD_GLOO_IFACE", plan.nic);
  }
  if (!place.token_file.empty()) environment.Set("HOROVOD_TOKEN_FILE", place.token_file);
  environment.Set("HOROVOD_CONTROLLER", "gloo");
  environment.Set("HOROVOD_CPU_OPERATIONS", "gloo");
  if (const auto where = net::ParseHostPort(place.store)) {
    environment.Set("HOROVOD_GLOO_RENDEZVOUS_ADDR", where->host);
    number("HOROVOD_GLOO_RENDEZVOUS_PORT", where->port);
  }
  if (!place.flight.empty() && !environment.Get("HOROVOD_FLIGHT_DIR")) {
    environment.Set("HOROVOD_FLIGHT_DIR", place.flight);
  }
  if (place.debugged) {
    // People take their time, and breakpoint() of a rank without stdin would end it.
    if (!environment.Get("HOROVOD_START_TIMEOUT")) environment.Set("HOROVOD_START_TIMEOUT", "86400");
    if (slot.rank != *place.debugged) environment.Set("PYTHONBREAKPOINT", "0");
  }
  if (place.elastic) {
    environment.Set("HOROVOD_ELASTIC", "1");
    number("HOROVOD_ELASTIC_ID", slot.process);
  }
  environment.Set(kJobVariable, place.job);
  return environment;
}

}  // namespace hvd::launch
