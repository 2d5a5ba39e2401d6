// SPDX-License-Identifier: Apache-2.0
#include "hvd/engine/stall_inspector.h"

#include <fmt/format.h>

#include <algorithm>
#include <utility>

#include "hvd/base/log.h"
#include "hvd/engine/engine.h"

namespace hvd::engine {
namespace {

// An engine answers within milliseconds, unless its host is overloaded.
constexpr Duration kPatience = std::chrono::seconds(2);
// How soon a silent process of this host is looked at.
constexpr Duration kFirstLook = std::chrono::milliseconds(300);
constexpr double kShortestLimit = 0.1;

int64_t Milliseconds(Duration duration) {
  return std::chrono::duration_cast<std::chrono::milliseconds>(duration).count();
}

}  // namespace

StallInspector::StallInspector(Engine* engine)
    : engine_(engine),
      off_(engine->options_.config.stall_check_disable || engine->world_.layout.size == 1),
      limit_(Seconds(std::max(engine->options_.config.stall_check_s, kShortestLimit))) {
  const auto& config = engine_->options_.config;
  if (off_ || config.stall_shutdown_s <= 0) return;
  if (config.stall_shutdown_s >= config.stall_check_s) {
    stop_after_ = Seconds(config.stall_shutdown_s);
  } else if (engine_->world_.layout.rank == 0) {
    log::Warning(
        "HOROVOD_STALL_SHUTDOWN_TIME_SECONDS={:g} is ignored: it must be at least "
        "HOROVOD_STALL_CHECK_TIME_SECONDS={:g}",
        config.stall_shutdown_s, config.stall_check_s);
  }
}

Time StallInspector::Check(Time now) {
  if (off_) return Time::max();
  if (engine_->phase_.load(std::memory_order_relaxed) != Engine::Phase::kWorking) {
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
  const uint64_t operations = engine_->counters().operations.load(std::memory_order_relaxed);
  if (operations != operations_seen_ || progress_ == Time{}) {
    operations_seen_ = operations;
    progress_ = now;
  }
  const bool waits = std::ranges::any_of(engine_->sets_, [](const ProcessSet* set) { return set->busy(); });
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
    return engine_->left_.contains(other) || state == 'T' || state == 't' || state == 'Z' || state == '-';
  };
  while (rank < engine_->world_.layout.rank && deaf(rank)) ++rank;
  if (rank >= engine_->world_.layout.rank) {
    told_ = -1;
    OnStalled(engine_->world_.layout.rank, {});
    return;
  }
  told_ = rank;
  told_at_ = now;
  engine_->SendControl(rank, wire::Encode(wire::Stalled{Milliseconds(LongestWait(now))}));
}

void StallInspector::OnStalled(Rank from, const wire::Stalled&) {
  if (off_ || engine_->phase_.load(std::memory_order_relaxed) != Engine::Phase::kWorking) return;
  const Time now = engine_->world_.loop->Now();
  if (!round_) {
    if (ended_ == Time{} || now >= ended_ + limit_ / 4) return Begin(now);
    // It began to wait a little later than those that the last round was about.
    again_ = std::min(again_, ended_ + limit_ / 4);
    active_.store(true, std::memory_order_relaxed);
  }
  // Its message and the inquiry of a round may have crossed. It must not turn to the next rank.
  if (from != engine_->world_.layout.rank) engine_->SendControl(from, wire::Encode(wire::Inquiry{rounds_, false}));
}

void StallInspector::Begin(Time now) {
  again_ = Time::max();
  round_ = Round{++rounds_, now + kPatience, now + kFirstLook, {}};
  active_.store(true, std::memory_order_relaxed);
  const wire::Bytes inquiry = wire::Encode(wire::Inquiry{rounds_, true});
  const Layout& layout = engine_->world_.layout;
  for (Rank rank = 0; rank < layout.size; ++rank) {
    if (rank != layout.rank && !engine_->left_.contains(rank)) engine_->SendControl(rank, inquiry);
  }
  DumpFlight();
  round_->accounts.emplace(layout.rank, Describe(rounds_));
}

void StallInspector::OnInquiry(Rank from, const wire::Inquiry& inquiry) {
  if (engine_->phase_.load(std::memory_order_relaxed) != Engine::Phase::kWorking) return;
  if (inquiry.number != kForTimeout) told_ = -1;
  if (inquiry.dump) DumpFlight();
  engine_->SendControl(from, wire::Encode(Describe(inquiry.number)));
}

void StallInspector::OnAccount(Rank from, wire::Account account) {
  if (account.number == kForTimeout) {
    const auto asked = answers_.find(from);
    if (asked == answers_.end()) return;
    asked->second.heard = true;
    asked->second.account = std::move(account);
    return;
  }
  if (!round_ || account.number != round_->number || from == engine_->world_.layout.rank) return;
  round_->accounts.insert_or_assign(from, std::move(account));
  if (Complete()) End(engine_->world_.loop->Now());
}

bool StallInspector::Complete() const {
  const Layout& layout = engine_->world_.layout;
  for (Rank rank = 0; rank < layout.size; ++rank) {
    if (round_->accounts.contains(rank) || engine_->left_.contains(rank)) continue;
    const char state = ProcessState(rank);
    if (state != 'T' && state != 't' && state != 'Z' && state != '-') return false;
  }
  return true;
}

void StallInspector::End(Time now) {
  const World& world = engine_->world_;
  std::vector<Witness> witnesses;
  for (Rank rank = 0; rank < world.layout.size; ++rank) {
    if (engine_->left_.contains(rank)) continue;  // what lacks it has failed, or is about to
    Witness& witness = witnesses.emplace_back();
    witness.rank = rank;
    witness.host = world.ranks[rank].hostname;
    witness.pid = world.ranks[rank].pid;
    const auto found = round_->accounts.find(rank);
    if (found != round_->accounts.end()) {
      witness.account = std::move(found->second);
    } else {
      witness.process_state = ProcessState(rank);
    }
  }
  round_.reset();
  ended_ = now;
  const MembersOf members = [this](int set) {
    const ProcessSet* found = engine_->sets_.Find(set);
    return found == nullptr ? nullptr : &found->ranks();
  };
  const auto report = DescribeStall(witnesses, members, std::chrono::duration<double>(limit_).count());
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
  engine_->recorder_.counters().stalls.Add(1);
  if (fresh) {
    log::Warning("{}", report.text);
  } else {
    log::Warning("Still stalled after {:.0f} s, as reported before: {}", report.waited_s, report.brief);
  }
  printed_ = now;
}

void StallInspector::Stop(const StallReport& report) {
  const Rank rank = report.at_fault[0];
  engine_->Revoke({transport::Cause::kStall, rank, 0, engine_->world_.ranks[rank].pid},
                  fmt::format("{}, for {:.0f} s (HOROVOD_STALL_SHUTDOWN_TIME_SECONDS)", report.brief, report.waited_s));
}

void StallInspector::DumpFlight() const {
  for (const auto& set : engine_->sets_) set->RecordMissing();
  // As horovod.flight knows them.
  engine_->recorder_.Dump(IsBlocked(engine_->world_.loop->Now()) ? "stall" : "stall: in its own code");
}

}  // namespace hvd::engine
