// SPDX-License-Identifier: Apache-2.0
#include "hvd/launch/this_machine.h"

#include <ifaddrs.h>
#include <netinet/in.h>

#include <algorithm>
#include <set>

#include "hvd/net/address.h"
#include "hvd/topology/host.h"

namespace hvd::launch {
namespace {

std::set<std::string> OwnAddresses() {
  std::set<std::string> own;
  ifaddrs* list = nullptr;
  if (getifaddrs(&list) != 0) return own;
  for (const ifaddrs* one = list; one != nullptr; one = one->ifa_next) {
    if (one->ifa_addr == nullptr) continue;
    const int family = one->ifa_addr->sa_family;
    if (family != AF_INET && family != AF_INET6) continue;
    const socklen_t length = family == AF_INET ? sizeof(sockaddr_in) : sizeof(sockaddr_in6);
    if (const auto address = net::Address::FromRaw(one->ifa_addr, length)) own.insert(address->host());
  }
  freeifaddrs(list);
  return own;
}

}  // namespace

bool IsThisMachine(const std::string& host) {
  const std::string name = topology::Hostname();
  if (host == "localhost" || host == name || host == name.substr(0, name.find('.'))) return true;
  const auto addresses = net::Resolve({host, 0});
  if (!addresses || addresses->empty()) return false;
  const std::set<std::string> own = OwnAddresses();
  return std::ranges::all_of(
      *addresses, [&](const net::Address& address) { return address.IsLoopback() || own.contains(address.host()); });
}

}  // namespace hvd::launch
