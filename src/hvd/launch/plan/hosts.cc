// SPDX-License-Identifier: Apache-2.0
#include "hvd/launch/plan/hosts.h"

#include <algorithm>
#include <charconv>
#include <optional>
#include <string>
#include <unordered_map>

namespace hvd::launch {
namespace {

constexpr int kMostSlots = 65536;
constexpr std::string_view kWanted = "expected HOST or HOST:SLOTS, such as node1:4 or [fe80::1]:4";

std::string_view Trim(std::string_view text) {
  constexpr std::string_view kSpace = " \t\r";
  const size_t begin = text.find_first_not_of(kSpace);
  if (begin == std::string_view::npos) return {};
  return text.substr(begin, text.find_last_not_of(kSpace) - begin + 1);
}

std::optional<int> ParseSlots(std::string_view text) {
  int slots = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), slots);
  const bool good = error == std::errc() && end == text.data() + text.size() && slots >= 1 && slots <= kMostSlots;
  return good ? std::optional(slots) : std::nullopt;
}

bool IsName(std::string_view text) {
  return !text.empty() && text.front() != '-' && std::ranges::all_of(text, [](char c) {
    return std::isalnum(static_cast<unsigned char>(c)) != 0 || c == '.' || c == '-' || c == '_';
  });
}

bool IsV6(std::string_view text) {
  return std::ranges::count(text, ':') >= 2 && std::ranges::all_of(text, [](char c) {
           return std::isxdigit(static_cast<unsigned char>(c)) != 0 || c == ':' || c == '.';
         });
}

// An IPv6 address, a link-local one with its interface: fe80::1%eth0. The text gets into command lines.
bool IsV6WithZone(std::string_view text) {
  const size_t percent = text.find('%');
  return IsV6(text.substr(0, percent)) && (percent == std::string_view::npos || IsName(text.substr(percent + 1)));
}

tl::unexpected<Error> Bad(std::string_view origin, std::string_view entry, std::string_view why) {
  return Fail(Code::kInvalidArgument, "{} '{}': {}", origin, entry, why);
}

Result<Host> ParseEntry(std::string_view entry, std::string_view origin) {
  std::string_view name = entry;
  std::string_view slots;
  bool has_slots = false;
  if (entry.starts_with('[')) {
    const size_t close = entry.find(']');
    if (close == std::string_view::npos) return Bad(origin, entry, "a '[' without its ']'");
    name = entry.substr(1, close - 1);
    std::string_view rest = entry.substr(close + 1);
    if (!IsV6WithZone(name)) return Bad(origin, entry, "expected an IPv6 address in the brackets");
    if (!rest.empty() && rest.front() != ':') return Bad(origin, entry, kWanted);
    has_slots = !rest.empty();
    if (has_slots) slots = rest.substr(1);
  } else if (IsV6(entry)) {
    return Bad(origin, entry, "expected brackets around an IPv6 address, such as [fe80::1]:4");
  } else {
    const size_t colon = entry.find(':');
    has_slots = colon != std::string_view::npos;
    name = entry.substr(0, colon);
    if (has_slots) slots = entry.substr(colon + 1);
    if (!IsName(name)) return Bad(origin, entry, kWanted);
  }
  Host host{std::string(name), 0};
  if (!has_slots) return host;
  const auto count = ParseSlots(slots);
  if (!count) return Bad(origin, entry, fmt::format("expected a number of slots from 1 to {} after ':'", kMostSlots));
  host.slots = *count;
  return host;
}

// Hosts in the order in which they are named first; a host that is named again gets more slots.
class HostList {
 public:
  Status Add(Host host, std::string_view origin) {
    const auto [same, is_new] = index_.emplace(host.name, hosts.size());
    if (is_new) {
      hosts.push_back(std::move(host));
      return {};
    }
    Host& named = hosts[same->second];
    if ((named.slots == 0) != (host.slots == 0)) return Bad(origin, host.name, "named with and without slots");
    named.slots += host.slots;
    return {};
  }

  std::vector<Host> hosts;

 private:
  std::unordered_map<std::string, size_t> index_;
};

// Either all say how many slots they have, or none does.
Status CheckSlots(const std::vector<Host>& hosts, std::string_view origin) {
  if (hosts.empty()) return Fail(Code::kInvalidArgument, "{}: names no host", origin);
  const auto silent = std::ranges::find(hosts, 0, &Host::slots);
  const auto saying = std::ranges::find_if(hosts, [](const Host& host) { return host.slots > 0; });
  if (silent == hosts.end() || saying == hosts.end()) return {};
  return Fail(Code::kInvalidArgument, "{}: {} has slots and {} has none: give slots for all hosts or for none", origin,
              saying->name, silent->name);
}

std::string Describe(const std::vector<Host>& hosts) {
  std::string text;
  for (size_t i = 0; i < std::min<size_t>(hosts.size(), 4); ++i) {
    text += fmt::format("{}{}:{}", i ? "," : "", hosts[i].name, hosts[i].slots);
  }
  return hosts.size() > 4 ? text + ",..." : text;
}

}  // namespace

Result<std::vector<Host>> ParseHosts(std::string_view text, std::string_view origin) {
  HostList list;
  while (true) {
    const size_t comma = text.find(',');
    const std::string_view entry = Trim(text.substr(0, comma));
    if (entry.empty()) return Bad(origin, entry, kWanted);
    HVD_ASSIGN_OR_RETURN(Host host, ParseEntry(entry, origin));
    HVD_RETURN_IF_ERROR(list.Add(std::move(host), origin));
    if (comma == std::string_view::npos) break;
    text.remove_prefix(comma + 1);
  }
  HVD_RETURN_IF_ERROR(CheckSlots(list.hosts, origin));
  return std::move(list.hosts);
}

Result<std::vector<Host>> ParseHostfile(std::string_view text, std::string_view origin) {
  HostList list;
  if (text.starts_with(kByteOrderMark)) text.remove_prefix(kByteOrderMark.size());
  for (int number = 1; !text.empty(); ++number) {
    const size_t end = std::min(text.find('\n'), text.size());
    std::string_view line = text.substr(0, end);
    text.remove_prefix(std::min(end + 1, text.size()));
    line = Trim(line.substr(0, line.find('#')));
    if (line.empty()) continue;
    const std::string where = fmt::format("{}:{}:", origin, number);
    const size_t space = line.find_first_of(" \t");
    const std::string_view rest = space == std::string_view::npos ? std::string_view() : Trim(line.substr(space));
    HVD_ASSIGN_OR_RETURN(Host host, ParseEntry(line.substr(0, space), where));
    if (!rest.empty()) {
      const size_t equals = rest.find('=');
      const bool named = equals != std::string_view::npos && Trim(rest.substr(0, equals)) == "slots";
      const auto slots = named && host.slots == 0 ? ParseSlots(Trim(rest.substr(equals + 1))) : std::nullopt;
      if (!slots) return Bad(where, line, "expected 'HOST slots=N'");
      host.slots = *slots;
    }
    HVD_RETURN_IF_ERROR(list.Add(std::move(host), where));
  }
  HVD_RETURN_IF_ERROR(CheckSlots(list.hosts, origin));
  return std::move(list.hosts);
}

std::string MergeThisMachine(const IsHere& is_here, int count, std::vector<Host>* hosts) {
  Host* first = nullptr;
  std::string others;
  std::vector<Host> kept;
  kept.reserve(hosts->size());  // `first` stays where it is
  int slots = 0;
  for (Host& host : *hosts) {
    if (slots >= count) break;
    const bool here = is_here(host.name);
    // A host that does not say how many slots it has gets at least one rank, if there are enough.
    if (!here || first == nullptr || host.slots > 0) slots += std::max(host.slots, 1);
    if (here && first != nullptr) {
      first->slots += host.slots;
      others += fmt::format("{}{}", others.empty() ? "" : ", ", host.name);
      continue;
    }
    kept.push_back(std::move(host));
    if (here) first = &kept.back();
  }
  const std::string name = first == nullptr ? "" : first->name;
  *hosts = std::move(kept);
  if (others.empty()) return {};
  return fmt::format("{} and {} are this machine: its ranks are those of one host", name, others);
}

Result<std::vector<Slot>> AssignSlots(std::vector<Host> hosts, int count) {
  const int n = static_cast<int>(hosts.size());
  int available = 0;
  for (int i = 0; i < n; ++i) {
    if (hosts[i].slots == 0) hosts[i].slots = count / n + (i < count % n ? 1 : 0);
    available += hosts[i].slots;
  }
  if (available < count) {
    return Fail(Code::kInvalidArgument, "-np {}: the hosts have {} slot{} ({}); lower -np or give more slots", count,
                available, available == 1 ? "" : "s", Describe(hosts));
  }
  std::vector<Slot> slots;
  for (const Host& host : hosts) {
    const int here = std::min(host.slots, count - static_cast<int>(slots.size()));
    for (int local = 0; local < here; ++local) {
      slots.push_back(
          {.host = host.name, .rank = static_cast<int>(slots.size()), .local_rank = local, .local_size = here});
    }
  }
  std::vector<int> twins(slots.size());  // by local rank
  for (Slot& slot : slots) slot.cross_rank = twins[static_cast<size_t>(slot.local_rank)]++;
  for (Slot& slot : slots) slot.cross_size = twins[static_cast<size_t>(slot.local_rank)];
  return slots;
}

}  // namespace hvd::launch
