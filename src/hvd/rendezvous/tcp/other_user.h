// SPDX-License-Identifier: Apache-2.0
#pragma once
// A store without a token is at a unix socket whose name has its user's number, so that jobs of two users never meet by
// mistake. Ranks of one job that were started by two users do not meet, either: this tells them why.

#include <sys/types.h>

#include <optional>
#include <string_view>

namespace hvd::rendezvous::tcp {

// The user whose name is on a store of this machine with that port or name, if it is not this process's.
std::optional<uid_t> OtherUserWith(std::string_view store);

// As OtherUserWith; `sockets` is the text of /proc/net/unix.
std::optional<uid_t> OtherUserWith(std::string_view store, std::string_view sockets, uid_t self);

}  // namespace hvd::rendezvous::tcp
