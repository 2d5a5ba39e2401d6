// SPDX-License-Identifier: Apache-2.0
#include "hvd/transport/tcp/mesh.h"

#include <poll.h>

#include <algorithm>
#include <cerrno>
#include <utility>

#include "hvd/base/log.h"
#include "hvd/net/deadline.h"
#include "hvd/net/socket.h"
#include "hvd/transport/framed_pair.h"

namespace hvd::transport::tcp {
namespace {

constexpr Duration kRetryAfter = std::chrono::milliseconds(50);
// A connection that has not proven itself by then makes room for others.
constexpr Duration kHandshakeTime = std::chrono::seconds(10);
// Connections from unknown ends at the same time, besides one per rank.
constexpr size_t kMaxStrangers = 256;
constexpr int kMaxWarnings = 5;

// What trying again cannot mend: we found somebody who is not of this job, or not whom we look for.
bool IsFinal(Code code) { return code == Code::kPermissionDenied || code == Code::kFailedPrecondition; }

}  // namespace

Status Mesh::Prepare() {
  const auto size = static_cast<size_t>(options_.size);
  if (options_.size < 1 || options_.rank < 0 || options_.rank >= options_.size || options_.addresses.size() != size) {
    return Fail(Code::kInvalidArgument, "rank {} of {} with {} addresses", options_.rank, options_.size,
                options_.addresses.size());
  }
  HVD_ASSIGN_OR_RETURN(context_.key, net::handshake::MakeKey(options_.token, options_.generation));
  context_.self = {.generation = options_.generation,
                   .to = static_cast<uint32_t>(options_.rank),
                   .size = static_cast<uint32_t>(options_.size)};
  if (options_.encrypt) {
    if (options_.token == nullptr) return Fail(Code::kFailedPrecondition, "encryption needs a job token");
    HVD_ASSIGN_OR_RETURN(context_.tls_client,
                         net::TlsContext::Create(net::TlsSide::kClient, *options_.token, "data", options_.generation));
    HVD_ASSIGN_OR_RETURN(context_.tls_server,
                         net::TlsContext::Create(net::TlsSide::kServer, *options_.token, "data", options_.generation));
  }
  peers_.resize(size);
  for (Rank r = 0; r < options_.size; ++r) {
    peers_[r].wanted = r != options_.rank && options_.addresses[r].length() > 0;
    if (peers_[r].wanted && r > options_.rank && options_.listener == nullptr) {
      return Fail(Code::kInvalidArgument, "rank {} would connect to us, but nobody listens", r);
    }
  }
  return {};
}

Result<std::vector<std::unique_ptr<Pair>>> Mesh::Run() {
  while (!Complete()) {
    if (net::Now() >= options_.deadline) return Fail(Missing());
    HVD_RETURN_IF_ERROR(Begin());
    HVD_RETURN_IF_ERROR(TurnOnce());
  }
  std::vector<std::unique_ptr<Pair>> pairs(peers_.size());
  for (Rank r = 0; r < options_.size; ++r) {
    if (!peers_[r].wanted) continue;
    HVD_ASSIGN_OR_RETURN(pairs[r], CreateFramedPair(r, std::move(peers_[r].stream), options_.loop));
  }
  return pairs;
}

bool Mesh::Complete() const {
  return std::all_of(peers_.begin(), peers_.end(), [](const Peer& p) { return !p.wanted || p.stream != nullptr; });
}

Status Mesh::Begin() {
  const Time now = net::Now();
  for (Rank r = 0; r < options_.rank; ++r) {
    Peer& peer = peers_[r];
    if (!peer.wanted || peer.stream != nullptr || peer.opening || now < peer.retry_at) continue;
    auto opening = Opening::Connect(&context_, r, options_.addresses[r]);
    if (!opening) {
      peer.last_error = opening.error().message;
      peer.retry_at = now + kRetryAfter;
      continue;
    }
    peer.opening = true;
    entries_.push_back({std::move(*opening), net::Want::kWrite, options_.deadline});
  }
  return {};
}

void Mesh::AcceptWaiting() {
  while (true) {
    auto fd = net::Accept(options_.listener->fd());
    if (!fd || !*fd) {
      if (!fd) log::Warning("{}", fd.error().message);
      return;
    }
    if (entries_.size() >= peers_.size() + kMaxStrangers) {
      // Whoever said nothing for longest makes room: a rank proves itself within a few round trips.
      const auto oldest = std::find_if(entries_.begin(), entries_.end(),
                                       [](const Entry& entry) { return entry.opening && !entry.opening->connects(); });
      if (oldest != entries_.end()) entries_.erase(oldest);
    }
    auto opening = Opening::Accept(&context_, std::move(**fd));
    // A connection that is gone before we look at it is nobody's loss.
    if (opening) entries_.push_back({std::move(*opening), net::Want::kRead, net::DeadlineAfter(kHandshakeTime)});
  }
}

Status Mesh::TurnOnce() {
  std::vector<pollfd> fds;
  for (const Entry& entry : entries_) {
    fds.push_back({entry.opening->fd(), static_cast<short>(entry.want == net::Want::kWrite ? POLLOUT : POLLIN), 0});
  }
  const bool accepts = options_.listener != nullptr;
  if (accepts) fds.push_back({options_.listener->fd(), POLLIN, 0});
  if (poll(fds.data(), fds.size(), net::PollMillis(NextTime())) < 0 && errno != EINTR) {
    return Fail(Code::kInternal, "poll: {}", net::ErrnoText(errno));
  }
  const size_t count = entries_.size();
  const Time now = net::Now();
  for (size_t i = 0; i < count; ++i) {
    if (fds[i].revents != 0) {
      HVD_RETURN_IF_ERROR(StepEntry(entries_[i]));
    } else if (now >= entries_[i].give_up) {
      entries_[i].opening = nullptr;  // only those that we accepted have a time of their own
    }
  }
  if (accepts && fds.back().revents != 0) AcceptWaiting();
  std::erase_if(entries_, [](const Entry& entry) { return entry.opening == nullptr; });
  return {};
}

Time Mesh::NextTime() const {
  Time next = options_.deadline;
  for (const Entry& entry : entries_) next = std::min(next, entry.give_up);
  for (Rank r = 0; r < options_.rank; ++r) {
    const Peer& peer = peers_[r];
    if (peer.wanted && peer.stream == nullptr && !peer.opening) next = std::min(next, peer.retry_at);
  }
  return next;
}

Status Mesh::StepEntry(Entry& entry) {
  auto want = entry.opening->Step();
  if (want && *want != net::Want::kNothing) {
    entry.want = *want;
    return {};
  }
  const std::unique_ptr<Opening> opening = std::move(entry.opening);
  return want ? OnOpen(*opening) : OnFailed(*opening, want.error());
}

Status Mesh::OnFailed(const Opening& opening, const Error& error) {
  if (!opening.connects()) {
    // The first few: a stranger must not be able to fill the log either.
    if (++turned_away_ <= kMaxWarnings) {
      log::Warning("turned away a connection from {}: {}", opening.where(), error.message);
    }
    return {};
  }
  Peer& peer = peers_[opening.peer()];
  peer.opening = false;
  peer.retry_at = net::Now() + kRetryAfter;
  peer.last_error = error.message;
  if (!IsFinal(error.code)) return {};
  return Fail(Error{error.code, fmt::format("rank {} at {}: {}", opening.peer(), opening.where(), error.message),
                    opening.peer()});
}

Status Mesh::OnOpen(Opening& opening) {
  const Rank rank = opening.peer();
  // Checked here, not trusted: a rank that connects twice, or in the wrong direction, is confused.
  if (!opening.connects() && (rank <= options_.rank || !peers_[rank].wanted || peers_[rank].stream != nullptr)) {
    log::Warning("turned away a second or unwanted connection of rank {} from {}", rank, opening.where());
    return {};
  }
  Peer& peer = peers_[rank];
  peer.opening = false;
  Apply(options_.socket, opening.fd());
  peer.stream = opening.TakeStream();
  return {};
}

Error Mesh::Missing() const {
  Error error{.code = Code::kDeadlineExceeded, .message = "not all ranks could be reached in time"};
  const char* separator = ": ";
  for (Rank r = 0; r < options_.size; ++r) {
    const Peer& peer = peers_[r];
    if (!peer.wanted || peer.stream != nullptr) continue;
    if (error.rank < 0) error.rank = r;
    const std::string where = options_.addresses[r].ToString();
    if (r > options_.rank) {
      error.message += fmt::format("{}rank {} ({}) did not connect to {}", separator, r, where,
                                   options_.listener->address().ToString());
    } else {
      error.message += fmt::format("{}rank {} at {} did not answer{}{}", separator, r, where,
                                   peer.last_error.empty() ? "" : ": ", peer.last_error);
    }
    separator = "; ";
  }
  return error;
}

}  // namespace hvd::transport::tcp
