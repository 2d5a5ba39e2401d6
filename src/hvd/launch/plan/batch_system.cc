// SPDX-License-Identifier: Apache-2.0
#include "hvd/launch/plan/batch_system.h"

#include <algorithm>
#include <charconv>
#include <optional>

#include "hvd/launch/plan/mpirun.h"

namespace hvd::launch {
namespace {

constexpr size_t kMostNames = 65536;
// Steps that Slurm itself makes, for the shell of salloc and for batch scripts, have the numbers from here on.
constexpr int64_t kFirstOwnStep = 0xfffffff0;

std::optional<int64_t> ParseNumber(std::string_view text) {
  int64_t value = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  const bool good = error == std::errc() && end == text.data() + text.size() && value >= 0;
  return good ? std::optional(value) : std::nullopt;
}

// Cuts at commas outside of brackets.
std::vector<std::string_view> SplitOutsideBrackets(std::string_view text) {
  std::vector<std::string_view> parts;
  size_t begin = 0;
  int depth = 0;
  for (size_t i = 0; i <= text.size(); ++i) {
    if (i == text.size() || (text[i] == ',' && depth == 0)) {
      parts.push_back(text.substr(begin, i - begin));
      begin = i + 1;
    } else {
      depth += text[i] == '[' ? 1 : text[i] == ']' ? -1 : 0;
    }
  }
  return parts;
}

// "01-03" is 01, 02, 03: numbers keep the width of the first.
Status ExpandRange(std::string_view range, std::vector<std::string>* numbers) {
  const size_t dash = range.find('-');
  const std::string_view low = range.substr(0, dash);
  const auto first = ParseNumber(low);
  const auto last = dash == std::string_view::npos ? first : ParseNumber(range.substr(dash + 1));
  if (!first || !last || *last < *first || *last - *first >= static_cast<int64_t>(kMostNames)) {
    return Fail(Code::kInvalidArgument, "'{}' is no range of numbers", range);
  }
  for (int64_t number = *first; number <= *last; ++number) {
    numbers->push_back(fmt::format("{:0{}}", number, low.size()));
  }
  return {};
}

Status ExpandName(const std::string& before, std::string_view rest, std::vector<std::string>* names) {
  const size_t open = rest.find('[');
  if (open == std::string_view::npos) {
    if (names->size() >= kMostNames) return Fail(Code::kInvalidArgument, "more than {} hosts", kMostNames);
    names->push_back(before + std::string(rest));
    return {};
  }
  const size_t close = rest.find(']', open);
  if (close == std::string_view::npos) return Fail(Code::kInvalidArgument, "a '[' without its ']'");
  std::vector<std::string> numbers;
  for (const std::string_view range : SplitOutsideBrackets(rest.substr(open + 1, close - open - 1))) {
    HVD_RETURN_IF_ERROR(ExpandRange(range, &numbers));
  }
  for (const std::string& number : numbers) {
    HVD_RETURN_IF_ERROR(ExpandName(before + std::string(rest.substr(0, open)) + number, rest.substr(close + 1), names));
  }
  return {};
}

tl::unexpected<Error> Bad(std::string_view origin, std::string_view text, const Error& error) {
  return Fail(Code::kInvalidArgument, "{} '{}': {}; name the hosts by -H", origin, text, error.message);
}

// Passes names and slots through the parser for people's lists, which refuses what would be an option for ssh.
Result<std::vector<Host>> Check(const std::string& origin, const std::vector<std::string>& names,
                                const std::vector<int>& slots) {
  std::string text;
  for (size_t i = 0; i < names.size(); ++i) {
    text += fmt::format("{}{}", i > 0 ? "," : "", names[i]);
    if (!slots.empty()) text += fmt::format(":{}", slots[i]);
  }
  return ParseHosts(text, origin);
}

Result<std::vector<Host>> HostsOfSlurm(const std::string& origin, const std::string& list,
                                       const std::optional<std::string>& counts) {
  const auto names = ExpandNodeList(list);
  if (!names) return Bad(origin, list, names.error());
  if (!counts) return Check(origin, *names, {});
  const auto slots = ExpandCounts(*counts);
  if (!slots) return Bad("SLURM_TASKS_PER_NODE", *counts, slots.error());
  if (slots->size() != names->size()) {
    return Fail(Code::kInvalidArgument,
                "SLURM_TASKS_PER_NODE '{}' speaks of {} hosts, SLURM_JOB_NODELIST '{}' of {}; name the hosts by -H",
                *counts, slots->size(), list, names->size());
  }
  return Check(origin, *names, *slots);
}

// A host for each slot, several times the same.
Result<std::vector<Host>> HostsOfWords(const std::string& origin, std::string_view text) {
  constexpr std::string_view kSpace = " \t\r\n";
  std::vector<std::string> names;
  for (size_t begin = text.find_first_not_of(kSpace); begin != std::string_view::npos;) {
    const size_t end = std::min(text.find_first_of(kSpace, begin), text.size());
    names.emplace_back(text.substr(begin, end - begin));
    begin = text.find_first_not_of(kSpace, end);
  }
  return Check(origin, names, std::vector<int>(names.size(), 1));
}

// As people write it behind -H.
std::string AsOption(const std::vector<Host>& hosts) {
  std::string text;
  for (const Host& host : hosts) {
    text += fmt::format("{}{}", text.empty() ? "" : ",", host.name);
    if (host.slots > 0) text += fmt::format(":{}", host.slots);
  }
  return text;
}

bool IsInsideStep(const Environment& environment) {
  const auto step = environment.Get("SLURM_STEP_ID");
  return step && ParseNumber(*step).value_or(0) < kFirstOwnStep;
}

}  // namespace

Result<std::vector<std::string>> ExpandNodeList(std::string_view text) {
  std::vector<std::string> names;
  for (const std::string_view part : SplitOutsideBrackets(text)) HVD_RETURN_IF_ERROR(ExpandName("", part, &names));
  return names;
}

Result<std::vector<int>> ExpandCounts(std::string_view text) {
  std::vector<int> counts;
  for (const std::string_view part : SplitOutsideBrackets(text)) {
    const size_t open = part.find("(x");
    const bool repeated = open != std::string_view::npos && part.ends_with(')');
    const auto count = ParseNumber(part.substr(0, open));
    const auto times = repeated ? ParseNumber(part.substr(open + 2, part.size() - open - 3)) : 1;
    const bool small = count && times && *count >= 1 && *count <= static_cast<int64_t>(kMostNames) &&
                       *times <= static_cast<int64_t>(kMostNames - counts.size());
    if (!small) return Fail(Code::kInvalidArgument, "expected numbers such as 2(x3),1");
    counts.insert(counts.end(), static_cast<size_t>(*times), static_cast<int>(*count));
  }
  return counts;
}

Result<std::string> TakeBatchHosts(const Environment& environment, const FileReader& read, const IsHere& is_here,
                                   Options* options) {
  if (options->hosts || options->hostfile || UsesMpirun(*options)) return std::string();
  if (environment.Get("HOROVOD_RANK") || IsInsideStep(environment)) return std::string();
  std::string origin;
  std::vector<Host> hosts;
  if (const auto list = environment.Get("SLURM_JOB_NODELIST")) {
    origin = "SLURM_JOB_NODELIST";
    HVD_ASSIGN_OR_RETURN(hosts, HostsOfSlurm(origin, *list, environment.Get("SLURM_TASKS_PER_NODE")));
  } else if (const auto path = environment.Get("PBS_NODEFILE")) {
    origin = "PBS_NODEFILE";
    const auto text = read(*path);
    if (!text) return Fail(Code::kInvalidArgument, "PBS_NODEFILE {}; name the hosts by -H", text.error().message);
    HVD_ASSIGN_OR_RETURN(hosts, HostsOfWords(origin, *text));
  } else if (const auto words = environment.Get("LSB_HOSTS")) {
    origin = "LSB_HOSTS";
    HVD_ASSIGN_OR_RETURN(hosts, HostsOfWords(origin, *words));
  }
  if (hosts.empty() || (hosts.size() == 1 && is_here(hosts[0].name))) return std::string();
  options->hosts = AsOption(hosts);
  const size_t shown = std::min<size_t>(hosts.size(), 4);
  const std::string more = hosts.size() > shown ? fmt::format(" and {} more", hosts.size() - shown) : "";
  hosts.resize(shown);
  return fmt::format("hosts from {}: {}{}; -H or --hostfile names others", origin, AsOption(hosts), more);
}

}  // namespace hvd::launch
