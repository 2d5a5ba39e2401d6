// SPDX-License-Identifier: Apache-2.0
#include "hvd/transport/shm/window.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <mutex>
#include <optional>

#include "hvd/transport/shm/board_window.h"
#include "hvd/transport/shm/crash_signals.h"
#include "hvd/transport/shm/hub.h"
#include "hvd/transport/shm/peer_memory.h"
#include "hvd/transport/shm/process.h"
#include "hvd/transport/shm/segment.h"
#include "hvd/transport/shm/watcher.h"

namespace hvd::transport::shm {
namespace {

// Above this many ranks their pidfds would eat the usual limit of 1024 descriptors.
constexpr size_t kMostPidfds = 128;

struct Peer {
  LocalRank rank;
  std::atomic<std::byte*> arena{nullptr};
  Mapping map;
};

class ProcessWindow final : public BoardWindow {
 public:
  ProcessWindow(std::unique_ptr<Segment> segment, std::byte* board, std::vector<LocalRank> ranks,
                const WindowOptions& options)
      : BoardWindow(board, static_cast<int>(ranks.size()), options.local, ::getpid()),
        segment_(std::move(segment)),
        arena_(options.arena),
        peers_(ranks.size()),
        epoch_(ForkEpoch()),
        watcher_(board_, options.on_change, options.without_waitv) {
    for (size_t i = 0; i < ranks.size(); ++i) {
      if (static_cast<int>(i) == options.local) {
        // Rung by WakeAllRanks and by this process's own crash handlers only; never by a peer.
        peers_[i].rank.doorbell = Fd(::fcntl(options.doorbell, F_DUPFD_CLOEXEC, 0));
      } else {
        peers_[i].rank = std::move(ranks[i]);
      }
      board_.SetBell(static_cast<int>(i), peers_[i].rank.doorbell.get());
    }
    if (options.crash_signals) crash_notice_.emplace(board_, options.handlers_are_fatal);
  }

  ~ProcessWindow() override {
    crash_notice_.reset();
    if (epoch_ != ForkEpoch()) return;  // a child's copy: it is no rank, and its descriptors are closed
    SayGoodbye();
    watcher_.Stop();
  }

  Status Start() { return watcher_.Start(); }
  // All ranks are there.
  void Begin() {
    watcher_.Begin();
    memory_.Probe();
  }

  Result<std::byte*> Carve(size_t bytes) override { return segment_->Carve(bytes); }
  std::byte* PeerArena(int local, uint64_t offset, uint64_t bytes) override;
  void Kill(int local) override;

  bool CanReadPeers() override { return memory_.CanReadPeers(); }
  bool Readable(const void* memory, size_t bytes) override { return memory_.Readable(memory, bytes); }
  int ReadPeer(int local, uint64_t address, void* to, size_t bytes) override {
    return memory_.Read(local, address, to, bytes);
  }

 private:
  void Tell() override { board_.WakeAllRanks(); }
  bool Stopped(int local) override { return DumpsCore(peers_[static_cast<size_t>(local)].rank); }

  const std::unique_ptr<Segment> segment_;
  Arena* const arena_;
  std::mutex map_mutex_;
  std::vector<Peer> peers_;
  const unsigned epoch_;
  PeerMemory memory_{board_};
  Watcher watcher_;
  std::optional<CrashNotice> crash_notice_;
};

std::byte* ProcessWindow::PeerArena(int local, uint64_t offset, uint64_t bytes) {
  const auto inside = [&](uint64_t size) { return offset <= size && bytes <= size - offset; };
  if (local == this->local()) {
    return arena_ != nullptr && inside(arena_->capacity()) ? arena_->base() + offset : nullptr;
  }
  Peer& peer = peers_[static_cast<size_t>(local)];
  if (std::byte* const base = peer.arena.load(std::memory_order_acquire); base != nullptr) {
    return inside(peer.map.bytes()) ? base + offset : nullptr;
  }
  const std::lock_guard lock(map_mutex_);
  if (peer.arena.load(std::memory_order_relaxed) == nullptr) {
    if (!peer.rank.arena) return nullptr;
    const auto size = SealedSize(peer.rank.arena.get());
    if (!size) return nullptr;
    auto map = Mapping::Create(peer.rank.arena.get(), *size);
    if (!map) return nullptr;
    // Children of this process have no business there, and would keep the memory of a dead rank alive.
    ::madvise(map->data(), map->bytes(), MADV_DONTFORK);
    ::madvise(map->data(), map->bytes(), MADV_HUGEPAGE);
    peer.map = std::move(*map);
    peer.rank.arena.Close();
    peer.arena.store(peer.map.data(), std::memory_order_release);
  }
  return inside(peer.map.bytes()) ? peer.map.data() + offset : nullptr;
}

void ProcessWindow::Kill(int local) {
  if (local == this->local() || board_.state(local) != PeerState::kAlive) return;
  board_.SetLost(local);
  KillProcess(peers_[static_cast<size_t>(local)].rank);
  board_.WakeAllRanks();
}

Result<LocalRank> Self(const WindowOptions& options) {
  LocalRank self;
  self.member = DescribeSelf(options.local, options.ranks[static_cast<size_t>(options.local)]);
  self.doorbell = Fd(::fcntl(options.doorbell, F_DUPFD_CLOEXEC, 0));
  if (!self.doorbell) return Fail(Code::kInvalidArgument, "the doorbell is no descriptor: {}", std::strerror(errno));
  if (options.arena != nullptr && options.arena->shareable()) {
    self.arena = Fd(::fcntl(options.arena->fd(), F_DUPFD_CLOEXEC, 0));
    self.member.arena_bytes = options.arena->capacity();
  }
  if (options.ranks.size() <= kMostPidfds) self.pidfd = OpenSelf();
  return self;
}

std::string HubKey(const WindowOptions& options) {
  return fmt::format("{}/shm/{}", options.prefix, options.generation);
}

Result<std::unique_ptr<Window>> Make(const WindowOptions& options) {
  const size_t count = options.ranks.size();
  if (count < 1 || count > Board::kMaxRanks || options.local < 0 || options.local >= static_cast<int>(count)) {
    return Fail(Code::kInvalidArgument, "local rank {} of {}: this host can have 1 to {} ranks", options.local, count,
                Board::kMaxRanks);
  }
  HVD_ASSIGN_OR_RETURN(LocalRank self, Self(options));
  std::unique_ptr<Segment> segment;
  std::byte* board = nullptr;
  if (options.local == 0) {
    HVD_ASSIGN_OR_RETURN(segment, Segment::Create());
    HVD_ASSIGN_OR_RETURN(board, segment->Carve(Board::Bytes(static_cast<int>(count))));
    HVD_RETURN_IF_ERROR(Board::Format(board, options.ranks, options.generation));
  }
  HVD_ASSIGN_OR_RETURN(const std::unique_ptr<Hub> hub, Hub::Create({.store = options.store,
                                                                    .key = HubKey(options),
                                                                    .generation = options.generation,
                                                                    .local = options.local,
                                                                    .ranks = options.ranks,
                                                                    .auth_key = options.auth_key,
                                                                    .deadline = options.deadline}));
  Fd control = segment != nullptr ? Fd(::fcntl(segment->fd(), F_DUPFD_CLOEXEC, 0)) : Fd();
  HVD_ASSIGN_OR_RETURN(std::vector<LocalRank> ranks, hub->Exchange(std::move(self), &control));
  if (segment == nullptr) {
    HVD_ASSIGN_OR_RETURN(segment, Segment::Open(std::move(control)));
    HVD_ASSIGN_OR_RETURN(board, segment->Carve(Board::Bytes(static_cast<int>(count))));
    HVD_RETURN_IF_ERROR(Board::Check(board, options.ranks, options.generation));
  }
  auto window = std::make_unique<ProcessWindow>(std::move(segment), board, std::move(ranks), options);
  HVD_RETURN_IF_ERROR(window->Start());
  HVD_RETURN_IF_ERROR(hub->Ready());
  window->Begin();
  return std::unique_ptr<Window>(std::move(window));
}

}  // namespace

Result<std::unique_ptr<Window>> CreateWindow(const WindowOptions& options) {
  auto window = Make(options);
  // The others must not wait for this rank until the deadline.
  if (!window && options.store != nullptr) {
    (void)options.store->Set(options.local == 0 ? HubKey(options) : RefusalKey(HubKey(options)),
                             Refusal(window.error().message));
  }
  return window;
}

}  // namespace hvd::transport::shm
