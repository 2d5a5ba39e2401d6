// SPDX-License-Identifier: Apache-2.0
#include "hvd/launch/plan/this_machine.h"

#include <algorithm>

#include "hvd/net/interfaces.h"
#include "hvd/topology/host.h"

namespace hvd::launch {
namespace {

using net::OwnAddress;

void AddOnce(const net::Address& address, std::vector<net::Address>* all) {
  const bool known = std::ranges::any_of(*all, [&](const net::Address& one) { return one.host() == address.host(); });
  if (!known) all->push_back(address);
}

Result<std::vector<net::Address>> AddressesOf(const std::vector<std::string>& interfaces) {
  std::vector<net::Address> found;
  const std::vector<OwnAddress> own = net::OwnAddresses();
  for (const std::string& name : interfaces) {
    const size_t before = found.size();
    for (const OwnAddress& one : own) {
      if (one.interface_name == name && !net::StaysHere(one.address)) AddOnce(one.address, &found);
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
  const std::vector<OwnAddress> own = net::OwnAddresses();
  return std::ranges::all_of(*addresses, [&](const net::Address& address) {
    return address.IsLoopback() ||
           std::ranges::any_of(own, [&](const OwnAddress& one) { return one.address.host() == address.host(); });
  });
}

std::vector<std::string> OwnNames() {
  const std::string name = topology::Hostname();
  std::vector<std::string> names{name, name.substr(0, name.find('.'))};
  for (const OwnAddress& one : net::OwnAddresses()) {
    if (!net::StaysHere(one.address)) names.push_back(one.address.host());
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
      const auto source = net::SourceTowards(address);
      if (!source || net::StaysHere(*source)) continue;
      AddOnce(*source, &found);
      any = true;
    }
    all |= !any;
  }
  for (const OwnAddress& one : all ? net::OwnAddresses() : std::vector<OwnAddress>()) {
    if (!net::StaysHere(one.address)) AddOnce(one.address.WithPort(0), &found);
  }
  if (found.empty()) return Fail(Code::kNotFound, "this machine has no address that other hosts could reach");
  return found;
}

}  // namespace hvd::launch
