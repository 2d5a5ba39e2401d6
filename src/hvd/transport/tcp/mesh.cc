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
constexpr int kMaxWarnings = 5;
// Accepts that fail for want of a descriptor, one after the other, before this rank gives up: 1 s.
constexpr int kMostWithoutDescriptor = 20;

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
  context_.has_token = options_.token != nullptr;
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
    HVD_ASSIGN_OR_RETURN(pairs[r],
                         CreateFramedPair(r, std::move(peers_[r].stream), options_.loop, std::move(peers_[r].seal)));
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
    entries_.push_back({++last_id_, std::move(*opening), net::Want::kWrite, options_.deadline});
  }
  return {};
}

Status Mesh::AcceptWaiting() {
  for (int i = 0; i < net::Strangers::kAcceptsPerTurn; ++i) {
    auto fd = net::Accept(options_.listener->fd());
    if (!fd && fd.error().code != Code::kResourceExhausted) return Fail(fd.error());
    if (!fd) return OnNoDescriptor(fd.error());
    without_descriptor_ = 0;
    if (!*fd) return {};
    const auto from = net::PeerAddress((*fd)->get());
    auto opening = Opening::Accept(&context_, std::move(**fd));
    // A connection that is gone before it was looked at is nobody's loss.
    if (!from || !opening) continue;
    const net::Strangers::Id id = ++last_id_;
    if (const auto displaced = strangers_.Add(id, *from)) {
      std::erase_if(entries_, [&](const Entry& entry) { return entry.id == *displaced; });
    }
    entries_.push_back({id, std::move(*opening), net::Want::kRead, net::DeadlineAfter(net::Strangers::kProofTime)});
  }
  return {};
}

Status Mesh::OnNoDescriptor(const Error& error) {
  ++without_descriptor_;
  if (strangers_.size() == 0 && without_descriptor_ >= kMostWithoutDescriptor) {
    return Fail(Code::kResourceExhausted, "{}: this process has too many open files to connect its {} ranks",
                error.message, options_.size);
  }
  if (without_descriptor_ <= kMaxWarnings) log::Warning("{}; trying again", error.message);
  accept_at_ = net::DeadlineAfter(net::Strangers::kAcceptPause);
  return {};
}

Status Mesh::TurnOnce() {
  std::vector<pollfd> fds;
  for (const Entry& entry : entries_) {
    fds.push_back({entry.opening->fd(), static_cast<short>(entry.want == net::Want::kWrite ? POLLOUT : POLLIN), 0});
  }
  const bool accepts = options_.listener != nullptr && net::Now() >= accept_at_;
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
  std::erase_if(entries_, [&](const Entry& entry) {
    if (entry.opening == nullptr) strangers_.Remove(entry.id);
    return entry.opening == nullptr;
  });
  return accepts && fds.back().revents != 0 ? AcceptWaiting() : Status();
}

Time Mesh::NextTime() const {
  Time next = options_.deadline;
  if (options_.listener != nullptr && accept_at_ > net::Now()) next = std::min(next, accept_at_);
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
  HVD_ASSIGN_OR_RETURN(peer.seal, opening.MakeSeal());
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
