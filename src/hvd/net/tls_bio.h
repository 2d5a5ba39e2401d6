// SPDX-License-Identifier: Apache-2.0
#pragma once
// OpenSSL's way to the socket. Its own one writes with write(2), which raises SIGPIPE in a program that is not ours.

#include <openssl/bio.h>

namespace hvd::net {

// The descriptor stays the caller's. nullptr if memory is short.
BIO* NewSocketBio(int fd);

}  // namespace hvd::net
