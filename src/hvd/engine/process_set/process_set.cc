// SPDX-License-Identifier: Apache-2.0
#include "hvd/engine/process_set/process_set.h"

#include <algorithm>

namespace hvd::engine {

using collective::Piece;
using collective::Progress;
using State = Operation::State;

ProcessSet::ProcessSet(ProcessSetOptions options)
    : options_(std::move(options)),
      announcer_(options_.announce != nullptr ? static_cast<comm::Announcer*>(options_.announce.get())
                                              : options_.messages.get()) {
  if (sequencer_here()) sequencer_ = std::make_unique<controller::Sequencer>(options_.sequencer);
  epoch_.announcing = options_.announce != nullptr;
  epoch_.closed = options_.messages != nullptr;
}

ProcessSet::~ProcessSet() = default;

int ProcessSet::MemberOf(Rank rank) const {
  const auto at = std::lower_bound(options_.ranks.begin(), options_.ranks.end(), rank);
  return at != options_.ranks.end() && *at == rank ? static_cast<int>(at - options_.ranks.begin()) : -1;
}

void ProcessSet::Begin(Operation* op) {
  in_flight_.fetch_add(1, std::memory_order_relaxed);
  if (left_.code != Code::kOk) return Finish(op, left_);
  if (closed_) {
    return Finish(op, {Code::kInvalidArgument,
                       fmt::format("'{}' was submitted to process set {} after this rank asked for the set's removal, "
                                   "which waits for other ranks",
                                   op->request.name, id())});
  }
  if (options_.host->IsPostponed(*op)) return stages_.held.push_back(op);
  Start(op);
}

void ProcessSet::Start(Operation* op) {
  if (join_.op != nullptr) {
    return Finish(op, {Code::kFailedPrecondition,
                       fmt::format("'{}' was submitted after join(): wait until join() returns", op->request.name)});
  }
  PrepareWork(op);
  if (size() == 1) return FinishAlone(op);
  if (op->work.op == OpKind::kJoin) return BeginJoin(op);
  if (epoch_.announcing && wanted_ && by_memory()) StopAnnouncing();
  if (epoch_.announcing) {
    const controller::PlanPtr& plan = book_.FindByName(op->request.name);
    if (plan != nullptr && controller::Fits(*plan, op->request.signature) && CanAnnounce(*op)) {
      op->uid = plan->uid;
      op->state = State::kAnnounced;
      options_.recorder->counters().cache_hits.Add(1);
      options_.recorder->SentAtOnce(*op);
      stages_.waiting.push_back(op);
      PublishMarks();
      return;
    }
    StopAnnouncing();
  }
  Tell(op);
}

bool ProcessSet::StartHeld() {
  if (options_.host->IsPostponed(*stages_.held.front())) return false;
  Operation* op = stages_.held.front();
  stages_.held.pop_front();
  Start(op);
  return true;
}

void ProcessSet::StopAnnouncing() {
  stages_.waiting.push_back(nullptr);
  epoch_.announcing = false;
  PublishMarks();
}

void ProcessSet::PrepareWork(Operation* op) {
  const controller::Signature& signature = op->request.signature;
  comm::Work& work = op->work;
  work.op = signature.op;
  work.dtype = signature.dtype;
  work.reduce_op = signature.reduce_op;
  work.scale = {signature.prescale, signature.postscale};
  if (signature.reduce_op == ReduceOp::kAverage) work.scale.post /= size();
  work.root = signature.op == OpKind::kBroadcast ? MemberOf(signature.root) : -1;
  work.direct = op->deadline == Time::max();
  if (HasTensor(signature.op)) {
    std::byte* out = SizesResult(signature.op) ? nullptr : op->output;
    const DType memory_type = op->memory_type.value_or(signature.dtype);
    const size_t bytes = op->input_bytes / SizeOf(memory_type) * SizeOf(signature.dtype);
    work.payload.Add(Piece{op->input, out, bytes, signature.dtype, memory_type});
  }
}

void ProcessSet::FinishAlone(Operation* op) {
  const controller::Signature& signature = op->request.signature;
  if (signature.op == OpKind::kJoin) op->number = options_.ranks[0];
  if (ChangesProcessSets(signature.op)) return Finish(op, options_.host->ApplySetChange(op));
  if (SizesResult(signature.op)) {
    if (signature.shape.empty()) {
      return Finish(op, {Code::kFailedPrecondition,
                         fmt::format("Process-set rank zero tried to {} a rank-zero tensor: '{}' is a scalar; give it "
                                     "at least one dimension",
                                     NameOf(signature.op), op->request.name)});
    }
    const std::vector<int64_t> rows =
        signature.op == OpKind::kAlltoall ? signature.numbers : std::vector<int64_t>{controller::FirstDim(signature)};
    if (!PrepareResult(op, rows)) {
      Running waiting;
      waiting.ops.push_back(op);
      stages_.allocating.push_back(std::move(waiting));
      return;
    }
  }
  MoveAlone(op);
}

void ProcessSet::MoveAlone(Operation* op) {
  const comm::Work& work = op->work;
  const Piece piece = work.payload.pieces().empty() ? Piece{} : work.payload.pieces()[0];
  std::byte* out = SizesResult(work.op) ? work.result_to : piece.out;
  const size_t bytes = SizesResult(work.op) ? op->output_bytes : piece.bytes;
  const bool reduces = work.op == OpKind::kAllreduce || work.op == OpKind::kReducescatter;
  if (bytes > 0 && out != nullptr && reduces) {
    // What is to travel as another type is rounded to it in a job of one rank, too.
    std::vector<std::byte> packed(piece.converted() ? bytes : 0);
    if (piece.converted()) work.payload.Gather(0, bytes, packed.data());
    const void* source = piece.converted() ? packed.data() : piece.in;
    void* target = piece.converted() ? packed.data() : out;
    // Adasum of one vector is that vector, as is its sum.
    const ReduceOp reduce_op = work.reduce_op == ReduceOp::kAdasum ? ReduceOp::kSum : work.reduce_op;
    kernel::Reduce(reduce_op, work.dtype, {&source, 1}, {&target, 1}, bytes / SizeOf(work.dtype), work.scale);
    if (piece.converted()) work.payload.Scatter(0, bytes, packed.data());
  } else if (bytes > 0 && out != nullptr && out != piece.in) {
    kernel::Copy(out, piece.in, bytes);
  }
  Finish(op, kSuccess);
}

bool ProcessSet::Step() {
  if (gave_up_) return false;
  bool moved = !stages_.held.empty() && StartHeld();
  if (announcer_ != nullptr) {
    if (!stages_.waiting.empty()) moved |= PublishMarks();
    if (epoch_.undecided()) moved |= DecideMarks();
    if (!kept_.empty()) moved |= ApplyKept();
  }
  if (!stages_.queued.empty()) moved |= StartQueued();
  if (!stages_.allocating.empty()) moved |= StepAllocating();
  if (!stages_.running.empty() && !gave_up_) moved |= StepRunning();
  return moved;
}

bool ProcessSet::StepAllocating() {
  for (size_t i = 0; i < stages_.allocating.size(); ++i) {
    Operation* op = stages_.allocating[i].ops[0];
    if (op->waits_for_memory()) continue;
    TakeMemory(op);
    Running running = std::move(stages_.allocating[i]);
    stages_.allocating.erase(stages_.allocating.begin() + static_cast<ptrdiff_t>(i));
    if (size() == 1) {
      MoveAlone(op);
      return true;
    }
    op->state = State::kRunning;
    options_.recorder->Running(op);
    running.machine = announcer_->Begin(running.position, &op->work);
    if (running.machine != nullptr) {
      stages_.running.push_back(std::move(running));
    } else {
      announcer_->Release(running.position);
      Finish(op, kSuccess);
    }
    return true;
  }
  return false;
}

bool ProcessSet::StepRunning() {
  bool moved = false;
  for (size_t i = 0; i < stages_.running.size();) {
    const Progress progress = stages_.running[i].machine->Step();
    if (progress == Progress::kWaiting) {
      ++i;
      continue;
    }
    moved = true;
    if (progress == Progress::kMoved) {
      ++i;
      continue;
    }
    Running done = std::move(stages_.running[i]);
    stages_.running.erase(stages_.running.begin() + static_cast<ptrdiff_t>(i));
    if (progress == Progress::kFailed) {
      // Others may still be using this operation's buffers: only the end of the generation makes them safe.
      Error error = done.machine->error();
      if (const int member = done.machine->at_fault(); member >= 0) error.rank = ranks()[member];
      stages_.running.push_back(std::move(done));
      GiveUp(error);
      return false;
    }
    if (done.announced) announcer_->Release(done.position);
    for (Operation* op : done.ops) Finish(op, kSuccess);
  }
  return moved;
}

void ProcessSet::GiveUp(Error error) {
  // From here on this rank stores into nobody's memory: the host says so to the peers.
  gave_up_ = true;
  options_.host->GiveUp(std::move(error));
}

void ProcessSet::Finish(Operation* op, Error error) {
  if (op == join_.op) join_.op = nullptr;
  op->state = State::kOver;
  if (error.code == Code::kOk && op->error.code != Code::kOk) error = op->error;
  if (!SizesResult(op->work.op)) op->output_shape = op->request.signature.shape;
  options_.host->Complete(op, std::move(error));
  in_flight_.fetch_sub(1, std::memory_order_release);
  FinishJoinIfIdle();
}

}  // namespace hvd::engine
