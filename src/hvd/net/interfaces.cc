// SPDX-License-Identifier: Apache-2.0
#include "hvd/net/interfaces.h"

#include <ifaddrs.h>
#include <net/if.h>
#include <netinet/in.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <memory>

#include "hvd/net/fd.h"
#include "hvd/net/socket.h"

namespace hvd::net {

std::vector<OwnAddress> OwnAddresses() {
  ifaddrs* list = nullptr;
  if (::getifaddrs(&list) != 0) return {};
  const std::unique_ptr<ifaddrs, decltype(&::freeifaddrs)> owner(list, &::freeifaddrs);
  std::vector<OwnAddress> found;
  for (const ifaddrs* one = list; one != nullptr; one = one->ifa_next) {
    if (one->ifa_addr == nullptr) continue;
    const int family = one->ifa_addr->sa_family;
    if (family != AF_INET && family != AF_INET6) continue;
    const socklen_t length = family == AF_INET ? sizeof(sockaddr_in) : sizeof(sockaddr_in6);
    const auto address = Address::FromRaw(one->ifa_addr, length);
    if (address) found.push_back({one->ifa_name, *address, (one->ifa_flags & IFF_UP) != 0});
  }
  return found;
}

bool StaysHere(const Address& address) {
  if (address.IsLoopback()) return true;
  if (address.family() != AF_INET6) return false;
  return IN6_IS_ADDR_LINKLOCAL(&reinterpret_cast<const sockaddr_in6*>(address.raw())->sin6_addr);
}

Result<Address> SourceTowards(const Address& other) {
  // A datagram socket tells, without a packet; so any port will do.
  const Fd fd(::socket(other.family(), SOCK_DGRAM | SOCK_CLOEXEC, 0));
  const Address target = other.WithPort(9);
  if (!fd || ::connect(fd.get(), target.raw(), target.length()) != 0) {
    return Fail(Code::kNotFound, "no route to {}", other.host());
  }
  HVD_ASSIGN_OR_RETURN(const Address local, LocalAddress(fd.get()));
  return local.WithPort(0);
}

Result<Address> ChooseAddress(const std::string& interface_name) {
  std::vector<OwnAddress> own = OwnAddresses();
  // Link-local addresses mean something on one wire only; loopback is for those who name it.
  std::erase_if(own,
                [](const OwnAddress& one) { return !one.up || (StaysHere(one.address) && !one.address.IsLoopback()); });
  // IPv4 first, as most nets have both or that alone.
  std::ranges::stable_partition(own, [](const OwnAddress& one) { return one.address.family() == AF_INET; });
  if (!interface_name.empty()) {
    for (const OwnAddress& one : own) {
      if (one.interface_name == interface_name) return one.address.WithPort(0);
    }
    return Fail(Code::kInvalidArgument, "HOROVOD_GLOO_IFACE={} is no interface with an address here", interface_name);
  }
  const auto usable = [&](const std::string& host) -> const OwnAddress* {
    for (const OwnAddress& one : own) {
      if (one.address.host() == host && !one.address.IsLoopback()) return &one;
    }
    return nullptr;
  };
  std::array<char, 256> name{};
  if (::gethostname(name.data(), name.size() - 1) == 0) {
    for (const Address& address : Resolve({name.data(), 0}).value_or(std::vector<Address>())) {
      if (const OwnAddress* one = usable(address.host())) return one->address.WithPort(0);
    }
  }
  // Documentation addresses: nobody has them, so packets to them go the way to the world.
  for (const char* far : {"198.51.100.1", "2001:db8::1"}) {
    const auto to = Resolve({far, 0});
    if (!to) continue;
    const auto source = SourceTowards(to->front());
    const OwnAddress* one = source ? usable(source->host()) : nullptr;
    if (one != nullptr) return one->address.WithPort(0);
  }
  for (const OwnAddress& one : own) {
    if (!one.address.IsLoopback()) return one.address.WithPort(0);
  }
  return Fail(Code::kNotFound, "this machine has no address that others can reach");
}

}  // namespace hvd::net
