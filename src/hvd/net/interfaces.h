// SPDX-License-Identifier: Apache-2.0
#pragma once
// The addresses of this machine.

#include <string>
#include <vector>

#include "hvd/net/address.h"

namespace hvd::net {

struct OwnAddress {
  std::string interface_name;
  Address address;
  bool up = false;
};
// IPv4 and IPv6, in the system's order.
std::vector<OwnAddress> OwnAddresses();

// Of use to no other machine: loopback, or meaningful together with an interface of this one alone.
bool StaysHere(const Address& address);

// The address, with port 0, from which this machine would send to that one. kNotFound: no route.
Result<Address> SourceTowards(const Address& other);

// The address at which other machines most likely reach this one, with port 0: that of the interface named, else the
// one that the host's name resolves to here, else the one that packets to the world leave from, else the first that is
// up. kNotFound: there is none but loopback.
Result<Address> ChooseAddress(const std::string& interface_name);

}  // namespace hvd::net
