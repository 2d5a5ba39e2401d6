// SPDX-License-Identifier: Apache-2.0
#include "hvd/engine/stall/stall_inspector.h"

#include <fmt/format.h>

#include <algorithm>
#include <utility>

#include "hvd/base/log.h"
#include "hvd/wire/control.h"

namespace hvd::engine {
namespace {

// An engine answers within milliseconds, unless its host is overloaded.
constexpr Duration kPatience = std::chrono::seconds(2);
// How soon a silent process of this host is looked at.
constexpr Duration kFirstLook = std::chrono::milliseconds(300);
constexpr double kShortestLimit = 0.1;

}  // namespace

StallInspector::StallInspector(const EngineContext& context, const Scheduler* scheduler)
    : context_(context),
      scheduler_(scheduler),
      off_(context.config->stall_check_disable || context.world->layout.size == 1),
      limit_(Seconds(std::max(context.config->stall_check_s, kShortestLimit))) {
  const auto& config = *context_.config;
  if (off_ || config.stall_shutdown_s <= 0) return;
  if (config.stall_shutdown_s >= config.stall_check_s) {
    stop_after_ = Seconds(config.stall_shutdown_s);
  } else if (context_.world->layout.rank == 0) {
    log::Warning(
        "HOROVOD_STALL_SHUTDOWN_TIME_SECONDS={:g} is ignored: it must be at least "
        "HOROVOD_STALL_CHECK_TIME_SECONDS={:g}",
        config.stall_shutdown_s, config.stall_check_s);
  }
}

Time StallInspector::Check(Time now) {
  if (off_) return Time::max();
  if (!context_.membership->working()) {
    round_.reset();
    again_ = Time::max();
  }
  if (round_ && (now >= round_->until || (now >= round_->look && Complete()))) End(now);
  if (!round_ && now >= again_) Begin(now);
  Time next = std::min(again_, Watch(now));
  if (round_) next = std::min(next, now < round_->look ? round_->look : round_->until);
  active_.store(round_.has_value() || again_ != Time::max(), std::memory_order_relaxed);
  return next;
}

Time StallInspector::Watch(Time now) {
  const uint64_t operations = context_.recorder->counters().operations.load(std::memory_order_relaxed);
  if (operations != operations_seen_ || progress_ == Time{}) {
    operations_seen_ = operations;
    progress_ = now;
  }
  const bool waits = std::ranges::any_of(*context_.sets, [](const ProcessSet* set) { return set->busy(); });
  if (!waits) {
    next_look_ = Time::max();
    told_ = -1;
    return next_look_;
  }
  if (told_ >= 0 && now >= told_at_ + kPatience) Tell(told_ + 1, now);
  if (next_look_ == Time::max()) next_look_ = now + limit_;
  if (now >= next_look_) {
    const Duration waited = LongestWait(now);
    next_look_ = now + (waited < limit_ ? limit_ - waited : limit_);
    if (waited < stop_after_) next_look_ = std::min(next_look_, now + (stop_after_ - waited));
    if (waited >= limit_ && told_ < 0 && !round_) Tell(0, now);
  }
  return told_ >= 0 ? std::min(next_look_, told_at_ + kPatience) : next_look_;
}

void StallInspector::Tell(Rank rank, Time now) {
  const auto deaf = [&](Rank other) {
    const char state = ProcessState(other);
    return context_.membership->has_left(other) || state == 'T' || state == 't' || state == 'Z' || state == '-';
  };
  while (rank < context_.world->layout.rank && deaf(rank)) ++rank;
  if (rank >= context_.world->layout.rank) {
    told_ = -1;
    OnStalled(context_.world->layout.rank, {});
    return;
  }
  told_ = rank;
  told_at_ = now;
  context_.control->Send(rank, wire::Encode(wire::Stalled{Milliseconds(LongestWait(now))}));
}

void StallInspector::OnStalled(Rank from, const wire::Stalled&) {
  if (off_ || !context_.membership->working()) return;
  const Time now = context_.world->loop->Now();
  if (!round_) {
    if (ended_ == Time{} || now >= ended_ + limit_ / 4) return Begin(now);
    // It began to wait a little later than those that the last round was about.
    again_ = std::min(again_, ended_ + limit_ / 4);
    active_.store(true, std::memory_order_relaxed);
  }
  // Its message and the query of a round may have crossed. It must not turn to the next rank.
  if (from != context_.world->layout.rank)
    context_.control->Send(from, wire::Encode(wire::StatusQuery{rounds_, false}));
}

void StallInspector::Begin(Time now) {
  again_ = Time::max();
  round_ = Round{++rounds_, now + kPatience, now + kFirstLook, {}};
  active_.store(true, std::memory_order_relaxed);
  const wire::Bytes query = wire::Encode(wire::StatusQuery{rounds_, true});
  const Layout& layout = context_.world->layout;
  for (Rank rank = 0; rank < layout.size; ++rank) {
    if (rank != layout.rank && !context_.membership->has_left(rank)) context_.control->Send(rank, query);
  }
  DumpFlight();
  round_->replies.emplace(layout.rank, Describe(rounds_));
}

void StallInspector::OnStatusQuery(Rank from, const wire::StatusQuery& query) {
  if (!context_.membership->working()) return;
  if (query.number != kForTimeout) told_ = -1;
  if (query.dump) DumpFlight();
  context_.control->Send(from, wire::Encode(Describe(query.number)));
}

void StallInspector::OnStatusReply(Rank from, wire::StatusReply reply) {
  if (reply.number == kForTimeout) {
    const auto asked = answers_.find(from);
    if (asked == answers_.end()) return;
    asked->second.heard = true;
    asked->second.reply = std::move(reply);
    return;
  }
  if (!round_ || reply.number != round_->number || from == context_.world->layout.rank) return;
  round_->replies.insert_or_assign(from, std::move(reply));
  if (Complete()) End(context_.world->loop->Now());
}

bool StallInspector::Complete() const {
  const Layout& layout = context_.world->layout;
  for (Rank rank = 0; rank < layout.size; ++rank) {
    if (round_->replies.contains(rank) || context_.membership->has_left(rank)) continue;
    const char state = ProcessState(rank);
    if (state != 'T' && state != 't' && state != 'Z' && state != '-') return false;
  }
  return true;
}

void StallInspector::End(Time now) {
  const World& world = *context_.world;
  std::vector<RankObservation> observations;
  for (Rank rank = 0; rank < world.layout.size; ++rank) {
    if (context_.membership->has_left(rank)) continue;  // what lacks it has failed, or is about to
    RankObservation& observation = observations.emplace_back();
    observation.rank = rank;
    observation.host = world.ranks[rank].hostname;
    observation.pid = world.ranks[rank].pid;
    const auto found = round_->replies.find(rank);
    if (found != round_->replies.end()) {
      observation.reply = std::move(found->second);
    } else {
      observation.process_state = ProcessState(rank);
    }
  }
  round_.reset();
  ended_ = now;
  const MembersOf members = [this](int set) {
    const ProcessSet* found = context_.sets->Find(set);
    return found == nullptr ? nullptr : &found->ranks();
  };
  const auto report = DescribeStall(observations, members, std::chrono::duration<double>(limit_).count());
  if (!report) return;
  Print(*report, now);
  if (stop_after_ > Duration::zero() && Seconds(report->waited_s) >= stop_after_ - limit_ / 50) Stop(*report);
}

void StallInspector::Print(const StallReport& report, Time now) {
  // What waits longest had waited for `limit_` already when the last report came, or else it began to wait after that.
  const bool goes_on = printed_ != Time{} && Seconds(report.waited_s) >= now - printed_ + limit_ / 2;
  if (!goes_on) printed_keys_.clear();
  const bool fresh = printed_keys_.insert(report.key).second;
  if (!fresh && now < printed_ + limit_ * 9 / 10) return;
  context_.recorder->counters().stalls.Add(1);
  if (fresh) {
    log::Warning("{}", report.text);
  } else {
    log::Warning("Still stalled after {:.0f} s, as reported before: {}", report.waited_s, report.brief);
  }
  printed_ = now;
}

void StallInspector::Stop(const StallReport& report) {
  const Rank rank = report.at_fault[0];
  context_.membership->Revoke(
      {transport::Cause::kStall, rank, report.undecided, context_.world->ranks[rank].pid},
      fmt::format("{}, for {:.0f} s (HOROVOD_STALL_SHUTDOWN_TIME_SECONDS)", report.brief, report.waited_s));
}

void StallInspector::DumpFlight() const {
  for (const auto& set : *context_.sets) set->RecordMissing();
  // As horovod.flight knows them.
  context_.recorder->Dump(IsBlocked(context_.world->loop->Now()) ? "stall" : "stall: in its own code");
}

}  // namespace hvd::engine
