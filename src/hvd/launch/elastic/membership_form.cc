// SPDX-License-Identifier: Apache-2.0
// How a view is formed: which processes are its members, and which rank each one has.
#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <limits>
#include <tuple>

#include "hvd/launch/elastic/membership.h"

namespace hvd::launch::elastic {

void Membership::Form() {
  std::vector<int> chosen = Candidates();
  if (view_.generation > 0 && !(lost_.empty() && parked_.empty())) {
    if (rules_.reset_limit && resets_ >= *rules_.reset_limit) {
      return Fail(
          fmt::format("ranks were lost once more after {} recoveries, the most that --reset-limit allows", resets_));
    }
    ++resets_;
  }
  int aligned = 0;
  for (const int number : chosen) aligned = std::max(aligned, processes_.at(number).aligned);
  chosen = InOrder(std::move(chosen), aligned);
  if (static_cast<int>(chosen.size()) > rules_.max_np) chosen.resize(static_cast<size_t>(rules_.max_np));
  View view{.generation = view_.generation + 1};
  for (const int number : chosen) {
    const Process& process = processes_.at(number);
    view.members.push_back({number, {.host = process.slot.host, .rank = static_cast<int>(view.members.size())}});
    if (!IsMember(process)) view.added.push_back(number);
    if (aligned == 0 || process.aligned != aligned) continue;
    view.synced.push_back(view.members.back().slot.rank);
    view.commit = view.synced.size() == 1 ? process.commit : std::min(view.commit, process.commit);
  }
  SetSlots(&view.members);
  view.rolled_back = aligned < committed_;
  committed_ = std::min(committed_, aligned);
  view.lost = std::exchange(lost_, {});
  view.parked = std::exchange(parked_, {});
  for (auto& [number, process] : processes_) {
    if (process.removed && process.state == State::kReady) {
      if (IsMember(process)) view.removed.push_back(number);
      process.state = State::kLeaving;
      Do({.kind = Action::Kind::kLeave, .process = number});
    }
    process.rank = -1;
  }
  for (const ViewMember& member : view.members) {
    Process& process = processes_.at(member.process);
    process.rank = member.slot.rank;
    process.state = State::kRunning;
    process.was_member = true;
  }
  view_ = std::move(view);
  phase_ = Phase::kStable;
  announced_ = false;
  for (const Timer timer : {Timer::kStart, Timer::kLate, Timer::kElastic}) {
    Do({.kind = Action::Kind::kDisarm, .timer = timer});
  }
  Do({.kind = Action::Kind::kView, .view = view_});
}

std::vector<int> Membership::InOrder(std::vector<int> chosen, int aligned) const {
  using Place = std::tuple<int, int, int>;
  const auto place_of = [&](int number) -> Place {
    const Process& process = processes_.at(number);
    const int old = IsMember(process) ? process.rank : std::numeric_limits<int>::max();
    if (aligned > 0 && process.aligned == aligned) return {0, old, number};
    return {IsMember(process) ? 1 : 2, old, number};
  };
  std::map<std::string, Place> hosts;  // the best place of each
  for (const int number : chosen) {
    const auto [found, is_new] = hosts.emplace(processes_.at(number).slot.host, place_of(number));
    if (!is_new) found->second = std::min(found->second, place_of(number));
  }
  std::ranges::sort(chosen, {}, [&](int number) {
    return std::pair{hosts.at(processes_.at(number).slot.host), place_of(number)};
  });
  return chosen;
}

void Membership::SetSlots(std::vector<ViewMember>* members) const {
  std::map<std::string, std::vector<int>> indices;  // of the slots in use
  for (const ViewMember& member : *members) {
    const SlotName& slot = processes_.at(member.process).slot;
    indices[slot.host].push_back(slot.index);
  }
  std::map<int, int> twins;  // by local rank
  for (ViewMember& member : *members) {
    const SlotName& slot = processes_.at(member.process).slot;
    const std::vector<int>& used = indices.at(slot.host);
    member.slot.local_size = static_cast<int>(used.size());
    member.slot.local_rank =
        static_cast<int>(std::ranges::count_if(used, [&](int index) { return index < slot.index; }));
    member.slot.cross_rank = twins[member.slot.local_rank]++;
  }
  for (ViewMember& member : *members) member.slot.cross_size = twins[member.slot.local_rank];
}

std::string Membership::Key() const {
  std::string key =
      fmt::format("{} {} {} {} {} {}{}{} {} {};", static_cast<int>(phase_), view_.generation, next_, resets_,
                  fruitless_, draining_, is_late_, announced_, committed_, fmt::join(lost_, ","));
  for (const auto& [number, process] : processes_) {
    key += fmt::format("{} {}:{} {} {} {}{} {} {};", number, process.slot.host, process.slot.index,
                       static_cast<int>(process.state), process.rank, process.was_member, process.removed,
                       process.aligned, process.commit);
  }
  for (const auto& [slot, state] : slots_) {
    key += fmt::format("{}:{} {} {};", slot.host, slot.index, state.failures, state.pending);
  }
  return key;
}

}  // namespace hvd::launch::elastic
