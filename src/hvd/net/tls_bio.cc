// SPDX-License-Identifier: Apache-2.0
#include "hvd/net/tls_bio.h"

#include <sys/socket.h>

#include <cerrno>
#include <cstdint>

namespace hvd::net {
namespace {

int FdOf(BIO* bio) { return static_cast<int>(reinterpret_cast<intptr_t>(BIO_get_data(bio))); }

int Finish(BIO* bio, ssize_t count, void (*retry)(BIO*)) {
  BIO_clear_retry_flags(bio);
  if (count < 0 && (errno == EAGAIN || errno == EWOULDBLOCK || errno == EINTR)) retry(bio);
  return static_cast<int>(count);
}

int Write(BIO* bio, const char* data, int length) {
  const ssize_t count = ::send(FdOf(bio), data, static_cast<size_t>(length), MSG_DONTWAIT | MSG_NOSIGNAL);
  return Finish(bio, count, [](BIO* b) { BIO_set_retry_write(b); });
}

int Read(BIO* bio, char* into, int length) {
  const ssize_t count = ::recv(FdOf(bio), into, static_cast<size_t>(length), MSG_DONTWAIT);
  if (count == 0) BIO_set_flags(bio, BIO_FLAGS_IN_EOF);
  return Finish(bio, count, [](BIO* b) { BIO_set_retry_read(b); });
}

long Control(BIO* bio, int command, long, void*) {
  if (command == BIO_CTRL_EOF) return BIO_test_flags(bio, BIO_FLAGS_IN_EOF) != 0;
  return command == BIO_CTRL_FLUSH ? 1 : 0;
}

BIO_METHOD* Method() {
  // Leaked on purpose: streams may live until the process ends.
  static BIO_METHOD* const method = [] {
    BIO_METHOD* made = BIO_meth_new(BIO_get_new_index() | BIO_TYPE_SOURCE_SINK, "hvd socket");
    if (made == nullptr) return made;
    BIO_meth_set_write(made, &Write);
    BIO_meth_set_read(made, &Read);
    BIO_meth_set_ctrl(made, &Control);
    return made;
  }();
  return method;
}

}  // namespace

BIO* NewSocketBio(int fd) {
  if (Method() == nullptr) return nullptr;
  BIO* bio = BIO_new(Method());
  if (bio == nullptr) return nullptr;
  BIO_set_data(bio, reinterpret_cast<void*>(static_cast<intptr_t>(fd)));
  BIO_set_init(bio, 1);
  return bio;
}

}  // namespace hvd::net
