// SPDX-License-Identifier: Apache-2.0
#include "hvd/engine/control_messages.h"

#include <fmt/format.h>

#include "hvd/trace/ticks.h"
#include "hvd/wire/control.h"

namespace hvd::engine {

ProcessSet* ControlMessages::SetOf(int serial, Rank from, std::span<const std::byte> bytes) {
  if (!context_.membership->working()) return nullptr;
  ProcessSet* set = context_.sets->FindSerial(serial);
  if (set == nullptr && serial >= factory_->next_serial()) changes_->HoldEarlyMessage(from, bytes);
  return set != nullptr && set->included() && set->MemberOf(from) >= 0 ? set : nullptr;
}

void ControlMessages::OnMessage(Rank from, std::span<const std::byte> bytes) {
  auto message = wire::Decode(bytes);
  if (!message) {
    context_.membership->Revoke({transport::Cause::kDied, from, 0, context_.world->ranks[from].pid},
                                fmt::format("it sent a message that cannot be read: {}", message.error().message));
    return;
  }
  const auto set_of = [&](int32_t serial) { return SetOf(serial, from, bytes); };
  if (auto* ready = std::get_if<wire::ReadyMessage>(&*message)) {
    if (ProcessSet* set = set_of(ready->set)) set->OnReady(set->MemberOf(from), ready->uid, ready->first_dim);
  } else if (auto* marks = std::get_if<wire::MarkMessage>(&*message)) {
    if (ProcessSet* set = set_of(marks->set)) set->OnMarks(set->MemberOf(from), *marks);
  } else if (auto* request = std::get_if<wire::RequestMessage>(&*message)) {
    if (ProcessSet* set = set_of(request->set)) set->OnRequest(set->MemberOf(from), std::move(request->request));
  } else if (auto* log = std::get_if<wire::LogMessage>(&*message)) {
    if (ProcessSet* set = set_of(log->set)) set->OnLog(log->first_position, std::move(log->entries));
  } else if (auto* end = std::get_if<wire::StreamEnd>(&*message)) {
    if (ProcessSet* set = set_of(end->set)) set->OnStreamEnd(set->MemberOf(from), *end);
  } else if (auto* goodbye = std::get_if<wire::Goodbye>(&*message)) {
    context_.membership->OnLeft(
        from, goodbye->rank >= 0 && goodbye->rank < context_.world->layout.size ? goodbye->rank : from, goodbye->text);
  } else if (auto* ping = std::get_if<wire::Ping>(&*message)) {
    context_.control->Send(from, wire::Encode(wire::Pong{ping->number, trace::ClockNanos(CLOCK_REALTIME)}));
  } else if (auto* pong = std::get_if<wire::Pong>(&*message)) {
    OnPong(from, *pong);
  } else if (auto* stalled = std::get_if<wire::Stalled>(&*message)) {
    stalls_->OnStalled(from, *stalled);
  } else if (auto* query = std::get_if<wire::StatusQuery>(&*message)) {
    stalls_->OnStatusQuery(from, *query);
  } else if (auto* reply = std::get_if<wire::StatusReply>(&*message)) {
    stalls_->OnStatusReply(from, std::move(*reply));
  } else if (auto* revoke = std::get_if<wire::Revoke>(&*message)) {
    context_.membership->Revoke({revoke->kind, revoke->rank, revoke->detail, static_cast<int32_t>(revoke->pid)},
                                revoke->text);
  }
}

void ControlMessages::AskForClock() {
  const Layout& layout = context_.world->layout;
  const bool elsewhere = layout.host_of[layout.rank] != layout.host_of[0];
  if (!elsewhere || !context_.config->timeline_all_ranks) return;
  if (const auto number = clock_offset_.Ask(trace::ClockNanos(CLOCK_MONOTONIC))) {
    context_.control->Send(0, wire::Encode(wire::Ping{*number}));
  }
}

void ControlMessages::OnPong(Rank from, const wire::Pong& pong) {
  liveness_->OnPong(from);
  const bool mine = from == 0 && clock_offset_.OnAnswer(pong.number, pong.wall_ns, trace::ClockNanos(CLOCK_MONOTONIC),
                                                        trace::ClockNanos(CLOCK_REALTIME));
  if (!mine) return;
  clock_offset_.known() ? context_.recorder->KnowClock(clock_offset_.nanos()) : AskForClock();
}

}  // namespace hvd::engine
