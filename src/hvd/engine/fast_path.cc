// SPDX-License-Identifier: Apache-2.0
#include "hvd/engine/fast_path.h"

#include <sched.h>

#include <utility>

#include "hvd/engine/relax.h"
#include "hvd/transport/shm/arena.h"

namespace hvd::engine {
namespace {

// Some microseconds: for peers that are later than that the operation becomes an ordinary one.
constexpr int kLooks = 256;
// Without a pause, which may take as long as a line takes from core to core.
constexpr int kHastyLooks = 48;
// How often the core is given away where there are more ranks than cores.
constexpr int kYieldsOnFastPath = 40;

// Whether input and output share memory in another way than an allreduce in place.
bool Overlap(const RequestView& view, OpKind op) {
  if (view.input == view.output) return op != OpKind::kAllreduce;
  return view.input < view.output + view.output_bytes && view.output < view.input + view.input_bytes;
}

}  // namespace

// Keeps arena memory that its owner frees while peers read it and store into it. Peers have copies of what is beside
// the marks, and the rest is between the caller and its own threads: see hvd_free.
class FastPath::Pins {
 public:
  Pins() = default;
  void Take(const RequestView& view) {
    auto& arena = transport::shm::Arena::Process();
    if (arena.Pin(view.input, view.input_bytes) >= 0) input_ = view.input;
    if (view.output != view.input && arena.Pin(view.output, view.output_bytes) >= 0) output_ = view.output;
  }
  ~Pins() {
    if (input_ != nullptr) transport::shm::Arena::Process().Unpin(input_);
    if (output_ != nullptr) transport::shm::Arena::Process().Unpin(output_);
  }
  Pins(const Pins&) = delete;
  Pins& operator=(const Pins&) = delete;

 private:
  const std::byte* input_ = nullptr;
  const std::byte* output_ = nullptr;
};

FastPath::FastPath(const EngineContext& context, ProgressToken* token, Scheduler* scheduler, Operations* operations,
                   Autotuning* tuning)
    : context_(context), token_(token), scheduler_(scheduler), operations_(operations), tuning_(tuning) {}

FastPathEntry* FastPath::Begin(const RequestView& view, ProcessSet** set, Pins* pins) {
  if (!context_.membership->working() || token_->stopping()) return nullptr;
  FastPathEntry* entry = cache_.Find(view);
  if (entry == nullptr) return nullptr;
  *set = context_.sets->Find(entry->process_set);
  if (*set == nullptr || (*set)->serial() != entry->serial || !(*set)->ReadyFor(entry)) return nullptr;
  // Bad buffers only rule out the fast path; the ordinary operation reports the error.
  const OpKind op = entry->work.op;
  if (view.input_bytes != entry->input_bytes || view.output_bytes != entry->output_bytes || Overlap(view, op) ||
      view.input == nullptr || view.output == nullptr || transport::shm::Arena::Process().inherited()) {
    return nullptr;
  }
  if (operations_->has_submissions() || !operations_->registry().EnterFastPath()) return nullptr;
  collective::Piece piece = entry->work.payload.pieces()[0];
  piece.in = view.input;
  piece.out = view.output;
  entry->work.payload.Clear();
  entry->work.payload.Add(piece);
  entry->work.result_to = view.output;
  // With more ranks than cores, a second round would mean a second wait for a core.
  entry->work.alone = !scheduler_->crowded() && op == OpKind::kAllreduce;
  entry->reduced = 0;
  if (entry->may_be_direct) pins->Take(view);
  if ((*set)->BeginFastPath(*entry)) return entry;
  operations_->registry().LeaveFastPath();
  return nullptr;
}

bool FastPath::MustHurry() const {
  return operations_->registry().in_use() || token_->callers_wait() || token_->stopping() ||
         context_.world->window->revoked();
}

Operation* FastPath::MakeOrdinary(const FastPathEntry& entry, const RequestView& view, ProcessSet* set) {
  Submission submission;
  submission.request = entry.request;
  submission.process_set = entry.process_set;
  submission.input = view.input;
  submission.input_bytes = view.input_bytes;
  submission.output = view.output;
  submission.output_bytes = view.output_bytes;
  Operation* op = operations_->Make(set, std::move(submission));
  op->memory_type = entry.memory_type;
  op->callback.store(Operation::Callback::kHeld, std::memory_order_relaxed);
  op->flight = entry.flight_entry;
  op->ticks.submitted = entry.begun;
  operations_->Adopt(op);
  op->entry->flight = entry.flight;
  set->AdoptFastPath(op, entry);
  return op;
}

ProcessSet::FastPathStep FastPath::StepUntilOver(ProcessSet* set, FastPathEntry* entry) {
  using Step = ProcessSet::FastPathStep;
  const int spin_limit = scheduler_->spin_limit();
  auto step = set->StepFastPath(entry);
  Time yielding_since{};
  for (int looks = 0; step == Step::kWaiting || step == Step::kReduced; ++looks) {
    if (step == Step::kReduced) looks = 0;
    if (scheduler_->crowded() && looks >= spin_limit) {
      const Time now = context_.world->loop->Now();
      if (looks == spin_limit) yielding_since = now;
      if (looks >= spin_limit + kYieldsOnFastPath || now - yielding_since >= kLongestYielding || MustHurry()) break;
      sched_yield();
    } else if (looks >= kHastyLooks) {
      if (looks >= kLooks || looks >= spin_limit || MustHurry()) break;
      Relax();
    }
    step = set->StepFastPath(entry);
  }
  return step;
}

FastPath::Outcome FastPath::Run(const RequestView& view, double wait_s, Ran* ran, Shape* shape) {
  Recorder& recorder = *context_.recorder;
  Registry& registry = operations_->registry();
  if (registry.in_use() || recorder.draws() || context_.membership->shut_down() || !token_->TryTake()) {
    return Outcome::kNone;
  }
  ProcessSet* set = nullptr;
  Operation* op = nullptr;
  {
    Pins pins;
    FastPathEntry* entry = Begin(view, &set, &pins);
    if (entry == nullptr) {
      token_->Return();
      return Outcome::kNone;
    }
    // The mark is on its way: what this rank keeps for itself is written meanwhile.
    entry->begun = recorder.Now();
    recorder.BeginFastPath(entry);
    if (StepUntilOver(set, entry) == ProcessSet::FastPathStep::kDone) {
      recorder.EndFastPath(*entry, set->LastFastPathPosition(), set->LastOfFastPath());
      context_.membership->NoteSuccess();
      if (shape != nullptr) *shape = entry->output_shape;
      registry.LeaveFastPath();
      tuning_->OnComplete(*entry);
    } else {
      op = MakeOrdinary(*entry, view, set);
    }
  }
  if (op == nullptr) {
    token_->Return();
    return Outcome::kDone;
  }
  const Time until = wait_s < 0 ? Time::max() : context_.world->loop->Now() + Seconds(wait_s);
  scheduler_->DriveUntilOver(op, until);
  token_->Return();
  *ran = Await(op, until);
  return Outcome::kRan;
}

Ran FastPath::Await(Operation* op, Time until) {
  const Handle handle = op->handle;
  operations_->batcher().NoteWait();
  if (!scheduler_->Wait(op, until)) {
    auto held = Operation::Callback::kHeld;
    if (op->callback.compare_exchange_strong(held, Operation::Callback::kPosted, std::memory_order_acq_rel)) {
      return Ran{nullptr, handle};
    }
    // It ended at this moment, and no other thread is notified.
    scheduler_->Wait(op, Time::max());
  }
  return Ran{op, handle};
}

}  // namespace hvd::engine
