// SPDX-License-Identifier: Apache-2.0
#include "hvd/net/address.h"

#include <arpa/inet.h>
#include <net/if.h>
#include <netdb.h>
#include <netinet/in.h>
#include <sys/un.h>

#include <charconv>
#include <cstddef>
#include <cstring>
#include <memory>

namespace hvd::net {
namespace {

bool ParsePort(std::string_view text, uint16_t* port) {
  unsigned value = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (text.empty() || error != std::errc() || end != text.data() + text.size() || value > 65535) return false;
  *port = static_cast<uint16_t>(value);
  return true;
}

tl::unexpected<Error> BadAddress(std::string_view text, std::string_view why) {
  return Fail(Code::kInvalidArgument, "'{}' is no address: {}; give host:port or [v6 address]:port", text, why);
}

}  // namespace

Result<HostPort> ParseHostPort(std::string_view text, uint16_t default_port) {
  HostPort where{"", default_port};
  std::string_view port;
  bool has_port = false;
  if (!text.empty() && text.front() == '[') {
    const size_t close = text.find(']');
    if (close == std::string_view::npos) return BadAddress(text, "']' is missing");
    where.host = text.substr(1, close - 1);
    const std::string_view rest = text.substr(close + 1);
    if (!rest.empty() && rest.front() != ':') return BadAddress(text, "only ':port' may follow ']'");
    has_port = !rest.empty();
    if (has_port) port = rest.substr(1);
  } else {
    const size_t colon = text.find(':');
    const bool bare_v6 = colon != std::string_view::npos && text.find(':', colon + 1) != std::string_view::npos;
    has_port = colon != std::string_view::npos && !bare_v6;
    where.host = has_port ? text.substr(0, colon) : text;
    if (has_port) port = text.substr(colon + 1);
  }
  if (where.host.empty()) return BadAddress(text, "the host is empty");
  if (where.host.find_first_of("[]") != std::string::npos) return BadAddress(text, "brackets go around a v6 address");
  if (where.host.find('\0') != std::string::npos) return BadAddress("...", "it contains a NUL byte");
  if (has_port && !ParsePort(port, &where.port)) return BadAddress(text, "the port is no number from 0 to 65535");
  return where;
}

std::string ToString(const HostPort& where) {
  const bool v6 = where.host.find(':') != std::string::npos;
  return v6 ? fmt::format("[{}]:{}", where.host, where.port) : fmt::format("{}:{}", where.host, where.port);
}

Result<Address> Address::FromRaw(const sockaddr* raw, socklen_t length) {
  if (length > sizeof(sockaddr_storage)) return Fail(Code::kInternal, "address of {} bytes", length);
  Address address;
  std::memcpy(&address.storage_, raw, length);
  address.length_ = length;
  return address;
}

Result<Address> Address::UnixAbstract(std::string_view name) {
  sockaddr_un un{};
  // The first byte of sun_path stays 0: that is what makes the name abstract.
  if (name.empty() || name.size() > sizeof(un.sun_path) - 1) {
    return Fail(Code::kInvalidArgument, "unix socket name '{}' has {} bytes, allowed are 1 to {}", name, name.size(),
                sizeof(un.sun_path) - 1);
  }
  un.sun_family = AF_UNIX;
  std::memcpy(un.sun_path + 1, name.data(), name.size());
  return FromRaw(reinterpret_cast<const sockaddr*>(&un),
                 static_cast<socklen_t>(offsetof(sockaddr_un, sun_path) + 1 + name.size()));
}

bool Address::IsLoopback() const {
  if (IsUnix()) return true;
  if (family() == AF_INET) {
    return (ntohl(reinterpret_cast<const sockaddr_in*>(&storage_)->sin_addr.s_addr) >> 24) == 127;
  }
  if (family() != AF_INET6) return false;
  const in6_addr& v6 = reinterpret_cast<const sockaddr_in6*>(&storage_)->sin6_addr;
  return IN6_IS_ADDR_LOOPBACK(&v6) || (IN6_IS_ADDR_V4MAPPED(&v6) && v6.s6_addr[12] == 127);
}

bool Address::IsWildcard() const {
  if (family() == AF_INET) return reinterpret_cast<const sockaddr_in*>(&storage_)->sin_addr.s_addr == INADDR_ANY;
  if (family() != AF_INET6) return false;
  const in6_addr& v6 = reinterpret_cast<const sockaddr_in6*>(&storage_)->sin6_addr;
  const bool mapped_any =
      IN6_IS_ADDR_V4MAPPED(&v6) && (v6.s6_addr[12] | v6.s6_addr[13] | v6.s6_addr[14] | v6.s6_addr[15]) == 0;
  return IN6_IS_ADDR_UNSPECIFIED(&v6) || mapped_any;
}

uint16_t Address::port() const {
  if (family() == AF_INET) return ntohs(reinterpret_cast<const sockaddr_in*>(&storage_)->sin_port);
  if (family() == AF_INET6) return ntohs(reinterpret_cast<const sockaddr_in6*>(&storage_)->sin6_port);
  return 0;
}

Address Address::WithPort(uint16_t port) const {
  Address copy = *this;
  if (family() == AF_INET) reinterpret_cast<sockaddr_in*>(&copy.storage_)->sin_port = htons(port);
  if (family() == AF_INET6) reinterpret_cast<sockaddr_in6*>(&copy.storage_)->sin6_port = htons(port);
  return copy;
}

std::string Address::host() const {
  if (IsUnix()) {
    const auto* un = reinterpret_cast<const sockaddr_un*>(&storage_);
    const size_t bytes = length_ > offsetof(sockaddr_un, sun_path) ? length_ - offsetof(sockaddr_un, sun_path) : 0;
    if (bytes > 1 && un->sun_path[0] == '\0') return "@" + std::string(un->sun_path + 1, bytes - 1);
    return std::string(un->sun_path, strnlen(un->sun_path, bytes));
  }
  char text[NI_MAXHOST] = "?";
  if (getnameinfo(raw(), length_, text, sizeof(text), nullptr, 0, NI_NUMERICHOST) != 0) return "?";
  return text;
}

std::string Address::ToString() const {
  if (IsUnix()) return "unix:" + host();
  return net::ToString(HostPort{host(), port()});
}

Result<std::vector<Address>> Resolve(const HostPort& where) {
  addrinfo hints{};
  hints.ai_socktype = SOCK_STREAM;
  hints.ai_flags = AI_NUMERICSERV;
  addrinfo* raw = nullptr;
  const std::string port = std::to_string(where.port);
  const int error = getaddrinfo(where.host.c_str(), port.c_str(), &hints, &raw);
  const std::unique_ptr<addrinfo, decltype(&freeaddrinfo)> list(error == 0 ? raw : nullptr, &freeaddrinfo);
  if (error != 0) {
    return Fail(Code::kNotFound, "host '{}' cannot be resolved: {}", where.host, gai_strerror(error));
  }
  std::vector<Address> addresses;
  for (const addrinfo* at = list.get(); at != nullptr; at = at->ai_next) {
    if (at->ai_family != AF_INET && at->ai_family != AF_INET6) continue;
    HVD_ASSIGN_OR_RETURN(Address address, Address::FromRaw(at->ai_addr, at->ai_addrlen));
    addresses.push_back(address);
  }
  if (addresses.empty()) return Fail(Code::kNotFound, "host '{}' has no IPv4 or IPv6 address", where.host);
  return addresses;
}

}  // namespace hvd::net
