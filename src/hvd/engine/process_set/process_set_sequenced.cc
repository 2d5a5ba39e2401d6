// SPDX-License-Identifier: Apache-2.0
// Agreement by the sequencer: messages to it, and the log; see process_set.h.
#include <algorithm>
#include <iterator>
#include <utility>

#include "hvd/comm/adasum.h"
#include "hvd/engine/process_set/process_set.h"
#include "hvd/wire/control.h"

namespace hvd::engine {

using controller::LogEntry;
using State = Operation::State;

namespace {

// While so many entries of at most so many bytes are on their way, small operations that become ready wait for each
// other, and share an entry when one of the former is over. So a burst costs as many entries as it lasts round trips,
// and an operation by itself never waits.
constexpr ptrdiff_t kEntriesInFlight = 2;
constexpr int64_t kSmallBytes = 64 << 10;

}  // namespace

void ProcessSet::Tell(Operation* op) {
  const bool first = op->state == State::kSubmitted;  // else a hit was counted when it was announced or told
  op->state = State::kSent;
  if (sequencer_here() && first) op->last = options_.ranks[0];
  options_.recorder->Sent(*op);
  stages_.sent.emplace(op->request.name, op);
  const controller::PlanPtr plan = book_.FindByName(op->request.name);
  const bool known = plan != nullptr && controller::Fits(*plan, op->request.signature);
  op->uid = known ? plan->uid : 0;
  const int64_t first_dim = controller::FirstDim(op->request.signature);
  if (!known) options_.recorder->counters().requests.Add(1);
  if (known && first) options_.recorder->counters().cache_hits.Add(1);
  if (sequencer_here()) {
    known ? sequencer_->OnReady(0, op->uid, first_dim) : sequencer_->OnRequest(0, op->request);
    log_dirty_ = true;
  } else if (known) {
    options_.host->SendControl(options_.ranks[0], wire::EncodeReady({options_.serial, op->uid, first_dim}));
  } else {
    options_.host->SendControl(options_.ranks[0], wire::Encode(wire::RequestMessage{options_.serial, op->request}));
  }
}

void ProcessSet::HearOf(std::string_view name, Rank rank) {
  options_.recorder->Ready(id(), name, rank);
  if (const auto found = stages_.sent.find(name); found != stages_.sent.end()) found->second->last = rank;
}

void ProcessSet::OnRequest(int member, controller::Request request) {
  if (sequencer_ == nullptr) return;
  HearOf(request.name, options_.ranks[member]);
  sequencer_->OnRequest(member, std::move(request));
  log_dirty_ = true;
}

void ProcessSet::OnReady(int member, uint64_t uid, int64_t first_dim) {
  if (sequencer_ == nullptr) return;
  if (const auto plan = book_.FindByUid(uid)) HearOf(plan->name, options_.ranks[member]);
  sequencer_->OnReady(member, uid, first_dim);
  log_dirty_ = true;
}

// What it waits for ends by itself or with the generation, and FlushLog is called again after that.
bool ProcessSet::ShouldBatch() const {
  if (by_memory() || left_.code != Code::kOk || wanted_ || !sequencer_->HasOnlySmall(kSmallBytes)) return false;
  const auto small = [](const Running& running) {
    const comm::Work& work = running.fused != nullptr ? *running.fused : running.ops[0]->work;
    return !running.announced && work.op == OpKind::kAllreduce &&
           work.payload.bytes() <= static_cast<size_t>(kSmallBytes);
  };
  return std::ranges::count_if(stages_.running, small) >= kEntriesInFlight;
}

bool ProcessSet::FlushLog() {
  if (sequencer_ == nullptr || !log_dirty_ || ShouldBatch()) return false;
  log_dirty_ = false;
  std::vector<LogEntry> entries = sequencer_->TakeLog();
  if (CanTune()) {
    LogEntry& tune = entries.emplace_back();
    tune.kind = LogEntry::Kind::kTune;
    tune.uid = epoch_.number;
    tune.tuning = *std::exchange(wanted_, {});
  }
  if (ShallResume(entries)) {
    LogEntry resume;
    resume.kind = LogEntry::Kind::kResume;
    resume.uid = epoch_.number;
    entries.push_back(std::move(resume));
  }
  // Sent by a rank that had not heard yet that a member left: nobody will complete it.
  if (left_.code != Code::kOk) std::ranges::move(LostEntries(), std::back_inserter(entries));
  if (entries.empty()) return false;
  AppendLog(std::move(entries));
  return true;
}

void ProcessSet::AppendLog(std::vector<LogEntry> entries) {
  if (entries.empty()) return;
  const wire::LogMessage message{options_.serial, log_length_, entries};
  for (const wire::Bytes& bytes : wire::EncodeLog(message)) {
    for (int m = 1; m < size(); ++m) options_.host->SendControl(options_.ranks[m], bytes);
  }
  OnLog(log_length_, std::move(entries));
}

void ProcessSet::OnLog(uint64_t first_position, std::vector<LogEntry> entries) {
  if (first_position != log_length_) {
    GiveUp({Code::kInternal, "the log of a process set has a gap"});
    return;
  }
  log_length_ += entries.size();
  auto next = entries.begin();
  for (; kept_.empty() && next != entries.end() && !WaitsForMarks(*next); ++next) ApplyEntry(*next);
  kept_.insert(kept_.end(), std::make_move_iterator(next), std::make_move_iterator(entries.end()));
}

bool ProcessSet::ApplyKept() {
  bool moved = false;
  while (!kept_.empty() && !WaitsForMarks(kept_.front())) {
    const LogEntry entry = std::move(kept_.front());
    kept_.pop_front();
    ApplyEntry(entry);
    moved = true;
  }
  return moved;
}

void ProcessSet::ApplyEntry(const LogEntry& entry) {
  switch (entry.kind) {
    case LogEntry::Kind::kDefine:
      return book_.Apply(entry);
    case LogEntry::Kind::kForget:
      return Forget(entry);
    case LogEntry::Kind::kExecute:
      return Execute(entry);
    case LogEntry::Kind::kResume:
      if (left_.code == Code::kOk) Resume(entry.uid);
      return;
    case LogEntry::Kind::kJoined:
      return FinishJoin(static_cast<int>(entry.uid));
    case LogEntry::Kind::kTune:
      return ApplyTuning(entry);
    case LogEntry::Kind::kError: {
      const auto found = stages_.sent.find(entry.name);
      if (found == stages_.sent.end()) return;
      Operation* op = found->second;
      stages_.sent.erase(found);
      return Finish(op, entry.error);
    }
  }
}

void ProcessSet::Forget(const LogEntry& entry) {
  const controller::PlanPtr plan = book_.FindByUid(entry.uid);
  book_.Apply(entry);
  const auto found = plan == nullptr ? stages_.sent.end() : stages_.sent.find(plan->name);
  if (found == stages_.sent.end() || found->second->uid != entry.uid) return;
  Operation* op = found->second;
  stages_.sent.erase(found);
  Tell(op);
}

void ProcessSet::Execute(const LogEntry& entry) {
  Running running;
  std::vector<int64_t> first_dims;
  for (const controller::Execution& execution : entry.executions) {
    const controller::PlanPtr plan = book_.FindByUid(execution.uid);
    const auto found = plan == nullptr ? stages_.sent.end() : stages_.sent.find(plan->name);
    if (plan != nullptr && SizesResult(plan->signature.op)) {
      const bool asked = found != stages_.sent.end();
      const controller::Signature& own = asked ? found->second->request.signature : plan->signature;
      if (!CheckRows(plan->name, own, execution.first_dims)) return;
    }
    if (found != stages_.sent.end()) {
      running.ops.push_back(found->second);
      stages_.sent.erase(found);
    } else if (plan != nullptr && join_.op != nullptr) {
      running.ops.push_back(StandIn(*plan));
    } else {
      GiveUp({Code::kInternal, "the log executes something that this rank did not ask for"});
      return;
    }
    first_dims = execution.first_dims;
    book_.Drop(execution.uid);
  }
  if (running.ops.size() > 1) {
    running.fused = std::make_unique<comm::Work>();
    running.fused->direct = running.ops[0]->work.direct;
    running.fused->op = running.ops[0]->work.op;
    running.fused->dtype = running.ops[0]->work.dtype;
    running.fused->reduce_op = running.ops[0]->work.reduce_op;
    running.fused->scale = running.ops[0]->work.scale;
    for (Operation* op : running.ops) running.fused->payload.Add(op->work.payload.pieces()[0]);
    trace::Counters& counters = options_.recorder->counters();
    counters.fusion_batches.Add(1);
    counters.fusion_tensors.Add(running.ops.size());
    counters.fusion_bytes.Add(running.fused->payload.bytes());
  }
  if (ChangesProcessSets(running.ops[0]->work.op)) {
    return Finish(running.ops[0], options_.host->ApplySetChange(running.ops[0]));
  }
  running.position = next_log_start_;
  for (Operation* op : running.ops) {
    op->state = State::kAllocating;
    options_.recorder->Agreed(op, id(), running.position, op->last);
  }
  next_log_start_ += comm::IsAdasum(running.ops[0]->work) ? comm::Adasum::Positions(size()) : 1;
  if (SizesResult(running.ops[0]->work.op)) PrepareResult(running.ops[0], first_dims);
  stages_.queued.push_back(std::move(running));
  StartQueued();
}

bool ProcessSet::StartQueued() {
  bool moved = false;
  // Strictly in log order: staging areas are taken in that order on every rank.
  while (!stages_.queued.empty() && !stages_.queued.front().ops[0]->waits_for_memory()) {
    Running running = std::move(stages_.queued.front());
    stages_.queued.pop_front();
    if (running.ops[0]->allocated.load(std::memory_order_relaxed) == Operation::Alloc::kAnswered) {
      TakeMemory(running.ops[0]);
    }
    const comm::Work* work = running.fused != nullptr ? running.fused.get() : &running.ops[0]->work;
    for (Operation* op : running.ops) {
      op->state = State::kRunning;
      options_.recorder->Running(op);
    }
    running.machine = comm::IsAdasum(*work) ? std::make_unique<comm::Adasum>(options_.log.get(), running.position, work,
                                                                             size(), options_.me)
                                            : options_.log->Start(running.position, work);
    stages_.running.push_back(std::move(running));
    moved = true;
  }
  return moved;
}

}  // namespace hvd::engine
