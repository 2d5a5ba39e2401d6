// SPDX-License-Identifier: Apache-2.0
#include "hvd/engine/process_set.h"

#include <algorithm>

#include "hvd/engine/memory.h"

namespace hvd::engine {

using collective::Piece;
using collective::Progress;
using State = Operation::State;

namespace {

const Error kSuccess{Code::kOk, {}, -1};

size_t RowBytes(const controller::Signature& signature) {
  size_t bytes = SizeOf(signature.dtype);
  for (size_t i = 1; i < signature.shape.size(); ++i) bytes *= static_cast<size_t>(signature.shape[i]);
  return bytes;
}

}  // namespace

ProcessSet::ProcessSet(ProcessSetOptions options) : options_(std::move(options)) {
  if (sequencer_here()) sequencer_ = std::make_unique<controller::Sequencer>(options_.sequencer);
  announcing_ = options_.announce != nullptr;
}

ProcessSet::~ProcessSet() = default;

int ProcessSet::MemberOf(Rank rank) const {
  const auto at = std::lower_bound(options_.ranks.begin(), options_.ranks.end(), rank);
  return at != options_.ranks.end() && *at == rank ? static_cast<int>(at - options_.ranks.begin()) : -1;
}

void ProcessSet::Begin(Operation* op) {
  ++in_flight_;
  if (left_.code != Code::kOk) return Finish(op, left_);
  PrepareWork(op);
  if (size() == 1) return FinishAlone(op);
  if (announcing_) {
    const controller::PlanPtr plan = book_.FindByName(op->request.name);
    if (plan != nullptr && controller::Fits(*plan, op->request.signature)) {
      op->uid = plan->uid;
      op->state = State::kAnnounced;
      LiveCounters::Add(options_.counters->cache_hits, 1);
      waiting_.push_back(op);
      PublishMarks();
      return;
    }
    waiting_.push_back(nullptr);
    announcing_ = false;
    PublishMarks();
  }
  Tell(op);
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
  if (signature.op != OpKind::kBarrier) {
    std::byte* out = signature.op == OpKind::kAllgather ? nullptr : op->output;
    work.payload.Add(Piece{op->input, out, op->input_bytes});
  }
}

void ProcessSet::FinishAlone(Operation* op) {
  const Piece piece = op->work.payload.pieces().empty() ? Piece{} : op->work.payload.pieces()[0];
  if (op->work.op == OpKind::kAllgather) {
    if (op->request.signature.shape.empty()) {
      return Finish(
          op, {Code::kFailedPrecondition,
               fmt::format("Process-set rank zero tried to ALLGATHER a rank-zero tensor: '{}' is a scalar; give it "
                           "at least one dimension",
                           op->request.name)});
    }
    if (!PrepareGather(op, {controller::FirstDim(op->request.signature)})) {
      Running waiting;
      waiting.ops.push_back(op);
      allocating_.push_back(std::move(waiting));
      return;
    }
    if (op->work.gather_to != nullptr) kernel::Copy(op->work.gather_to, op->input, op->input_bytes);
  } else if (op->work.op == OpKind::kAllreduce && piece.bytes > 0) {
    const void* source = piece.in;
    void* target = piece.out;
    kernel::Reduce(op->work.reduce_op, op->work.dtype, {&source, 1}, {&target, 1}, piece.bytes / SizeOf(op->work.dtype),
                   op->work.scale);
  } else if (piece.bytes > 0 && piece.out != piece.in) {
    kernel::Copy(piece.out, piece.in, piece.bytes);
  }
  Finish(op, kSuccess);
}

bool ProcessSet::PrepareGather(Operation* op, const std::vector<int64_t>& first_dims) {
  const controller::Signature& signature = op->request.signature;
  const size_t row = RowBytes(signature);
  int64_t rows = 0;
  op->work.member_bytes.clear();
  for (int64_t dim : first_dims) {
    rows += dim;
    op->work.member_bytes.push_back(static_cast<size_t>(dim) * row);
  }
  op->output_shape = signature.shape;
  op->output_shape[0] = rows;
  const size_t bytes = static_cast<size_t>(rows) * row;
  op->work.gather_to = nullptr;
  if (op->detached.load(std::memory_order_relaxed)) return true;
  if (op->output_given) {
    if (op->output_bytes == bytes) {
      op->work.gather_to = op->output;
    } else {
      op->error = {
          Code::kInvalidArgument,
          fmt::format("the output of allgather '{}' has {} bytes, but the ranks together send {} (shape {}): give "
                      "that many, or let the library allocate it",
                      op->request.name, op->output_bytes, bytes, ToString(op->output_shape))};
    }
    return true;
  }
  op->output_bytes = bytes;
  if (op->alloc != nullptr) {
    op->allocated.store(Operation::Alloc::kAsked, std::memory_order_relaxed);
    op->state = State::kAllocating;
    options_.host->AskForMemory(op, bytes);
    return false;
  }
  op->output = op->work.gather_to = AllocateOutput(bytes);
  op->engine_owned = op->output != nullptr;
  if (op->output == nullptr)
    op->error = {Code::kResourceExhausted, fmt::format("no memory for an output of {} bytes", bytes)};
  return true;
}

void ProcessSet::TakeMemory(Operation* op) {
  op->output = op->work.gather_to = static_cast<std::byte*>(op->alloc_answer);
  if (op->output == nullptr && op->output_bytes > 0) {
    op->error = {Code::kResourceExhausted, fmt::format("the allocation callback gave no memory for {} bytes of '{}'",
                                                       op->output_bytes, op->request.name)};
  }
}

bool ProcessSet::Step() {
  if (gave_up_) return false;
  bool moved = false;
  if (options_.announce != nullptr) {
    if (!waiting_.empty()) moved |= PublishMarks();
    if (head_ != next_) moved |= DecideMarks();
  }
  if (!queued_.empty()) moved |= StartQueued();
  if (!allocating_.empty()) moved |= StepAllocating();
  if (!running_.empty() && !gave_up_) moved |= StepRunning();
  return moved;
}

bool ProcessSet::StepAllocating() {
  for (size_t i = 0; i < allocating_.size(); ++i) {
    Operation* op = allocating_[i].ops[0];
    if (op->waits_for_memory()) continue;
    TakeMemory(op);
    Running running = std::move(allocating_[i]);
    allocating_.erase(allocating_.begin() + static_cast<ptrdiff_t>(i));
    if (size() == 1) {
      if (op->work.gather_to != nullptr) kernel::Copy(op->work.gather_to, op->input, op->input_bytes);
      Finish(op, kSuccess);
      return true;
    }
    op->state = State::kRunning;
    running.machine = options_.announce->Begin(running.position, &op->work);
    if (running.machine != nullptr) {
      running_.push_back(std::move(running));
    } else {
      options_.announce->Release(running.position);
      Finish(op, kSuccess);
    }
    return true;
  }
  return false;
}

bool ProcessSet::StepRunning() {
  bool moved = false;
  for (size_t i = 0; i < running_.size();) {
    const Progress progress = running_[i].machine->Step();
    if (progress == Progress::kWaiting) {
      ++i;
      continue;
    }
    moved = true;
    if (progress == Progress::kMoved) {
      ++i;
      continue;
    }
    Running done = std::move(running_[i]);
    running_.erase(running_.begin() + static_cast<ptrdiff_t>(i));
    if (progress == Progress::kFailed) {
      // Others may still be using this operation's buffers: only the end of the generation makes them safe.
      const Error error = done.machine->error();
      running_.push_back(std::move(done));
      GiveUp(error);
      return false;
    }
    if (done.announced) options_.announce->Release(done.position);
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
  --in_flight_;
  op->state = State::kOver;
  if (error.code == Code::kOk && op->error.code != Code::kOk) error = op->error;
  if (op->work.op != OpKind::kAllgather) op->output_shape = op->request.signature.shape;
  options_.host->Complete(op, std::move(error));
}

}  // namespace hvd::engine
