// SPDX-License-Identifier: Apache-2.0
#include <sys/eventfd.h>
#include <sys/socket.h>

#include <cerrno>
#include <cstring>

#include "hvd/transport/shm/handshake.h"
#include "hvd/transport/shm/memory.h"
#include "hvd/transport/shm/window.h"

namespace hvd::transport::shm {
namespace {

Status ProbeMemory(Fd* file) {
  HVD_ASSIGN_OR_RETURN(*file, CreateSealedFile("hvd-probe", kHugePage));
  HVD_RETURN_IF_ERROR(Commit(file->get(), 0, 1));
  HVD_ASSIGN_OR_RETURN(const Mapping map, Mapping::Create(file->get(), kHugePage));
  *map.data() = std::byte{1};
  return {};
}

Status ProbeDescriptorPassing(int fd) {
  int ends[2];
  if (::socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC | SOCK_NONBLOCK, 0, ends) != 0) {
    return Fail(Code::kUnimplemented, "no unix sockets: {}", std::strerror(errno));
  }
  const Fd near(ends[0]), far(ends[1]);
  const Time deadline = std::chrono::steady_clock::now() + std::chrono::seconds(1);
  HVD_RETURN_IF_ERROR(SendMessage(near.get(), Welcome{}, std::span(&fd, 1), deadline));
  HVD_ASSIGN_OR_RETURN(const Packet packet, ReceivePacket(far.get(), deadline));
  if (packet.fds.size() != 1) return Fail(Code::kUnimplemented, "descriptors cannot be passed between processes");
  return {};
}

}  // namespace

Status Probe() {
  Fd file;
  HVD_RETURN_IF_ERROR(ProbeMemory(&file));
  const Fd doorbell(::eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK));
  if (!doorbell) return Fail(Code::kUnimplemented, "no eventfd: {}", std::strerror(errno));
  return ProbeDescriptorPassing(file.get());
}

}  // namespace hvd::transport::shm
