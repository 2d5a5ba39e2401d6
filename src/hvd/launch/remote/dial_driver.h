// SPDX-License-Identifier: Apache-2.0
#pragma once
// How an agent finds its way back: all addresses of horovodrun are tried, again and again, until one answers and proves
// to know the job's token.

#include <memory>
#include <string>
#include <vector>

#include "hvd/base/clock.h"
#include "hvd/base/result.h"
#include "hvd/net/stream.h"
#include "hvd/net/token.h"

namespace hvd::launch {

struct Reached {
  std::unique_ptr<net::Stream> stream;
  std::vector<std::string> addresses;  // all that answered
};

// Blocks. kPermissionDenied: whoever answers has another token. kDeadlineExceeded says what became of each address.
// The connection breaks by itself when what is sent is not taken for `silence`: the kernel of the other machine takes
// it, so a horovodrun that was suspended (Ctrl-Z) is not mistaken for one that is gone.
// `was_there`: an earlier call has reached it. Then kNotFound, at once, if nobody listens at any of the addresses.
Result<Reached> DialDriver(const std::vector<std::string>& addresses, const net::Token& token, Duration timeout,
                           Duration silence, bool was_there = false);

}  // namespace hvd::launch
