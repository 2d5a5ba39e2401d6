// SPDX-License-Identifier: Apache-2.0
#pragma once
// The addresses of this machine.

#include <string>

#include "hvd/net/address.h"

namespace hvd::net {

// The address at which other machines most likely reach this one, with port 0: that of the interface named, else the
// one that the host's name resolves to here, else the one that packets to the world leave from, else the first that is
// up. kNotFound: there is none but loopback.
Result<Address> ChooseAddress(const std::string& interface_name);

}  // namespace hvd::net
