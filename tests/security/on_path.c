// SPDX-License-Identifier: Apache-2.0
// A host on the path between two ranks, without a network: preloaded into a rank, it changes what the rank sends by
// TCP.
//
//   ON_PATH_FIND, ON_PATH_PUT   hexadecimal, equally long: wherever the first is sent, the second is sent instead
//   ON_PATH_CONTROL             a file; while it exists, a bit of each control message is flipped
#define _GNU_SOURCE
#include <dlfcn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/uio.h>
#include <unistd.h>

static size_t bytes_of(const char* name, unsigned char* out, size_t capacity) {
  const char* hex = getenv(name);
  size_t length = 0;
  for (; hex != NULL && hex[0] != 0 && length < capacity; hex += 2) {
    unsigned value = 0;
    sscanf(hex, "%2x", &value);
    out[length++] = (unsigned char)value;
  }
  return length;
}

static void change(const struct iovec* pieces, size_t count) {
  static unsigned char find[4096], put[4096];
  static size_t length = 0;
  if (length == 0) length = bytes_of("ON_PATH_FIND", find, sizeof find);
  bytes_of("ON_PATH_PUT", put, sizeof put);
  const char* control = getenv("ON_PATH_CONTROL");
  for (size_t i = 0; i < count; ++i) {
    unsigned char* found = length == 0 ? NULL : memmem(pieces[i].iov_base, pieces[i].iov_len, find, length);
    if (found != NULL) memcpy(found, put, length);
    // The header of a frame of type 1; its payload is the next piece.
    const int is_control = pieces[i].iov_len == 24 && memcmp(pieces[i].iov_base, "\x76\x48\x01", 4) == 0;
    if (control == NULL || !is_control || i + 1 == count || access(control, F_OK) != 0) continue;
    ((unsigned char*)pieces[i + 1].iov_base)[pieces[i + 1].iov_len / 2] ^= 1;
  }
}

ssize_t sendmsg(int fd, const struct msghdr* message, int flags) {
  static ssize_t (*next)(int, const struct msghdr*, int);
  if (next == NULL) next = (ssize_t(*)(int, const struct msghdr*, int))dlsym(RTLD_NEXT, "sendmsg");
  change(message->msg_iov, message->msg_iovlen);
  return next(fd, message, flags);
}
