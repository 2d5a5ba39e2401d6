// SPDX-License-Identifier: Apache-2.0
// Makes a server that listens at all addresses of the host listen at a unix socket instead.
//
// TensorFlow's data service binds every interface and asks no caller for a secret, and its options cannot change that.
// A server process of horovod.tensorflow.data is started with this library preloaded. The process names a path by
// hvd_listen_at before it starts the server. From then on:
//  - the first bind of the wildcard address makes a unix socket at the path, under the same descriptor;
//  - a second one fails, and so does listen on anything but a unix socket: the process never opens a port;
//  - getsockname shows the port HVD_PORT, which says that the socket is of this kind;
//  - options of TCP are accepted and have no effect on a unix socket.
//
// Thread safety: hvd_listen_at before any thread binds. One listener per process.
#define _GNU_SOURCE
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <netinet/in.h>
#include <stdatomic.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

enum { HVD_PORT = 1 };

static struct sockaddr_un g_path;  // empty until hvd_listen_at
static _Atomic int g_listener = -1;

static void* Next(const char* name) { return dlsym(RTLD_NEXT, name); }

static int DomainOf(int fd) {
  int domain = -1;
  socklen_t size = sizeof domain;
  return getsockopt(fd, SOL_SOCKET, SO_DOMAIN, &domain, &size) == 0 ? domain : -1;
}

static int IsWildcard(const struct sockaddr* address) {
  if (address->sa_family == AF_INET6) {
    return memcmp(&((const struct sockaddr_in6*)address)->sin6_addr, &in6addr_any, sizeof in6addr_any) == 0;
  }
  return address->sa_family == AF_INET && ((const struct sockaddr_in*)address)->sin_addr.s_addr == htonl(INADDR_ANY);
}

// Sets the path of the unix socket. Returns 0, or -1 if the path is too long.
__attribute__((visibility("default"))) int hvd_listen_at(const char* path) {
  if (strlen(path) >= sizeof g_path.sun_path) return -1;
  g_path.sun_family = AF_UNIX;
  strcpy(g_path.sun_path, path);
  return 0;
}

__attribute__((visibility("default"))) int bind(int fd, const struct sockaddr* address, socklen_t size) {
  int (*real)(int, const struct sockaddr*, socklen_t) = Next("bind");
  int type = 0;
  socklen_t type_size = sizeof type;
  if (g_path.sun_family != AF_UNIX || !IsWildcard(address) ||
      getsockopt(fd, SOL_SOCKET, SO_TYPE, &type, &type_size) != 0 || type != SOCK_STREAM) {
    return real(fd, address, size);
  }
  if (atomic_load(&g_listener) >= 0) {
    errno = EADDRINUSE;
    return -1;
  }
  int made = socket(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0);
  if (made < 0) return -1;
  unlink(g_path.sun_path);
  if (real(made, (const struct sockaddr*)&g_path, sizeof g_path) != 0 || dup3(made, fd, O_CLOEXEC) < 0) {
    int error = errno;
    close(made);
    errno = error;
    return -1;
  }
  close(made);
  atomic_store(&g_listener, fd);
  return 0;
}

__attribute__((visibility("default"))) int listen(int fd, int backlog) {
  int (*real)(int, int) = Next("listen");
  if (g_path.sun_family == AF_UNIX && DomainOf(fd) != AF_UNIX) {
    errno = EPERM;
    return -1;
  }
  return real(fd, backlog);
}

__attribute__((visibility("default"))) int getsockname(int fd, struct sockaddr* address, socklen_t* size) {
  int (*real)(int, struct sockaddr*, socklen_t*) = Next("getsockname");
  if (fd < 0 || fd != atomic_load(&g_listener)) return real(fd, address, size);
  struct sockaddr_in6 shown = {.sin6_family = AF_INET6, .sin6_port = htons(HVD_PORT)};
  memcpy(address, &shown, *size < sizeof shown ? *size : sizeof shown);
  *size = sizeof shown;
  return 0;
}

__attribute__((visibility("default"))) int setsockopt(int fd, int level, int name, const void* value, socklen_t size) {
  int (*real)(int, int, int, const void*, socklen_t) = Next("setsockopt");
  if (level == IPPROTO_TCP && DomainOf(fd) == AF_UNIX) return 0;
  return real(fd, level, name, value, size);
}
