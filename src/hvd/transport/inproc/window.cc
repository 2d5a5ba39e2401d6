// SPDX-License-Identifier: Apache-2.0
#include "hvd/transport/inproc/window.h"

#include <fcntl.h>
#include <unistd.h>

#include <condition_variable>
#include <map>
#include <mutex>
#include <numeric>

#include "hvd/kernel/kernel.h"
#include "hvd/transport/shm/board_window.h"
#include "hvd/transport/shm/fork.h"
#include "hvd/transport/shm/segment.h"

namespace hvd::transport::inproc {

using shm::Board;
using shm::Fd;
using shm::Mapping;

namespace {

constexpr uint64_t kControlBytes = uint64_t{1} << 30;  // address space; memory comes with use

}  // namespace

struct InprocRankGroup::Shared {
  struct Seat {
    Board* board = nullptr;
    std::function<void()> on_change;
    Fd doorbell;  // our own copy: a loop may end while a peer rings
  };

  std::vector<Rank> ranks;
  Mapping control;
  std::byte* board = nullptr;
  uint64_t board_bytes = 0;

  std::recursive_mutex mutex;  // an on_change may revoke
  std::condition_variable_any all_here;
  std::vector<Seat> seats;
  size_t seated = 0;

  // Seats stay until the group ends, so a doorbell in a peer's board is never closed too early.
  void Tell();
};

void InprocRankGroup::Shared::Tell() {
  // Under the lock, so that nobody is called once its window is gone.
  const std::lock_guard lock(mutex);
  bool woken = false;
  for (const Seat& seat : seats) {
    if (seat.board != nullptr && !std::exchange(woken, true))
      seat.board->WakeAllRanks();  // any view knows all doorbells
    if (seat.on_change) seat.on_change();
  }
}

InprocRankGroup::InprocRankGroup(std::vector<Rank> ranks, uint64_t generation) : shared_(std::make_unique<Shared>()) {
  const int count = static_cast<int>(ranks.size());
  shared_->ranks = std::move(ranks);
  shared_->seats.resize(shared_->ranks.size());
  shared_->board_bytes = shm::RoundUp(Board::Bytes(count), shm::kCarveAlign);
  if (auto map = Mapping::Create(-1, kControlBytes); map) {
    shared_->control = std::move(*map);
    shared_->board = shared_->control.data();
    if (!Board::Format(shared_->board, shared_->ranks, generation)) shared_->board = nullptr;
  }
}

InprocRankGroup::InprocRankGroup(int count, uint64_t generation)
    : InprocRankGroup(
          [count] {
            std::vector<Rank> ranks(static_cast<size_t>(count));
            std::iota(ranks.begin(), ranks.end(), 0);
            return ranks;
          }(),
          generation) {}

InprocRankGroup::~InprocRankGroup() = default;

std::shared_ptr<InprocRankGroup> InprocRankGroup::Named(const std::string& name, const std::vector<Rank>& ranks,
                                                        uint64_t generation) {
  static auto* const mutex = new std::mutex;
  static auto* const groups = new std::map<std::string, std::weak_ptr<InprocRankGroup>>;
  const std::lock_guard lock(*mutex);
  std::erase_if(*groups, [](const auto& entry) { return entry.second.expired(); });
  std::weak_ptr<InprocRankGroup>& place = (*groups)[fmt::format("{}/{}", name, generation)];
  std::shared_ptr<InprocRankGroup> group = place.lock();
  if (group == nullptr) place = group = std::make_shared<InprocRankGroup>(ranks, generation);
  return group;
}

void InprocRankGroup::SimulateDeath(int local) {
  Board board(shared_->board, static_cast<int>(shared_->ranks.size()), local, ::getpid());
  board.SetCause({.kind = Cause::kDied, .rank = board.rank(local), .detail = 0, .pid = ::getpid()});
  if (board.SetState(local, PeerState::kDead)) shared_->Tell();
}

namespace {

class ThreadWindow final : public shm::BoardWindow {
 public:
  ThreadWindow(const WindowOptions& options)
      : BoardWindow(options.group->shared().board, static_cast<int>(options.group->shared().ranks.size()),
                    options.local, ::getpid()),
        group_(options.group),
        arena_(options.arena != nullptr ? *options.arena : shm::Arena::Process()),
        used_(group_->shared().board_bytes) {
    InprocRankGroup::Shared& shared = group_->shared();
    const std::lock_guard lock(shared.mutex);
    auto& mine = shared.seats[static_cast<size_t>(options.local)];
    mine.board = &board_;
    mine.on_change = options.on_change;
    if (options.doorbell >= 0) mine.doorbell = Fd(::fcntl(options.doorbell, F_DUPFD_CLOEXEC, 0));
    // Everyone learns everyone's doorbell, whoever comes first.
    for (size_t i = 0; i < shared.seats.size(); ++i) {
      board_.SetBell(static_cast<int>(i), shared.seats[i].doorbell.get());
      if (shared.seats[i].board != nullptr) shared.seats[i].board->SetBell(options.local, mine.doorbell.get());
    }
    if (++shared.seated == shared.seats.size()) shared.all_here.notify_all();
  }

  ~ThreadWindow() override {
    SayGoodbye();
    const std::lock_guard lock(group_->shared().mutex);
    auto& mine = group_->shared().seats[static_cast<size_t>(local())];
    mine.board = nullptr;
    mine.on_change = nullptr;
  }

  Result<std::byte*> Carve(size_t bytes) override {
    const uint64_t rounded = shm::RoundUp(bytes, shm::kCarveAlign);
    if (rounded > group_->shared().control.bytes() - used_) {
      return Fail(Code::kResourceExhausted, "the control segment has no room for {} more bytes", bytes);
    }
    used_ += rounded;
    return group_->shared().control.data() + used_ - rounded;
  }

  std::byte* PeerArena(int, uint64_t offset, uint64_t bytes) override {
    const uint64_t capacity = arena_.capacity();
    return offset <= capacity && bytes <= capacity - offset ? arena_.base() + offset : nullptr;
  }

  bool CanReadPeers() override { return true; }
  bool Readable(const void*, size_t) override { return true; }
  int ReadPeer(int, uint64_t address, void* to, size_t bytes) override {
    kernel::Copy(to, reinterpret_cast<const void*>(address), bytes);
    return 0;
  }

  // A thread cannot be killed; the fence takes its token away all the same.
  void Kill(int local) override {
    board_.SetLost(local);
    if (board_.SetState(local, PeerState::kDead)) Tell();
  }

 private:
  void Tell() override { group_->shared().Tell(); }

  const std::shared_ptr<InprocRankGroup> group_;
  shm::Arena& arena_;
  uint64_t used_;
};

}  // namespace

Result<std::unique_ptr<Window>> CreateWindow(const WindowOptions& options) {
  InprocRankGroup::Shared& shared = options.group->shared();
  if (shared.board == nullptr) return Fail(Code::kResourceExhausted, "no memory for the control segment");
  if (options.local < 0 || options.local >= std::ssize(shared.ranks)) {
    return Fail(Code::kInvalidArgument, "local rank {} of {}", options.local, shared.ranks.size());
  }
  auto window = std::make_unique<ThreadWindow>(options);
  std::unique_lock lock(shared.mutex);
  const auto all = [&shared] { return shared.seated >= shared.seats.size(); };
  while (options.wait_for_all && !all()) {
    if (options.deadline == Time::max()) {
      shared.all_here.wait(lock);
    } else if (shared.all_here.wait_until(lock, options.deadline) == std::cv_status::timeout && !all()) {
      lock.unlock();
      return Fail(Code::kDeadlineExceeded, "{} of {} ranks of this process did not join in time",
                  shared.seats.size() - shared.seated, shared.seats.size());
    }
  }
  lock.unlock();
  return std::unique_ptr<Window>(std::move(window));
}

std::unique_ptr<Window> CreateWindow(std::shared_ptr<InprocRankGroup> group, int local, int doorbell,
                                     std::function<void()> on_change) {
  auto window = CreateWindow({.group = std::move(group),
                              .local = local,
                              .doorbell = doorbell,
                              .on_change = std::move(on_change),
                              .wait_for_all = false});
  return window ? std::move(*window) : nullptr;
}

}  // namespace hvd::transport::inproc
