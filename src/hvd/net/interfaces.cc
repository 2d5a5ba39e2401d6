// SPDX-License-Identifier: Apache-2.0
#include "hvd/net/interfaces.h"

#include <ifaddrs.h>
#include <net/if.h>
#include <netinet/in.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <memory>
#include <optional>

#include "hvd/net/fd.h"

namespace hvd::net {
namespace {

struct Own {
  std::string interface_name;
  Address address;
};

// Link-local addresses mean something on one wire only.
bool IsLinkLocal(const sockaddr* raw) {
  if (raw->sa_family != AF_INET6) return false;
  return IN6_IS_ADDR_LINKLOCAL(&reinterpret_cast<const sockaddr_in6*>(raw)->sin6_addr);
}

std::vector<Own> OwnAddresses() {
  ifaddrs* list = nullptr;
  if (::getifaddrs(&list) != 0) return {};
  const std::unique_ptr<ifaddrs, decltype(&::freeifaddrs)> owner(list, &::freeifaddrs);
  std::vector<Own> found;
  for (const ifaddrs* one = list; one != nullptr; one = one->ifa_next) {
    if (one->ifa_addr == nullptr || (one->ifa_flags & IFF_UP) == 0 || IsLinkLocal(one->ifa_addr)) continue;
    const int family = one->ifa_addr->sa_family;
    if (family != AF_INET && family != AF_INET6) continue;
    const socklen_t length = family == AF_INET ? sizeof(sockaddr_in) : sizeof(sockaddr_in6);
    if (auto address = Address::FromRaw(one->ifa_addr, length)) found.push_back({one->ifa_name, *address});
  }
  // IPv4 first, as most nets have both or that alone.
  std::stable_sort(found.begin(), found.end(), [](const Own& a, const Own& b) {
    return a.address.family() == AF_INET && b.address.family() != AF_INET;
  });
  return found;
}

// A datagram socket tells which address packets would leave from, without a packet.
std::optional<std::string> Outgoing(const char* far) {
  const auto to = Resolve({far, 9});
  if (!to) return std::nullopt;
  const Fd fd(::socket((*to)[0].family(), SOCK_DGRAM | SOCK_CLOEXEC, 0));
  sockaddr_storage local{};
  socklen_t length = sizeof local;
  if (!fd || ::connect(fd.get(), (*to)[0].raw(), (*to)[0].length()) != 0) return std::nullopt;
  if (::getsockname(fd.get(), reinterpret_cast<sockaddr*>(&local), &length) != 0) return std::nullopt;
  const auto address = Address::FromRaw(reinterpret_cast<sockaddr*>(&local), length);
  return address ? std::optional(address->host()) : std::nullopt;
}

}  // namespace

Result<Address> ChooseAddress(const std::string& interface_name) {
  const std::vector<Own> own = OwnAddresses();
  if (!interface_name.empty()) {
    for (const Own& one : own) {
      if (one.interface_name == interface_name) return one.address.WithPort(0);
    }
    return Fail(Code::kInvalidArgument, "HOROVOD_GLOO_IFACE={} is no interface with an address here", interface_name);
  }
  const auto usable = [&](const std::string& host) -> const Own* {
    for (const Own& one : own) {
      if (one.address.host() == host && !one.address.IsLoopback()) return &one;
    }
    return nullptr;
  };
  std::array<char, 256> name{};
  if (::gethostname(name.data(), name.size() - 1) == 0) {
    for (const Address& address : Resolve({name.data(), 0}).value_or(std::vector<Address>())) {
      if (const Own* one = usable(address.host())) return one->address.WithPort(0);
    }
  }
  // Documentation addresses: nobody has them, so packets to them go the way to the world.
  for (const char* far : {"198.51.100.1", "2001:db8::1"}) {
    const auto host = Outgoing(far);
    const Own* one = host ? usable(*host) : nullptr;
    if (one != nullptr) return one->address.WithPort(0);
  }
  for (const Own& one : own) {
    if (!one.address.IsLoopback()) return one.address.WithPort(0);
  }
  return Fail(Code::kNotFound, "this machine has no address that others can reach");
}

}  // namespace hvd::net
