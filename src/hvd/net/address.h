// SPDX-License-Identifier: Apache-2.0
#pragma once
// Where a socket is: text as users write it, and the resolved form the kernel takes.

#include <sys/socket.h>

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "hvd/base/result.h"

namespace hvd::net {

struct HostPort {
  std::string host;
  uint16_t port = 0;
};

// Takes "host:port", "[v6]:port", "[v6]", a bare v6 address and a bare host; the last three get `default_port`.
Result<HostPort> ParseHostPort(std::string_view text, uint16_t default_port = 0);
// "host:port", with brackets around a v6 address.
std::string ToString(const HostPort& where);

class Address {
 public:
  Address() = default;
  static Result<Address> FromRaw(const sockaddr* raw, socklen_t length);
  // A name in Linux's abstract namespace: belongs to the network namespace, vanishes with its last socket.
  static Result<Address> UnixAbstract(std::string_view name);

  const sockaddr* raw() const { return reinterpret_cast<const sockaddr*>(&storage_); }
  socklen_t length() const { return length_; }
  int family() const { return storage_.ss_family; }
  bool IsUnix() const { return family() == AF_UNIX; }
  // Reachable from this machine alone.
  bool IsLoopback() const;
  // 0.0.0.0 or ::
  bool IsWildcard() const;
  // 0 for a unix socket.
  uint16_t port() const;
  Address WithPort(uint16_t port) const;
  // "127.0.0.1:80", "[::1]:80", "unix:@name".
  std::string ToString() const;
  // The same without port and brackets.
  std::string host() const;

 private:
  sockaddr_storage storage_{};
  socklen_t length_ = 0;
};

// All addresses of a name, in the system's order of preference. May block as long as the system's resolver does.
Result<std::vector<Address>> Resolve(const HostPort& where);

}  // namespace hvd::net
