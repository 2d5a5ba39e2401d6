// SPDX-License-Identifier: Apache-2.0
// Control messages between engines.
#include "hvd/base/log.h"
#include "hvd/engine/engine.h"
#include "hvd/trace/ticks.h"

namespace hvd::engine {

void Engine::SendControl(Rank rank, std::span<const std::byte> message) {
  if (world_.pairs.empty() || world_.pairs[rank] == nullptr) return;
  begins_many_ ? world_.pairs[rank]->SendMessageSoon(message) : world_.pairs[rank]->SendMessage(message);
}

void Engine::OnControl(Rank from, std::span<const std::byte> bytes) {
  auto message = wire::Decode(bytes);
  if (!message) {
    Revoke({transport::Cause::kDied, from, 0, world_.ranks[from].pid},
           fmt::format("it sent a message that cannot be read: {}", message.error().message));
    return;
  }
  const auto set_of = [&](int32_t serial) -> ProcessSet* {
    if (phase_.load(std::memory_order_relaxed) != Phase::kWorking) return nullptr;
    ProcessSet* set = sets_.FindSerial(serial);
    if (set == nullptr && serial >= sets_made_) KeepEarly(from, bytes);
    return set != nullptr && set->included() && set->MemberOf(from) >= 0 ? set : nullptr;
  };
  if (auto* ready = std::get_if<wire::ReadyMessage>(&*message)) {
    if (ProcessSet* set = set_of(ready->set)) set->OnReady(set->MemberOf(from), ready->uid, ready->first_dim);
  } else if (auto* marks = std::get_if<wire::MarkMessage>(&*message)) {
    if (ProcessSet* set = set_of(marks->set)) set->OnMarks(set->MemberOf(from), *marks);
  } else if (auto* request = std::get_if<wire::RequestMessage>(&*message)) {
    if (ProcessSet* set = set_of(request->set)) set->OnRequest(set->MemberOf(from), std::move(request->request));
  } else if (auto* log = std::get_if<wire::LogMessage>(&*message)) {
    if (ProcessSet* set = set_of(log->set)) set->OnLog(log->first_position, std::move(log->entries));
  } else if (auto* reached = std::get_if<wire::Reached>(&*message)) {
    if (ProcessSet* set = set_of(reached->set)) set->OnReached(set->MemberOf(from), *reached);
  } else if (auto* goodbye = std::get_if<wire::Goodbye>(&*message)) {
    MarkLeft(from, goodbye->rank >= 0 && goodbye->rank < world_.layout.size ? goodbye->rank : from, goodbye->text);
  } else if (auto* ping = std::get_if<wire::Ping>(&*message)) {
    SendControl(from, wire::Encode(wire::Pong{ping->number, trace::ClockNanos(CLOCK_REALTIME)}));
  } else if (auto* pong = std::get_if<wire::Pong>(&*message)) {
    OnPong(from, *pong);
  } else if (auto* stalled = std::get_if<wire::Stalled>(&*message)) {
    stalls_.OnStalled(from, *stalled);
  } else if (auto* inquiry = std::get_if<wire::Inquiry>(&*message)) {
    stalls_.OnInquiry(from, *inquiry);
  } else if (auto* account = std::get_if<wire::Account>(&*message)) {
    stalls_.OnAccount(from, std::move(*account));
  } else if (auto* revoke = std::get_if<wire::Revoke>(&*message)) {
    Revoke({revoke->kind, revoke->rank, revoke->detail, static_cast<int32_t>(revoke->pid)}, revoke->text);
  }
}

void Engine::AskForClock() {
  const Layout& layout = world_.layout;
  const bool elsewhere = layout.host_of[layout.rank] != layout.host_of[0];
  if (!elsewhere || !options_.config.timeline_all_ranks) return;
  if (const auto number = clock_offset_.Ask(trace::ClockNanos(CLOCK_MONOTONIC))) {
    SendControl(0, wire::Encode(wire::Ping{*number}));
  }
}

void Engine::OnPong(Rank from, const wire::Pong& pong) {
  liveness_.OnPong(from);
  const bool mine = from == 0 && clock_offset_.OnAnswer(pong.number, pong.wall_ns, trace::ClockNanos(CLOCK_MONOTONIC),
                                                        trace::ClockNanos(CLOCK_REALTIME));
  if (!mine) return;
  clock_offset_.known() ? recorder_.KnowClock(clock_offset_.nanos()) : AskForClock();
}

void Engine::KeepEarly(Rank from, std::span<const std::byte> bytes) {
  constexpr size_t kMost = 64 << 10;
  if (!options_.dynamic_sets || early_.size() >= kMost) return;
  early_.push_back({from, {bytes.begin(), bytes.end()}});
}

}  // namespace hvd::engine
