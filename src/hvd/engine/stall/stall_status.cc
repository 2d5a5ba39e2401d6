// SPDX-License-Identifier: Apache-2.0
// What this rank says about itself when it is asked, and what it can see of others without asking; see
// stall_inspector.h.
#include <fmt/format.h>

#include <algorithm>
#include <set>
#include <utility>

#include "hvd/engine/stall/stall_inspector.h"
#include "hvd/topology/proc.h"
#include "hvd/trace/escape.h"
#include "hvd/wire/control.h"

namespace hvd::engine {
namespace {

using WaitStage = wire::Waiting::Stage;

// What a time-out is put off for, to say whom it waited for.
constexpr Duration kAnswerTime = std::chrono::milliseconds(500);

std::string Shown(std::string_view name, size_t most = wire::StatusReply::kMaxShownName) {
  std::string shown(most, '\0');
  shown.resize(trace::CutName(name, shown.data(), shown.size()));
  return shown;
}

// Names that the library makes by counting, "allreduce.noname.7", come once each: they count as one that is used again.
std::string Repeated(std::string name) {
  constexpr std::string_view kCounted = ".noname.";
  const size_t at = name.find(kCounted);
  if (at != std::string::npos) name.resize(at + kCounted.size());
  return name;
}

// The state as /proc has it; '-': there is no such process.
char StateOf(int pid) {
  const std::string text = topology::ReadSmallFile(fmt::format("/proc/{}/stat", pid)).value_or("");
  const size_t name_end = text.rfind(')');  // the name may hold anything
  return name_end == std::string::npos || name_end + 2 >= text.size() ? '-' : text[name_end + 2];
}

}  // namespace

Duration StallInspector::AgeOf(const ProcessSet::Wait& wait, Time now) const {
  // Nobody waits for one that timed out or stands in for a rank that has joined.
  if (wait.op == nullptr || wait.op->detached.load(std::memory_order_relaxed)) return {};
  const Duration since_progress = now - progress_;
  const int64_t age = context_.recorder->AgeOf(*wait.op);
  if (age < 0) return since_progress;
  // Others may work while this rank joins, and a large operation waits for larger ones: not while something moves.
  const bool patient = wait.stage != WaitStage::kAsked || wait.op->work.op == OpKind::kJoin;
  return patient ? std::min(Duration(age), since_progress) : Duration(age);
}

Duration StallInspector::LongestWait(Time now) const {
  Duration longest{};
  for (const ProcessSet* set : *context_.sets) {
    if (!set->busy()) continue;
    for (const ProcessSet::Wait& wait : set->CollectWaits()) longest = std::max(longest, AgeOf(wait, now));
  }
  return longest;
}

bool StallInspector::IsBlocked(Time now) const {
  if (scheduler_->IsCallerWaiting(now)) return true;
  for (const ProcessSet* set : *context_.sets) {
    for (const ProcessSet::Wait& wait : set->CollectWaits()) {
      if (wait.op != nullptr && wait.op->done != nullptr) return true;
    }
  }
  return false;
}

wire::StatusReply StallInspector::Describe(uint64_t number) const {
  const Time now = context_.world->loop->Now();
  wire::StatusReply reply;
  reply.number = number;
  reply.blocked = IsBlocked(now);
  std::set<std::pair<int, std::string>> done;
  for (const trace::FlightGlimpse& glimpse : context_.recorder->Recent(SIZE_MAX)) {
    const auto last = [&](int64_t ago) { return wire::Last{glimpse.set, glimpse.name, glimpse.op, ago / 1000000}; };
    if (reply.submitted.ago_ms < 0) reply.submitted = last(glimpse.submitted_ns_ago);
    if (glimpse.ended_ns_ago < 0) continue;
    const wire::Last ended = last(glimpse.ended_ns_ago);
    if (reply.finished.ago_ms < 0 || ended.ago_ms < reply.finished.ago_ms) reply.finished = ended;
    if (glimpse.state == trace::FlightState::kDone) done.emplace(glimpse.set, Repeated(glimpse.name));
  }
  for (const ProcessSet* set : *context_.sets) {
    if (!set->included()) continue;
    for (ProcessSet::Wait& wait : set->CollectWaits()) {
      wire::Waiting& waiting = reply.waiting.emplace_back();
      waiting.set = set->id();
      waiting.request.name = Shown(wait.op != nullptr ? wait.op->request.name : wait.name);
      if (wait.op != nullptr) {
        waiting.request.signature = wait.op->request.signature;
      } else if (wait.signature != nullptr) {
        waiting.request.signature = *wait.signature;
      } else {
        waiting.request.signature.op = OpKind::kJoin;
      }
      if (waiting.request.signature.op != OpKind::kRemoveProcessSet) waiting.request.signature.numbers.clear();
      waiting.stage = wait.stage;
      waiting.waited_ms = Milliseconds(AgeOf(wait, now));
      waiting.missing_count = static_cast<int32_t>(wait.missing.size());
      wait.missing.resize(std::min(wait.missing.size(), wire::StatusReply::kMaxMissing));
      waiting.missing.assign(wait.missing.begin(), wait.missing.end());
    }
  }
  std::ranges::stable_sort(reply.waiting, std::greater<>(), &wire::Waiting::waited_ms);
  if (reply.waiting.size() > wire::StatusReply::kMaxWaiting) {
    reply.more = static_cast<int32_t>(reply.waiting.size() - wire::StatusReply::kMaxWaiting);
    reply.waiting.resize(wire::StatusReply::kMaxWaiting);
  }
  for (wire::Waiting& waiting : reply.waiting) {
    waiting.before =
        done.contains({waiting.set, Repeated(Shown(waiting.request.name, trace::FlightRecorder::kNameBytes))});
  }
  return reply;
}

bool StallInspector::Ask(Rank rank, const Operation& op, Time now) {
  Answer& answer = answers_[rank];
  // What was heard before this one timed out may be of before it was submitted there.
  const bool answered = answer.heard || now - answer.asked >= kAnswerTime;
  if (answer.asked == Time{} || (answer.asked < op.deadline && answered)) {
    answer = {now, false, {}};
    context_.control->Send(rank, wire::Encode(wire::StatusQuery{kForTimeout, false}));
  }
  return !answer.heard && now - answer.asked < kAnswerTime;
}

const wire::Waiting* StallInspector::Heard(Rank rank, const Operation& op) const {
  for (const wire::Waiting& waiting : answers_.at(rank).reply.waiting) {
    if (waiting.stage == WaitStage::kHeld) continue;  // it is missing there itself
    if (waiting.set == op.set->id() && waiting.request.name == Shown(op.request.name)) return &waiting;
  }
  return nullptr;
}

std::optional<std::vector<Rank>> StallInspector::AskForMissing(const Operation& op, std::vector<Rank> missing,
                                                               Time now) {
  if (!missing.empty()) {
    if (!op.set->relays_marks() || op.state != Operation::State::kAnnounced) return missing;
    const auto asked = std::ranges::count_if(missing, [&](Rank rank) { return Ask(rank, op, now); });
    if (asked > 0) return std::nullopt;
    std::erase_if(missing, [&](Rank rank) { return Heard(rank, op) != nullptr; });
    // Who has it all knows nothing of it any more, as little as who has not submitted it. Where one does not even
    // answer, the marks of others lie with that one.
    std::vector<Rank> silent;
    std::ranges::copy_if(missing, std::back_inserter(silent), [&](Rank rank) { return !answers_.at(rank).heard; });
    return silent.empty() ? missing : silent;
  }
  const Rank sequencer = op.set->ranks()[0];
  if (op.state != Operation::State::kSent || sequencer == context_.world->layout.rank) return missing;
  if (Ask(sequencer, op, now)) return std::nullopt;
  if (const wire::Waiting* heard = Heard(sequencer, op)) missing.assign(heard->missing.begin(), heard->missing.end());
  return missing;
}

char StallInspector::ProcessState(Rank rank) const {
  const World& world = *context_.world;
  if (world.layout.host_of[rank] != world.layout.host_of[world.layout.rank]) return 0;
  return StateOf(world.ranks[rank].pid);
}

}  // namespace hvd::engine
