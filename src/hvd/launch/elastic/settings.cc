// SPDX-License-Identifier: Apache-2.0
#include "hvd/launch/elastic/settings.h"

#include <charconv>
#include <limits>

namespace hvd::launch::elastic {
namespace {

Duration TimeOut(const Number& given, const Environment& environment, const char* variable, double otherwise) {
  double seconds = otherwise;
  if (given) {
    seconds = *given;
  } else if (const auto text = environment.Get(variable)) {
    const auto [end, error] = std::from_chars(text->data(), text->data() + text->size(), seconds);
    if (error != std::errc() || !(seconds > 0)) seconds = otherwise;
  }
  return Seconds(seconds);
}

Result<std::vector<Host>> FixedHosts(const Options& options, const FileReader& read) {
  const int count = static_cast<int>(*options.num_proc);
  const int slots = static_cast<int>(options.slots_per_host.value_or(0));
  HVD_ASSIGN_OR_RETURN(auto hosts, GivenHosts(options, read, std::max(count, slots)));
  for (Host& host : hosts) {
    if (host.slots == 0) host.slots = slots > 0 ? slots : count;
  }
  return hosts;
}

}  // namespace

Result<std::vector<Host>> MergeHere(const std::vector<Host>& hosts, std::string_view origin, const std::string& name,
                                    const IsHere& is_here) {
  Host merged{name, 0};
  for (const Host& host : hosts) {
    if (!is_here(host.name)) {
      return Fail(Code::kInvalidArgument,
                  "{}: host {} is not this machine, and an elastic job of this release runs on one machine; leave the "
                  "host out",
                  origin, host.name);
    }
    merged.slots += host.slots;
  }
  return merged.slots > 0 ? std::vector{merged} : std::vector<Host>();
}

Result<ElasticJob::Settings> PlanElastic(const Options& options, const Plan& plan, const Environment& environment,
                                         const FileReader& read, const IsHere& is_here) {
  ElasticJob::Settings settings;
  const int count = static_cast<int>(*options.num_proc);
  settings.rules = {.wanted = count, .min_np = static_cast<int>(options.min_np.value_or(count)), .max_np = count};
  if (options.host_discovery_script) settings.rules.max_np = std::numeric_limits<int>::max();
  if (options.max_np) settings.rules.max_np = static_cast<int>(*options.max_np);
  if (options.reset_limit) settings.rules.reset_limit = static_cast<int>(*options.reset_limit);
  settings.start_timeout = TimeOut(options.start_timeout, environment, "HOROVOD_START_TIMEOUT", 30);
  settings.elastic_timeout = TimeOut(options.elastic_timeout, environment, "HOROVOD_ELASTIC_TIMEOUT", 600);
  const std::string name = plan.slots.front().host;
  if (!options.host_discovery_script) {
    HVD_ASSIGN_OR_RETURN(const auto hosts, FixedHosts(options, read));
    HVD_ASSIGN_OR_RETURN(settings.hosts, MergeHere(hosts, options.hosts ? "-H" : "--hostfile", name, is_here));
    return settings;
  }
  const std::string origin = "--host-discovery-script " + *options.host_discovery_script;
  settings.discovery = {.script = *options.host_discovery_script,
                        .environment = plan.environment.Lines(),
                        .accept = [origin, name, is_here](const std::vector<Host>& hosts) {
                          return MergeHere(hosts, origin, name, is_here);
                        }};
  if (options.slots_per_host) settings.discovery->slots = static_cast<int>(*options.slots_per_host);
  return settings;
}

}  // namespace hvd::launch::elastic
