// SPDX-License-Identifier: Apache-2.0
#include "hvd/rendezvous/tcp/other_user.h"

#include <unistd.h>

#include <charconv>
#include <fstream>
#include <iterator>
#include <string>

#include "hvd/rendezvous/tcp/endpoint.h"

namespace hvd::rendezvous::tcp {

std::optional<uid_t> OtherUserWith(std::string_view store) {
  std::ifstream file("/proc/net/unix");
  const std::string sockets{std::istreambuf_iterator<char>(file), {}};
  return OtherUserWith(store, sockets, ::geteuid());
}

std::optional<uid_t> OtherUserWith(std::string_view store, std::string_view sockets, uid_t self) {
  // Abstract names are shown with an @, at the ends of lines.
  constexpr std::string_view kBegin = " @hvd-store-";
  for (size_t at = 0; (at = sockets.find(kBegin, at)) != std::string_view::npos;) {
    at += kBegin.size();
    const std::string_view line = sockets.substr(at, sockets.find('\n', at) - at);
    uid_t user = 0;
    const auto [end, error] = std::from_chars(line.data(), line.data() + line.size(), user);
    if (error != std::errc() || user == self) continue;
    if (line.substr(static_cast<size_t>(end - line.data())) == fmt::format("-{}", store)) return user;
  }
  return std::nullopt;
}

}  // namespace hvd::rendezvous::tcp
