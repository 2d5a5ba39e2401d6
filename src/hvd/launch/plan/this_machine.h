// SPDX-License-Identifier: Apache-2.0
#pragma once
// The machine that the launcher runs on: whether a host name means it, and where others reach it.

#include <string>
#include <vector>

#include "hvd/base/result.h"
#include "hvd/net/address.h"

namespace hvd::launch {

// localhost, a loopback address, this machine's name, or a name or address that is one of its own. May ask the
// system's resolver.
bool IsThisMachine(const std::string& host);

// Names and addresses under which a host list may mean this machine, the most telling first.
std::vector<std::string> OwnNames();

// The addresses of this machine, each once and with port 0, that these hosts reach it at: those from which it would
// send to them. If a host's name says nothing (it is known to ssh alone), all that are not for this machine only.
// With `interfaces`: the addresses of those, whatever they are called elsewhere.
Result<std::vector<net::Address>> AddressesTowards(const std::vector<std::string>& hosts,
                                                   const std::vector<std::string>& interfaces);

}  // namespace hvd::launch
