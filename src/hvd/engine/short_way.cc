// SPDX-License-Identifier: Apache-2.0
// A small operation that was done before, on the caller's thread and in one go; see shortcut.h.
//
// The caller holds the token from the mark to the end, so nobody else sees the set, the registry or the recorder
// half-way. It holds it for a bounded number of looks only, and for one reduction of bounded size: then, or as soon as
// anybody needs the token or the registry, or the generation ends, or the marks disagree, it makes the ordinary
// operation of it that would have been at this place, and goes on as any other. If it has reduced already, that one
// runs, and is over when no peer stores into its memory any more.
#include <sched.h>

#include <utility>

#include "hvd/engine/engine.h"
#include "hvd/engine/relax.h"
#include "hvd/tune/tuner.h"

namespace hvd::engine {
namespace {

// Some microseconds: peers that are later than that are waited for in the ordinary way.
constexpr int kLooks = 256;
// Without a pause, which may take as long as a line takes from core to core.
constexpr int kHastyLooks = 48;
// How often the core is given away where there are more ranks than cores.
constexpr int kYields = 40;

// Whether input and output share memory in another way than an allreduce in place.
bool Overlap(const Order& order, OpKind op) {
  if (order.input == order.output) return op != OpKind::kAllreduce;
  return order.input < order.output + order.output_bytes && order.output < order.input + order.input_bytes;
}

}  // namespace

// Keeps arena memory that its owner gives back while peers read it and store into it. Of what is beside the marks they
// have copies, and the rest is between the caller and its own threads: see hvd_free.
class Engine::ShortPins {
 public:
  ShortPins() = default;
  void Take(const Order& order) {
    auto& arena = transport::shm::Arena::Process();
    if (arena.Pin(order.input, order.input_bytes) >= 0) input_ = order.input;
    if (order.output != order.input && arena.Pin(order.output, order.output_bytes) >= 0) output_ = order.output;
  }
  ~ShortPins() {
    if (input_ != nullptr) transport::shm::Arena::Process().Release(input_);
    if (output_ != nullptr) transport::shm::Arena::Process().Release(output_);
  }
  ShortPins(const ShortPins&) = delete;
  ShortPins& operator=(const ShortPins&) = delete;

 private:
  const std::byte* input_ = nullptr;
  const std::byte* output_ = nullptr;
};

Shortcut* Engine::BeginShort(const Order& order, ProcessSet** set, ShortPins* pins) {
  if (phase_.load(std::memory_order_relaxed) != Phase::kWorking || stopping_.load(std::memory_order_relaxed)) {
    return nullptr;
  }
  Shortcut* shortcut = shortcuts_.Find(order);
  if (shortcut == nullptr) return nullptr;
  *set = sets_.Find(shortcut->process_set);
  if (*set == nullptr || (*set)->serial() != shortcut->serial || !(*set)->ReadyFor(shortcut)) return nullptr;
  // What is wrong with the buffers the ordinary way says.
  const OpKind op = shortcut->work.op;
  if (order.input_bytes != shortcut->input_bytes || order.output_bytes != shortcut->output_bytes ||
      Overlap(order, op) || order.input == nullptr || order.output == nullptr ||
      transport::shm::Arena::Process().inherited()) {
    return nullptr;
  }
  if (inbox_full_.load(std::memory_order_relaxed) || !registry_.EnterShort()) return nullptr;
  collective::Piece piece = shortcut->work.payload.pieces()[0];
  piece.in = order.input;
  piece.out = order.output;
  shortcut->work.payload.Clear();
  shortcut->work.payload.Add(piece);
  shortcut->work.result_to = order.output;
  // Who has to wait for a core waits once rather than twice.
  shortcut->work.alone = !crowded_ && op == OpKind::kAllreduce;
  shortcut->reduced = 0;
  if (shortcut->may_be_direct) pins->Take(order);
  if ((*set)->BeginShort(*shortcut)) return shortcut;
  registry_.LeaveShort();
  return nullptr;
}

bool Engine::MustHurry() const {
  return registry_.in_use() || callers_waiting_.load(std::memory_order_relaxed) > 0 ||
         stopping_.load(std::memory_order_relaxed) || world_.window->revoked();
}

Operation* Engine::MakeOrdinary(const Shortcut& shortcut, const Order& order, ProcessSet* set) {
  Submission submission;
  submission.request = shortcut.request;
  submission.process_set = shortcut.process_set;
  submission.input = order.input;
  submission.input_bytes = order.input_bytes;
  submission.output = order.output;
  submission.output_bytes = order.output_bytes;
  Operation* op = MakeOperation(set, std::move(submission));
  op->memory_type = shortcut.memory_type;
  op->callback.store(Operation::Callback::kHeld, std::memory_order_relaxed);
  op->flight = shortcut.entry;
  op->ticks.submitted = shortcut.begun;
  registry_.EnterFromShort(op);
  op->entry->flight = shortcut.flight;
  PinBuffers(op);
  if (op->deadline != Time::max()) timed_.push_back(op);
  set->AdoptShort(op, shortcut);
  return op;
}

Engine::Short Engine::RunShort(const Order& order, double wait_s, Ran* ran, Shape* shape) {
  if (registry_.in_use() || recorder_.draws() || shut_down_.load(std::memory_order_relaxed) || !TryToken()) {
    return Short::kNone;
  }
  ProcessSet* set = nullptr;
  Operation* op = nullptr;
  {
    ShortPins pins;
    Shortcut* shortcut = BeginShort(order, &set, &pins);
    if (shortcut == nullptr) {
      GiveToken();
      return Short::kNone;
    }
    // The mark is on its way: what this rank keeps for itself is written meanwhile.
    shortcut->begun = recorder_.Now();
    recorder_.BeginShort(shortcut);
    using Step = ProcessSet::ShortStep;
    auto step = set->StepShort(shortcut);
    for (int looks = 0; step == Step::kWaiting || step == Step::kReduced; ++looks) {
      if (step == Step::kReduced) looks = 0;
      if (crowded_ && looks >= spin_limit_) {
        if (looks >= spin_limit_ + kYields || MustHurry()) break;
        sched_yield();
      } else if (looks >= kHastyLooks) {
        if (looks >= kLooks || looks >= spin_limit_ || MustHurry()) break;
        Relax();
      }
      step = set->StepShort(shortcut);
    }
    if (step == Step::kDone) {
      recorder_.EndShort(*shortcut, set->LastShortPosition(), set->LastOfShort());
      if (!last_error_.empty()) last_error_.clear();
      if (shape != nullptr) *shape = shortcut->output_shape;
      registry_.LeaveShort();
      if (tuner_ != nullptr) TuneShort(*shortcut);
    } else {
      op = MakeOrdinary(*shortcut, order, set);
    }
  }
  if (op == nullptr) {
    GiveToken();
    return Short::kDone;
  }
  const Time until = wait_s < 0 ? Time::max() : world_.loop->Now() + Seconds(wait_s);
  TurnUntilOver(op, until);
  GiveToken();
  *ran = Await(op, until);
  return Short::kRan;
}

}  // namespace hvd::engine
