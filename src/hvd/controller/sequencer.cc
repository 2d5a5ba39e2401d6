// SPDX-License-Identifier: Apache-2.0
#include "hvd/controller/sequencer.h"

#include <fmt/format.h>

#include <algorithm>
#include <atomic>
#include <iterator>
#include <optional>
#include <set>
#include <unordered_set>
#include <utility>

#include "hvd/base/log.h"
#include "hvd/controller/agreement_check.h"
#include "hvd/controller/describe.h"
#include "hvd/controller/fusion.h"
#include "hvd/controller/group_book.h"
#include "hvd/controller/request_table.h"

namespace hvd::controller {
namespace {

// 2^44 plans per process set last 200 days at a million a second, with the cache off.
constexpr int kUidCounterBits = 44;

void WarnOfEvictionOnce(int64_t capacity) {
  // Once per job, not per process set.
  static std::atomic<bool> warned{false};
  if (warned.exchange(true, std::memory_order_relaxed)) return;
  log::Warning(
      "The plan cache is full ({} names) and names are being forgotten, which makes their next use slower. If your "
      "program uses more names than that again and again, set HOROVOD_CACHE_CAPACITY to a larger number.",
      capacity);
}

LogEntry Define(const Plan& plan) {
  LogEntry entry;
  entry.kind = LogEntry::Kind::kDefine;
  entry.plan = plan;
  return entry;
}

LogEntry Forget(uint64_t uid) {
  LogEntry entry;
  entry.kind = LogEntry::Kind::kForget;
  entry.uid = uid;
  return entry;
}

}  // namespace

struct Sequencer::State {
  // Something that became ready: an execution (plan and execution set) or another entry.
  struct Item {
    PlanPtr plan;
    Execution execution;
    LogEntry entry;
  };

  explicit State(SequencerOptions o)
      : options(std::move(o)),
        table(options.members.size(), options.cache_capacity),
        joined(options.members.size()),
        asked_by(options.members.size()),
        groups(options.members.size()) {}

  bool IsMember(int member) const { return member >= 0 && static_cast<size_t>(member) < options.members.size(); }

  // Before the member's mark.
  void Count(const RequestRow& row, int member);
  // When the mark goes.
  void Uncount(const RequestRow& row, int member);
  // Takes all marks off.
  void Clear(RequestRow* row);
  void Contradict(RequestRow* row);
  bool IsComplete(const RequestRow& row) const;
  void Conclude(RequestRow* row);
  void Join(int member);
  PlanPtr Agree(RequestRow* row, const std::vector<Signature>& signatures);
  void FailAll(const std::string& name, std::string message);
  // Fails the group that the name belongs to, if members gave it different lengths.
  void CheckGroup(const std::string& name);

  SequencerOptions options;
  RequestTable table;
  uint64_t uids = 0;
  uint64_t now = 0;      // counts calls
  size_t asked_for = 0;  // rows with a mark
  std::vector<bool> joined;
  std::vector<size_t> asked_by;  // by member: rows with its mark
  size_t joined_count = 0;
  GroupBook groups;
  // The log since TakeLog.
  std::vector<LogEntry> defines;
  std::vector<Item> items;
  std::vector<uint64_t> forgotten;
  size_t fusible = 0;  // of the items
  int64_t fusible_bytes = 0;
};

void Sequencer::State::Count(const RequestRow& row, int member) {
  if (row.asked() == 0) ++asked_for;
  if (row.asked(member)) return;
  ++asked_by[member];
  groups.Add(row.name(), member);
}

void Sequencer::State::Uncount(const RequestRow& row, int member) {
  --asked_by[member];
  groups.Remove(row.name(), member);
}

void Sequencer::State::Clear(RequestRow* row) {
  for (size_t m = 0; m < joined.size(); ++m) {
    if (row->asked(static_cast<int>(m))) Uncount(*row, static_cast<int>(m));
  }
  row->Clear();
  --asked_for;
}

// A member wants something else under this name. Those that said ready will see kForget and ask in full; those that
// asked in full already have their requests kept.
void Sequencer::State::Contradict(RequestRow* row) {
  forgotten.push_back(row->plan()->uid);
  table.Uncache(row);
  const bool asked = row->asked() > 0;
  for (const int member : row->DropReadyMarks()) Uncount(*row, member);
  if (asked && row->asked() == 0) --asked_for;
}

bool Sequencer::State::IsComplete(const RequestRow& row) const {
  if (joined_count == 0 || row.asked() == options.members.size()) return row.asked() == options.members.size();
  for (size_t m = 0; m < joined.size(); ++m) {
    if (!joined[m] && !row.asked(static_cast<int>(m))) return false;
  }
  return true;
}

void Sequencer::State::Join(int member) {
  if (joined[member]) return;
  joined[member] = true;
  ++joined_count;
  for (RequestRow* row : table.Asked()) {
    if (IsComplete(*row)) Conclude(row);
  }
  std::vector<std::string> left;
  for (const RequestRow* row : table.Asked()) left.push_back(row->name());
  for (const std::string& name : left) CheckGroup(name);
  if (joined_count < joined.size()) return;
  joined.assign(joined.size(), false);
  joined_count = 0;
  Item item;
  item.entry.kind = LogEntry::Kind::kJoined;
  item.entry.uid = static_cast<uint64_t>(member);
  items.push_back(std::move(item));
}

// Every member has asked or joined: decide.
void Sequencer::State::Conclude(RequestRow* row) {
  const std::string name = row->name();
  const std::vector<int64_t> first_dims = FirstDimIsFree(row->op()) ? row->FirstDims() : std::vector<int64_t>();
  std::vector<Rank> asking;
  std::vector<Rank> absent;
  for (size_t m = 0; m < joined.size(); ++m) {
    (row->asked(static_cast<int>(m)) ? asking : absent).push_back(options.members[m]);
  }
  // With a cached plan the members agree already; what joined members change is looked at all the same.
  const std::vector<Signature> signatures =
      row->plan() ? std::vector<Signature>(asking.size(), row->plan()->signature) : row->TakeSignatures();
  Clear(row);
  const Proposal proposal{name, options.process_set, asking, signatures, absent, options.join_extended};
  std::optional<std::string> failure;
  if (!row->plan() || !absent.empty()) failure = FindDisagreement(proposal);
  if (!failure && !first_dims.empty()) failure = FindOverflow(proposal, first_dims);
  if (failure) {
    FailAll(name, std::move(*failure));
  } else {
    if (row->plan()) table.Touch(row);
    const PlanPtr plan = row->plan() ? row->plan() : Agree(row, signatures);
    items.push_back({plan, {plan->uid, first_dims}, {}});
    if (IsFused(plan->signature, options.fusion_threshold)) {
      ++fusible;
      fusible_bytes += InputBytes(plan->signature);
    }
  }
  table.Release(row);
}

PlanPtr Sequencer::State::Agree(RequestRow* row, const std::vector<Signature>& signatures) {
  Plan plan;
  plan.uid = (static_cast<uint64_t>(options.process_set) << kUidCounterBits) | ++uids;
  plan.name = row->name();
  plan.signature = Canonical(signatures.front());
  uint64_t evicted = 0;
  plan.cached = std::all_of(signatures.begin(), signatures.end(), Repeats) && table.MakeRoom(row->name(), &evicted);
  if (evicted != 0) {
    forgotten.push_back(evicted);
    if (table.full_grown()) WarnOfEvictionOnce(table.capacity());
  }
  auto shared = std::make_shared<const Plan>(std::move(plan));
  if (shared->cached) table.Cache(row, shared);
  defines.push_back(Define(*shared));
  return shared;
}

void Sequencer::State::FailAll(const std::string& name, std::string message) {
  Item item;
  item.entry.kind = LogEntry::Kind::kError;
  item.entry.name = name;
  item.entry.error = {Code::kFailedPrecondition, std::move(message)};
  items.push_back(std::move(item));
}

void Sequencer::State::CheckGroup(const std::string& name) {
  const auto lengths = groups.FindMismatch(name, joined);
  if (!lengths) return;
  const std::string group(ParseGroupName(name)->group);
  std::vector<Rank> ranks;
  std::vector<int> given;
  for (size_t m = 0; m < lengths->size(); ++m) {
    if ((*lengths)[m] == 0) continue;
    ranks.push_back(options.members[m]);
    given.push_back((*lengths)[m]);
  }
  const auto odd = std::find_if(given.begin(), given.end(), [&](int length) { return length != given[0]; });
  const std::string text = fmt::format(
      "Mismatched group lengths: One rank gave a group of {}, but another rank gave a group of {}: {}, "
      "for {} in process set {}.",
      given[0], *odd, DescribeValues(ranks, [&](size_t i) { return fmt::to_string(given[i]); }), Quote(group),
      options.process_set);
  for (const int length : std::set<int>(given.begin(), given.end())) {
    for (int number = 1; number <= length; ++number) {
      RequestRow* row = table.ForName(MakeGroupName(group, number, length));
      Clear(row);
      FailAll(row->name(), text);
      table.Release(row);
    }
  }
}

Sequencer::Sequencer(SequencerOptions options) : state_(std::make_unique<State>(std::move(options))) {}
Sequencer::~Sequencer() = default;

void Sequencer::OnRequest(int member, Request request) {
  if (!state_->IsMember(member)) return;
  if (request.signature.op == OpKind::kJoin) return state_->Join(member);
  RequestRow* row = state_->table.ForName(request.name);
  if (row->plan() && !Fits(*row->plan(), request.signature)) state_->Contradict(row);
  state_->Count(*row, member);
  row->MarkRequest(member, std::move(request.signature), ++state_->now);
  state_->IsComplete(*row) ? state_->Conclude(row) : state_->CheckGroup(row->name());
}

void Sequencer::OnReady(int member, uint64_t uid, int64_t first_dim) {
  if (!state_->IsMember(member)) return;
  RequestRow* row = state_->table.ForUid(uid);
  if (row == nullptr) return;
  state_->Count(*row, member);
  row->MarkReady(member, first_dim, ++state_->now);
  state_->IsComplete(*row) ? state_->Conclude(row) : state_->CheckGroup(row->name());
}

bool Sequencer::HasOnlySmall(int64_t bytes) const {
  const State& s = *state_;
  return !s.items.empty() && s.fusible == s.items.size() && s.fusible_bytes <= bytes && s.defines.empty() &&
         s.forgotten.empty();
}

// Order within one batch: forgotten plans that the batch does not execute, new plans, executions and errors by
// readiness, forgotten plans that it does execute. So a fused execution may stand before the place where one of its
// plans was agreed, and no plan is used outside its life.
std::vector<LogEntry> Sequencer::TakeLog() {
  State& s = *state_;
  if (s.items.empty() && s.forgotten.empty()) return {};
  std::vector<PlanPtr> plans;
  std::unordered_set<uint64_t> used;
  for (const State::Item& item : s.items) {
    plans.push_back(item.plan);
    if (item.plan) used.insert(item.plan->uid);
  }
  const auto late =
      std::stable_partition(s.forgotten.begin(), s.forgotten.end(), [&](uint64_t uid) { return !used.contains(uid); });
  std::vector<LogEntry> log;
  std::transform(s.forgotten.begin(), late, std::back_inserter(log), Forget);
  std::move(s.defines.begin(), s.defines.end(), std::back_inserter(log));
  for (const std::vector<size_t>& group : Fuse(plans, s.options.fusion_threshold)) {
    if (!s.items[group[0]].plan) {
      log.push_back(std::move(s.items[group[0]].entry));
      continue;
    }
    LogEntry& entry = log.emplace_back();
    entry.kind = LogEntry::Kind::kExecute;
    for (const size_t i : group) entry.executions.push_back(std::move(s.items[i].execution));
  }
  std::transform(late, s.forgotten.end(), std::back_inserter(log), Forget);
  s.defines.clear();
  s.items.clear();
  s.forgotten.clear();
  s.fusible = 0;
  s.fusible_bytes = 0;
  return log;
}

std::vector<Sequencer::Waiting> Sequencer::Pending() const {
  const State& s = *state_;
  std::vector<Waiting> pending;
  if (s.asked_for > 0) {  // spares the walk over the cache
    for (const RequestRow* row : state_->table.Asked()) {
      Waiting& waiting = pending.emplace_back(Waiting{row->name(), row->signature(), row->Missing()});
      std::erase_if(waiting.missing, [&](int member) { return s.joined[member]; });
    }
  }
  if (s.joined_count > 0) {
    Waiting& waiting = pending.emplace_back(Waiting{std::string(kJoinName), nullptr, {}});
    for (size_t m = 0; m < s.joined.size(); ++m) {
      if (!s.joined[m]) waiting.missing.push_back(static_cast<int>(m));
    }
  }
  return pending;
}

std::vector<int> Sequencer::Awaited() const {
  std::vector<int> awaited;
  for (size_t m = 0; m < state_->joined.size(); ++m) {
    const bool lacks = state_->asked_by[m] < state_->asked_for || state_->joined_count > 0;
    if (lacks && !state_->joined[m]) awaited.push_back(static_cast<int>(m));
  }
  return awaited;
}

void Sequencer::SetFusionThreshold(int64_t bytes) { state_->options.fusion_threshold = bytes; }

bool Sequencer::idle() const { return state_->asked_for == 0 && state_->joined_count == 0; }

}  // namespace hvd::controller
