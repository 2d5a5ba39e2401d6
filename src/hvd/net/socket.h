// SPDX-License-Identifier: Apache-2.0
#pragma once
// Stream sockets over IPv4, IPv6 and abstract unix names. Every socket made here is non-blocking and close-on-exec, TCP
// ones have TCP_NODELAY set; writes never raise SIGPIPE. Functions that take a deadline block, bounded by it; the
// others do not.
//
// Thread safety: free functions without state; one descriptor is used by one thread at a time.

#include <sys/types.h>

#include <optional>
#include <string>

#include "hvd/base/clock.h"
#include "hvd/base/result.h"
#include "hvd/net/address.h"
#include "hvd/net/bytes.h"
#include "hvd/net/fd.h"

namespace hvd::net {

// Refuses a wildcard address: nothing of ours is reachable from interfaces that nobody chose. kAlreadyExists if the
// address is taken, kFailedPrecondition if it is no address of this machine.
Result<Fd> Listen(const Address& address, int backlog = 1024);
// An empty optional: nobody waits. kInternal: it listens no more; kResourceExhausted: ask again later.
Result<std::optional<Fd>> Accept(int listener);

// Begins to connect. The result is known when the descriptor is writable: ask FinishConnect.
Result<Fd> StartConnect(const Address& address);
Status FinishConnect(int fd, const Address& address);
// Both, bounded. kNotFound: nobody listens there. kDeadlineExceeded: no answer.
Result<Fd> Connect(const Address& address, Time deadline);

Result<Address> LocalAddress(int fd);
Result<Address> PeerAddress(int fd);

// An empty name leaves the system's default.
Status SetCongestionControl(int fd, const std::string& name);
// kPermissionDenied unless the process at the other end of this unix socket runs as our user.
Status CheckPeerIsSameUser(int fd);

// Waits for poll(2) events. kDeadlineExceeded if none came.
Status WaitFor(int fd, short events, Time deadline);
// kUnknown with "closed the connection" if the stream ends early.
Status ReadFull(int fd, MutableBytes into, Time deadline);
Status WriteFull(int fd, Bytes data, Time deadline);

// Returns "Connection refused" and the like, and what to do if that is always the same. Thread safety: any thread.
std::string ErrnoText(int error);

}  // namespace hvd::net
