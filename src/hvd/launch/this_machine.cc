// SPDX-License-Identifier: Apache-2.0
#include "hvd/launch/this_machine.h"

#include <ifaddrs.h>
#include <netinet/in.h>
#include <sys/socket.h>

#include <algorithm>

#include "hvd/net/fd.h"
#include "hvd/net/socket.h"
#include "hvd/topology/host.h"

namespace hvd::launch {
namespace {

struct Own {
  std::string interface;
  net::Address address;
};

std::vector<Own> OwnAddresses() {
  std::vector<Own> own;
  ifaddrs* list = nullptr;
  if (getifaddrs(&list) != 0) return own;
  for (const ifaddrs* one = list; one != nullptr; one = one->ifa_next) {
    if (one->ifa_addr == nullptr) continue;
    const int family = one->ifa_addr->sa_family;
    if (family != AF_INET && family != AF_INET6) continue;
    const socklen_t length = family == AF_INET ? sizeof(sockaddr_in) : sizeof(sockaddr_in6);
    if (const auto address = net::Address::FromRaw(one->ifa_addr, length)) own.push_back({one->ifa_name, *address});
  }
  freeifaddrs(list);
  return own;
}

// Of use to no other machine: loopback, or meaningful together with an interface of this one alone.
bool StaysHere(const net::Address& address) {
  if (address.IsLoopback()) return true;
  if (address.family() != AF_INET6) return false;
  return IN6_IS_ADDR_LINKLOCAL(&reinterpret_cast<const sockaddr_in6*>(address.raw())->sin6_addr);
}

// The address from which this machine would send to that one: a datagram socket tells, without a packet.
Result<net::Address> SourceTowards(const net::Address& other) {
  const net::Fd fd(::socket(other.family(), SOCK_DGRAM | SOCK_CLOEXEC, 0));
  // Any port: no packet is sent.
  const net::Address target = other.WithPort(9);
  if (!fd || ::connect(fd.get(), target.raw(), target.length()) != 0) {
    return Fail(Code::kNotFound, "no route to {}", other.host());
  }
  HVD_ASSIGN_OR_RETURN(const net::Address local, net::LocalAddress(fd.get()));
  return local.WithPort(0);
}

void AddOnce(const net::Address& address, std::vector<net::Address>* all) {
  const bool known = std::ranges::any_of(*all, [&](const net::Address& one) { return one.host() == address.host(); });
  if (!known) all->push_back(address);
}

Result<std::vector<net::Address>> AddressesOf(const std::vector<std::string>& interfaces) {
  std::vector<net::Address> found;
  const std::vector<Own> own = OwnAddresses();
  for (const std::string& name : interfaces) {
    const size_t before = found.size();
    for (const Own& one : own) {
      if (one.interface == name && !StaysHere(one.address)) AddOnce(one.address, &found);
    }
    if (found.size() == before) {
      return Fail(Code::kInvalidArgument, "--network-interfaces {}: this machine has no address there for others",
                  name);
    }
  }
  return found;
}

}  // namespace

bool IsThisMachine(const std::string& host) {
  const std::string name = topology::Hostname();
  if (host == "localhost" || host == name || host == name.substr(0, name.find('.'))) return true;
  const auto addresses = net::Resolve({host, 0});
  if (!addresses || addresses->empty()) return false;
  const std::vector<Own> own = OwnAddresses();
  return std::ranges::all_of(*addresses, [&](const net::Address& address) {
    return address.IsLoopback() ||
           std::ranges::any_of(own, [&](const Own& one) { return one.address.host() == address.host(); });
  });
}

std::vector<std::string> OwnNames() {
  const std::string name = topology::Hostname();
  std::vector<std::string> names{name, name.substr(0, name.find('.'))};
  for (const Own& one : OwnAddresses()) {
    if (!StaysHere(one.address)) names.push_back(one.address.host());
  }
  return names;
}

Result<std::vector<net::Address>> AddressesTowards(const std::vector<std::string>& hosts,
                                                   const std::vector<std::string>& interfaces) {
  if (!interfaces.empty()) return AddressesOf(interfaces);
  std::vector<net::Address> found;
  bool all = false;
  for (const std::string& host : hosts) {
    const auto addresses = net::Resolve({host, 0});
    bool any = false;
    for (const net::Address& address : addresses ? *addresses : std::vector<net::Address>()) {
      const auto source = SourceTowards(address);
      if (!source || StaysHere(*source)) continue;
      AddOnce(*source, &found);
      any = true;
    }
    all |= !any;
  }
  for (const Own& one : all ? OwnAddresses() : std::vector<Own>()) {
    if (!StaysHere(one.address)) AddOnce(one.address.WithPort(0), &found);
  }
  if (found.empty()) return Fail(Code::kNotFound, "this machine has no address that other hosts could reach");
  return found;
}

}  // namespace hvd::launch
