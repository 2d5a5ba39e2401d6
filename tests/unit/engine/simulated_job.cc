// SPDX-License-Identifier: Apache-2.0
#include "tests/unit/engine/simulated_job.h"

#include <gtest/gtest.h>
#include <sys/epoll.h>
#include <unistd.h>

#include <algorithm>
#include <cstring>
#include <utility>

#include "hvd/transport/framed_pair.h"
#include "hvd/wire/hot_frames.h"

namespace hvd::engine {
namespace {

constexpr size_t kRoom = 96 << 10;  // of a connection; less than much of what is sent
constexpr int kMostSteps = 400'000;

class WireStream final : public transport::ByteStream {
 public:
  WireStream(Wire* out, Wire* in, int fd) : out_(out), in_(in), fd_(fd) {}

  Result<size_t> TryWrite(std::span<const iovec> data, bool /*more*/) override {
    size_t taken = 0;
    ++out_->messages;
    for (const iovec& piece : data) {
      uint32_t magic = 0;
      if (piece.iov_len >= wire::kMarkHeadBytes) std::memcpy(&magic, piece.iov_base, sizeof magic);
      out_->marks += magic == wire::kMarkMagic;
      const size_t bytes = std::min(piece.iov_len, kRoom - std::min(kRoom, out_->flying.size()));
      out_->flying.append(static_cast<const char*>(piece.iov_base), bytes);
      taken += bytes;
      if (bytes < piece.iov_len) break;
    }
    return taken;
  }

  Result<size_t> TryRead(std::span<const iovec> into) override {
    size_t taken = 0;
    for (const iovec& piece : into) {
      const size_t bytes = std::min(piece.iov_len, in_->arrived.size() - taken);
      std::memcpy(piece.iov_base, in_->arrived.data() + taken, bytes);
      taken += bytes;
    }
    in_->arrived.erase(0, taken);
    if (taken == 0 && in_->ended && in_->flying.empty()) return Fail(Code::kUnknown, "the other side is gone");
    return taken;
  }

  void ShutdownWrite() override { out_->ended = true; }
  int fd() const override { return fd_; }

 private:
  Wire* const out_;
  Wire* const in_;
  const int fd_;
};

}  // namespace

Status SimulatedLoop::Watch(int fd, uint32_t events, loop::FdHandler handler) {
  watches_[fd] = {events, std::make_shared<loop::FdHandler>(std::move(handler))};
  return {};
}

Status SimulatedLoop::Rearm(int fd, uint32_t events) {
  watches_.at(fd).events = events;
  return {};
}

bool SimulatedLoop::RunOnce(Duration max_wait) {
  bool ran = !deferred_.empty();
  for (const auto& call : std::exchange(deferred_, {})) call();
  ran |= timers_.RunDue(*now_);
  std::vector<int> fds;
  for (const auto& [fd, watched] : watches_) fds.push_back(fd);
  for (const int fd : fds) {
    const auto found = watches_.find(fd);
    if (found == watches_.end() || !ready_(fd, found->second.events)) continue;
    const auto handler = found->second.handler;
    (*handler)(found->second.events);
    ran = true;
  }
  if (!ran && max_wait > Duration::zero()) *now_ += max_wait;
  return ran;
}

SimulatedJob::SimulatedJob(const Options& options)
    : random_(options.seed),
      wires_(options.hosts.size() * options.hosts.size()),
      pairs_(options.hosts.size(), std::vector<transport::Pair*>(options.hosts.size())),
      dead_(options.hosts.size()),
      engines_(options.hosts.size()) {
  for (Rank rank = 0; rank < size(); ++rank) {
    World world;
    world.layout = MakeLayout(rank, options.hosts);
    world.settings.algorithms = options.algorithms;
    for (const std::string& host : options.hosts) world.ranks.push_back({host, host, getpid()});
    world.loop = std::make_unique<SimulatedLoop>(&now_, [this](int fd, uint32_t events) { return Ready(fd, events); });
    for (Rank peer = 0; peer < size(); ++peer) {
      auto& pair = world.pairs.emplace_back();
      if (peer == rank) continue;
      auto stream = std::make_unique<WireStream>(&wire(rank, peer), &wire(peer, rank), peer * size() + rank);
      pair = std::move(*transport::CreateFramedPair(peer, std::move(stream), world.loop.get()));
      pairs_[rank][peer] = pair.get();
    }
    Engine::Options engine{.config = {}, .process_sets = options.sets, .own_thread = false};
    engine.resume_policy = options.resume_policy;
    engines_[rank] = std::move(*Engine::Create(std::move(world), std::move(engine)));
  }
}

SimulatedJob::~SimulatedJob() = default;

bool SimulatedJob::Ready(int fd, uint32_t events) {
  const Wire& in = wires_[fd];
  const Wire& out = wires_[fd % size() * size() + fd / size()];
  const bool readable = !in.arrived.empty() || (in.ended && in.flying.empty());
  return ((events & EPOLLIN) != 0 && readable) || ((events & EPOLLOUT) != 0 && out.flying.size() < kRoom);
}

int SimulatedJob::marks() const {
  int marks = 0;
  for (const Wire& wire : wires_) marks += wire.marks;
  return marks;
}

int SimulatedJob::messages() const {
  int messages = 0;
  for (const Wire& wire : wires_) messages += wire.messages;
  return messages;
}

void SimulatedJob::Step() {
  const Rank a = static_cast<Rank>(random_() % engines_.size());
  if (random_() % 2 == 0) {
    if (!dead_[a]) engine(a).Poll();
    return;
  }
  const Rank b = static_cast<Rank>(random_() % engines_.size());
  if (held_[{a, b}]) return;
  Wire& link = wire(a, b);
  // Mostly all that is there; sometimes a few bytes, so that messages arrive in pieces.
  const size_t bytes = std::min<size_t>(link.flying.size(), random_() % 8 == 0 ? 1 + random_() % 50 : kRoom);
  link.arrived.append(link.flying, 0, bytes);
  link.flying.erase(0, bytes);
}

bool SimulatedJob::StepUntil(const std::function<bool()>& done) {
  for (int steps = 0; steps < kMostSteps; ++steps) {
    if (done()) return true;
    Step();
  }
  return done();
}

void SimulatedJob::Kill(Rank rank) {
  dead_[rank] = true;
  for (Rank peer = 0; peer < size(); ++peer) wire(rank, peer).ended = true;
}

Operation* SimulatedJob::Submit(Rank rank, Submission submission) {
  const auto handle = engine(rank).Submit(std::move(submission));
  EXPECT_TRUE(handle) << handle.error().message;
  return handle ? engine(rank).Find(*handle) : nullptr;
}

Operation* SimulatedJob::Sum(Rank rank, const std::string& name, std::vector<float>* data, int set, double timeout_s) {
  Submission submission;
  submission.request.name = name;
  submission.request.signature.shape = {static_cast<int64_t>(data->size())};
  submission.process_set = set;
  submission.input = submission.output = data->data();
  submission.input_bytes = submission.output_bytes = data->size() * sizeof(float);
  submission.timeout_s = timeout_s;
  return Submit(rank, std::move(submission));
}

}  // namespace hvd::engine
