// SPDX-License-Identifier: Apache-2.0
// What an elastic job does from the loss of a member until the next view runs.
#include <signal.h>

#include <algorithm>
#include <set>

#include "hvd/launch/elastic/job.h"
#include "hvd/launch/run/processes.h"
#include "hvd/rendezvous/store.h"

namespace hvd::launch::elastic {
namespace {

constexpr Duration kInspection = std::chrono::milliseconds(20);
// A member that is stopped for so long while others are ready will not run by itself.
constexpr Duration kStopped = std::chrono::milliseconds(500);
constexpr Duration kNextWord = std::chrono::seconds(10);
// horovod.common.membership has Python print the stacks of its threads at this signal.
const int kPrintStack = SIGRTMAX - 2;
constexpr Duration kStackPrinted = std::chrono::seconds(1);

double InSeconds(Duration duration) { return std::chrono::duration<double>(duration).count(); }

}  // namespace

void ElasticJob::SendView(const View& view) {
  Collect(view);
  news_of_view_ = 0;
  view_ran_.reset();
  (void)place_->Delete(rendezvous::LostKey(view.generation - 1));
  Disarm({Own::kSayWait, {}, 0, {}});
  const std::string what = Describe(changes_);
  const std::string reason = what.empty() ? "the job begins" : what;
  // Rank 0 has been in the job for as long as anybody.
  const std::string& sets = processes_[static_cast<size_t>(view.members.front().process)].sets;
  for (const ViewMember& member : view.members) {
    Process& process = processes_[static_cast<size_t>(member.process)];
    process.slot = member.slot;
    process.slot.process = member.process;
    process.generation = view.generation;
    output_->Rename(process.slot, process.pid);
    Set(ViewKey(member.process, process.request), ViewText(view, member.slot, news_, sets, reason));
  }
  // A rank that is alone meets nobody.
  if (view.members.size() == 1) OnMet(view.generation);
}

void ElasticJob::Collect(const View& view) {
  const auto add = [&](int number, Change::Kind kind) {
    const Process& process = processes_[static_cast<size_t>(number)];
    changes_.push_back({kind, process.slot.rank, process.pid, process.slot.host, process.ending});
  };
  rolled_back_ |= view.rolled_back;
  if (view.generation == 1) return;
  for (const int number : view.lost) {
    const bool silent = processes_[static_cast<size_t>(number)].silent;
    add(number, silent ? Change::Kind::kSilent : Change::Kind::kLost);
  }
  for (const int number : view.parked) add(number, Change::Kind::kLate);
  for (const int number : view.removed) add(number, Change::Kind::kRemoved);
  for (const ViewMember& member : view.members) {
    if (std::ranges::count(view.added, member.process) == 0) continue;
    processes_[static_cast<size_t>(member.process)].slot.rank = member.slot.rank;
    add(member.process, Change::Kind::kAdded);
  }
}

void ElasticJob::OnMet(int generation) {
  const View& view = membership_.view();
  if (generation != view.generation || membership_.phase() != Membership::Phase::kStable) return;
  view_ran_ = loop_->Now();
  const int size = static_cast<int>(view.members.size());
  if (generation == 1 && settings_.job.says) settings_.job.says("ranks up: all have called hvd.init()");
  if (!changes_.empty()) {
    const double seconds = InSeconds(loop_->Now() - began_.value_or(loop_->Now()));
    settings_.job.warns(RecoveryLine(changes_, size, view.commit, rolled_back_, seconds));
    const bool loss = std::ranges::any_of(changes_, [](const Change& change) {
      return change.kind != Change::Kind::kAdded && change.kind != Change::Kind::kRemoved;
    });
    totals_.recoveries += loss ? 1 : 0;
    totals_.lost_s += loss ? seconds : 0;
    totals_.rollbacks += rolled_back_ ? 1 : 0;
  }
  changes_.clear();
  rolled_back_ = false;
  began_.reset();
}

void ElasticJob::TellWhoIsLost() {
  std::string ranks;
  for (const ViewMember& member : membership_.view().members) {
    if (!processes_[static_cast<size_t>(member.process)].ending.over()) continue;
    ranks += fmt::format("{}{}", ranks.empty() ? "" : " ", member.slot.rank);
  }
  if (!ranks.empty()) place_->TellWhoIsLost(membership_.view().generation, ranks);
}

void ElasticJob::SendLeave(int number) {
  Set(ViewKey(number, processes_[static_cast<size_t>(number)].request), LeaveText());
  SeeToEnd(number);
}

void ElasticJob::SeeToEnd(int number) {
  Arm({Own::kLeaving, {}, number, {}}, Seconds(settings_.job.grace_s), [this, number] { local_.Kill(number); });
}

void ElasticJob::KillParked(int number) {
  const Process& process = processes_[static_cast<size_t>(number)];
  settings_.job.warns(fmt::format(
      "pid {} (slot {} of {}) was not ready in time and has not come back for {:.0f} s (--elastic-timeout), so it is "
      "killed; its Python stack follows",
      process.pid, process.name.index, process.name.host, InSeconds(settings_.elastic_timeout)));
  ::kill(process.pid, kPrintStack);
  Arm({Own::kLeaving, {}, number, {}}, kStackPrinted, [this, number] { local_.Kill(number); });
}

void ElasticJob::Inspect() {
  if (membership_.phase() != Membership::Phase::kRevoked || phase_ != Phase::kRunning) return;
  const bool others_wait = membership_.Ready() > 0;
  for (const int number : membership_.Awaited()) {
    Process& process = processes_[static_cast<size_t>(number)];
    if (IsDumpingCore(process.pid) && !std::exchange(process.reported, true)) {
      process.ending.signal = SIGABRT;  // until the kernel says which one it was
      Feed({.kind = Event::Kind::kEnded, .process = number, .by_itself = false});
      process.ending = {};
      continue;
    }
    if (!others_wait || loop_->Now() - began_.value_or(loop_->Now()) < kStopped || !IsStopped(process.pid)) continue;
    process.silent = true;
    local_.Kill(number);
  }
  InspectSoon();
}

void ElasticJob::InspectSoon() {
  Arm({Own::kInspect, {}, 0, {}}, kInspection, [this] { Inspect(); });
}

void ElasticJob::SayWhoIsMissing() {
  const auto phase = membership_.phase();
  if (phase_ != Phase::kRunning || (phase != Membership::Phase::kStarting && phase != Membership::Phase::kWaiting))
    return;
  std::string missing;
  std::set<SlotName> seen;
  for (auto process = processes_.rbegin(); process != processes_.rend() && seen.size() < 4; ++process) {
    if (!seen.insert(process->name).second || (IsAlive(*process) && process->request > 0)) continue;
    const auto& [host, index] = process->name;
    missing += IsAlive(*process)
                   ? fmt::format("; slot {} of {}: pid {} has not called hvd.init()", index, host, process->pid)
                   : fmt::format("; slot {} of {}: {}, and is to be started again", index, host,
                                 launch::Describe(process->ending));
  }
  if (const int slots = membership_.Slots(); slots < settings_.rules.min_np) {
    missing += fmt::format("; the hosts have {} {}", slots, slots == 1 ? "slot" : "slots");
  }
  const double left = InSeconds(settings_.elastic_timeout - (loop_->Now() - waiting_since_));
  settings_.job.warns(
      fmt::format("{} of at least {} ranks (--min-np) are ready{}; the job ends in {:.0f} s "
                  "(--elastic-timeout)",
                  membership_.Ready(), settings_.rules.min_np, missing, std::max(left, 0.0)));
  Arm({Own::kSayWait, {}, 0, {}}, kNextWord, [this] { SayWhoIsMissing(); });
}

}  // namespace hvd::launch::elastic
