// SPDX-License-Identifier: Apache-2.0
#include "hvd/engine/bootstrap/local_presence.h"

#include <sys/socket.h>
#include <unistd.h>

#include <numeric>

#include "hvd/net/deadline.h"
#include "hvd/net/socket.h"

namespace hvd::engine::bootstrap {
namespace {

constexpr Duration kAnswer = std::chrono::milliseconds(100);

Result<net::Address> PlaceOf(const std::string& job, int rank) {
  return net::Address::UnixAbstract(fmt::format("hvd-here-{}-{}-{}", ::geteuid(), job, rank));
}

// MPICH's launchers give jobs no name; but all ranks of this machine have the same process at the other end of PMI.
std::string JobOf(const Launcher& launcher) {
  if (!launcher.job.empty() || launcher.pmi_fd < 0) return launcher.job;
  ucred peer{};
  socklen_t size = sizeof peer;
  if (::getsockopt(launcher.pmi_fd, SOL_SOCKET, SO_PEERCRED, &peer, &size) != 0 || peer.pid <= 0) return "";
  return fmt::format("pmi-{}", peer.pid);
}

}  // namespace

LocalPresence::LocalPresence(const Launcher& launcher) : size_(launcher.size) {
  if (!launcher.all_local()) return;
  job_ = JobOf(launcher);
  const auto place = PlaceOf(job_, launcher.rank);
  auto mine = job_.empty() || !place ? Result<net::Fd>(Fail(Code::kNotFound, "")) : net::Listen(*place);
  // Taken: by this rank itself, which gave up once and stays.
  if (mine) mine_ = std::move(*mine);
}

std::vector<int> LocalPresence::Absent(std::span<const int> ranks) const {
  std::vector<int> absent;
  if (job_.empty()) return absent;
  for (const int rank : ranks) {
    const auto place = PlaceOf(job_, rank);
    if (!place) continue;
    const auto peer = net::Connect(*place, net::DeadlineAfter(kAnswer));
    // Another user may hold the name.
    if (!peer || !net::CheckPeerIsSameUser(peer->get())) absent.push_back(rank);
  }
  return absent;
}

std::vector<int> LocalPresence::Absent() const {
  std::vector<int> all(static_cast<size_t>(size_));
  std::iota(all.begin(), all.end(), 0);
  return Absent(all);
}

void LocalPresence::Stay() { (void)mine_.Release(); }

}  // namespace hvd::engine::bootstrap
