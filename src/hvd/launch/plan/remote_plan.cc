// SPDX-License-Identifier: Apache-2.0
#include "hvd/launch/plan/remote_plan.h"

#include <sys/prctl.h>

#include <charconv>

#include "hvd/launch/cli/check_here.h"
#include "hvd/launch/plan/command.h"
#include "hvd/launch/plan/this_machine.h"

namespace hvd::launch {
namespace {

constexpr double kStartSeconds = 30;

double SecondsOf(const Environment& environment, const char* name, double otherwise) {
  const auto text = environment.Get(name);
  if (!text) return otherwise;
  double seconds = 0;
  const auto [end, error] = std::from_chars(text->data(), text->data() + text->size(), seconds);
  return error == std::errc() && seconds >= 0 ? seconds : otherwise;  // the ranks say what is wrong with it
}

Result<std::vector<net::Address>> ListenAddresses(const Options& options, const Plan& plan) {
  if (options.driver_address) {
    const auto where = net::ParseHostPort(*options.driver_address);
    const auto found = where ? net::Resolve(*where) : Result<std::vector<net::Address>>(Fail(where.error()));
    if (!found) return Fail(Code::kInvalidArgument, "--driver-address: {}", found.error().message);
    return *found;
  }
  return AddressesTowards(plan.remote_hosts, InterfacesOf(options));
}

}  // namespace

Result<Trust> MakeTrust(const Options& options, const Plan& plan, const Environment& environment) {
  Trust trust;
  if (plan.remote_hosts.empty()) return trust;
  // Nothing of this process may end up in a core file or under another user's debugger.
  ::prctl(PR_SET_DUMPABLE, 0);
  trust.given = options.token_file.value_or(options.no_ssh ? environment.Get("HOROVOD_TOKEN_FILE").value_or("") : "");
  if (!trust.given.empty()) {
    auto token = net::Token::Load(trust.given);
    if (!token) return Fail(Code::kInvalidArgument, "{}", token.error().message);
    trust.token.emplace(std::move(*token));
  } else {
    HVD_ASSIGN_OR_RETURN(net::Token token, net::Token::Generate());
    trust.token.emplace(std::move(token));
  }
  HVD_ASSIGN_OR_RETURN(SecretFolder folder, SecretFolder::Create(environment));
  HVD_RETURN_IF_ERROR(folder.Put(*trust.token));
  trust.folder.emplace(std::move(folder));
  return trust;
}

Result<RemoteHosts::Settings> PlanRemote(const std::string& self, const Options& options, const Plan& plan,
                                         const net::Token& token, const Environment& environment) {
  RemoteHosts::Settings settings;
  settings.hosts = plan.remote_hosts;
  settings.self = self;
  settings.token = &token;
  settings.environment = environment.Lines();
  settings.start_timeout =
      Seconds(options.start_timeout.value_or(SecondsOf(environment, "HOROVOD_START_TIMEOUT", kStartSeconds)));
  settings.silence = Seconds(SecondsOf(plan.environment, "HOROVOD_HEARTBEAT_TIMEOUT_SECONDS", kDefaultSilenceSeconds));
  HVD_ASSIGN_OR_RETURN(settings.addresses, ListenAddresses(options, plan));
  if (options.no_ssh) return settings;
  const auto ssh = FindInPath("ssh", environment);
  if (!ssh) {
    return Fail(Code::kNotFound, "host {} is not this machine and there is no ssh in PATH; see --no-ssh",
                plan.remote_hosts[0]);
  }
  settings.ssh = SshOptions{*ssh, options.ssh_port, options.ssh_identity_file};
  return settings;
}

std::string HowToStartAgents(const Plan& plan, const std::vector<std::string>& addresses, const Trust& trust) {
  return fmt::format(
      "horovodrun: waiting for agents of {}; on each of them run, with its NAME in this list and a FILE of mode 0600: "
      "horovodrun agent --host NAME --driver {} --token-file FILE, with a copy of {}\n",
      fmt::join(plan.remote_hosts, ", "), fmt::join(addresses, ","),
      trust.given.empty() ? trust.folder->token_file() : trust.given);
}

}  // namespace hvd::launch
