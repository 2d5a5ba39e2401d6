// SPDX-License-Identifier: Apache-2.0
#include "hvd/engine/registry.h"

#include <sched.h>

#include <algorithm>
#include <cassert>

#include "hvd/controller/group_book.h"

namespace hvd::engine {

Registry::~Registry() = default;

Operation* Registry::Make() {
  std::lock_guard lock(mutex_);
  if (free_.empty()) {
    all_.push_back(std::make_unique<Operation>());
    return all_.back().get();
  }
  Operation* op = free_.back();
  free_.pop_back();
  return op;
}

Status Registry::CheckBuffer(const Operation& op, const void* begin, size_t bytes, bool writes) const {
  const BuffersInUse::Use* use = buffers_.InTheWayOf(begin, bytes, writes);
  if (use == nullptr) return {};
  return Fail(
      Code::kInvalidArgument,
      "the {} buffer of '{}' overlaps the {} buffer of '{}', which is still in flight: wait for that operation, or "
      "give each its own memory",
      writes ? "output" : "input", op.request.name, use->writes ? "output" : "input", use->op->request.name);
}

Status Registry::Enter(Operation* op) {
  std::unique_lock lock(mutex_);
  AddInFlight(1);
  while (short_.load(std::memory_order_seq_cst)) {
    lock.unlock();
    sched_yield();
    lock.lock();
  }
  Status entered = Insert(op);
  if (!entered) AddInFlight(-1);
  return entered;
}

void Registry::EnterFromFastPath(Operation* op) {
  const std::lock_guard lock(mutex_);
  AddInFlight(1);
  [[maybe_unused]] const Status entered = Insert(op);  // nothing was in flight, so there is nothing to object to
  assert(entered);
  LeaveFastPath();
}

Status Registry::Insert(Operation* op) {
  Names& names = names_[op->set];
  auto found = names.find(std::string_view(op->request.name));
  if (found != names.end() && found->second->in_flight != nullptr) {
    if (ChangesProcessSets(op->request.signature.op)) {
      return Fail(
          Code::kInvalidArgument,
          "an earlier {} of this rank timed out and is not over: it ends when all ranks have made that call, and "
          "only then the process sets can be changed again",
          NameOf(found->second->in_flight->request.signature.op));
    }
    const bool late = found->second->in_flight->detached.load(std::memory_order_relaxed);
    return Fail(
        Code::kInvalidArgument,
        "Requested to {} a tensor with the same name as another tensor that is currently being processed: '{}'{}. "
        "Wait for that operation or give every tensor its own name.",
        NameOf(op->request.signature.op), op->request.name,
        late ? " (an earlier submission timed out, and other ranks have still not submitted theirs)" : "");
  }
  const auto member = controller::ParseGroupName(op->request.name);
  const auto group = member ? groups_.find({op->set, std::string(member->group)}) : groups_.end();
  if (group != groups_.end() && group->second.length != member->length) {
    return Fail(
        Code::kInvalidArgument,
        "Requested to {} a group of {} tensors with the same name as another one, of {}, that is currently being "
        "processed: '{}'. Wait for that one or give every group its own name.",
        NameOf(op->request.signature.op), member->length, group->second.length, member->group);
  }
  HVD_RETURN_IF_ERROR(CheckBuffer(*op, op->output, op->output_bytes, true));
  if (op->input != op->output) HVD_RETURN_IF_ERROR(CheckBuffer(*op, op->input, op->input_bytes, false));
  if (found == names.end()) {
    found = names.emplace(op->request.name, std::make_unique<NameEntry>()).first;
    found->second->name = op->request.name;
  }
  op->entry = found->second.get();
  op->entry->in_flight = op;
  if (member) {
    const std::pair key{static_cast<const ProcessSet*>(op->set), std::string(member->group)};
    ++groups_.try_emplace(key, GroupUse{member->length, 0}).first->second.in_flight;
  }
  buffers_.Add(op, op->output, op->output_bytes, true);
  if (op->input != op->output) buffers_.Add(op, op->input, op->input_bytes, false);
  op->handle = (static_cast<uint64_t>(stamp_) << 32) | next_handle_++;
  if (next_handle_ == 0) next_handle_ = 1;
  op->owners.store(2, std::memory_order_relaxed);
  if (spare_handles_.empty()) {
    handles_.emplace(op->handle, op);
    return {};
  }
  auto node = std::move(spare_handles_.back());
  spare_handles_.pop_back();
  node.key() = op->handle;
  node.mapped() = op;
  handles_.insert(std::move(node));
  return {};
}

void Registry::LeaveBuffers(Operation* op) {
  std::lock_guard lock(mutex_);
  buffers_.Remove(op);
}

void Registry::Leave(Operation* op) {
  std::lock_guard lock(mutex_);
  buffers_.Remove(op);
  if (op->entry == nullptr) return;
  AddInFlight(-1);
  op->entry->in_flight = nullptr;
  if (const auto member = controller::ParseGroupName(op->request.name)) {
    const auto group = groups_.find({op->set, std::string(member->group)});
    if (--group->second.in_flight == 0) groups_.erase(group);
  }
  // Names are not kept beyond their use: callers that number their tensors would fill memory with them.
  Names& names = names_[op->set];
  constexpr size_t kKeep = 16384;
  if (names.size() > kKeep) names.erase(names.find(std::string_view(op->request.name)));
  op->entry = nullptr;
}

void Registry::ForgetSet(const ProcessSet* set) {
  std::lock_guard lock(mutex_);
  names_.erase(set);
}

Operation* Registry::Acquire(Handle handle) {
  std::lock_guard lock(mutex_);
  const auto found = handles_.find(handle);
  if (found == handles_.end()) return nullptr;
  found->second->owners.fetch_add(1, std::memory_order_relaxed);
  return found->second;
}

bool Registry::Forget(Handle handle) {
  Operation* op = nullptr;
  {
    std::lock_guard lock(mutex_);
    const auto found = handles_.find(handle);
    if (found == handles_.end()) return false;
    op = found->second;
    spare_handles_.push_back(handles_.extract(found));
  }
  Drop(op);
  return true;
}

void Registry::Drop(Operation* op) {
  if (op->owners.fetch_sub(1, std::memory_order_acq_rel) != 1) return;
  op->request.name.clear();
  op->request.signature.shape.clear();
  op->set = nullptr;
  op->entry = nullptr;
  op->input = nullptr;
  op->output = nullptr;
  op->input_bytes = op->output_bytes = 0;
  op->memory_type.reset();
  op->output_given = false;
  op->alloc = nullptr;
  op->done = nullptr;
  op->callback.store(Operation::Callback::kPosted, std::memory_order_relaxed);
  op->deadline = Time::max();
  op->state = Operation::State::kSubmitted;
  op->work.payload.Clear();
  op->work.member_bytes.clear();
  op->work.exchange_bytes.clear();
  op->request.signature.numbers.clear();
  op->received_splits.clear();
  op->number = 0;
  op->group.reset();
  op->stands_in = false;
  op->flight = ~uint64_t{0};
  op->ticks = {};
  op->last = -1;
  op->submitted = op->agreed = op->running = Time{};
  op->work.result_to = nullptr;
  op->uid = 0;
  op->detached.store(false, std::memory_order_relaxed);
  op->snapshot = {};
  op->allocated.store(Operation::Alloc::kNone, std::memory_order_relaxed);
  op->alloc_answer = nullptr;
  op->output_shape.clear();
  op->engine_owned = false;
  op->error = Error{Code::kOk, {}, -1};
  op->over.store(false, std::memory_order_relaxed);
  op->pinned_input = op->pinned_output = false;
  std::lock_guard lock(mutex_);
  free_.push_back(op);
}

uint64_t Registry::Prepare(int process_set, controller::Request request, std::optional<DType> wire) {
  std::lock_guard lock(mutex_);
  const auto id = [this](size_t index) { return (static_cast<uint64_t>(stamp_) << 32) | (index + 1); };
  const auto [first, last] = prepared_by_name_.equal_range(request.name);
  for (auto at = first; at != last; ++at) {
    const Prepared& known = *prepared_[at->second];
    if (known.process_set == process_set && known.request == request && known.wire == wire) return id(at->second);
  }
  prepared_by_name_.emplace(request.name, prepared_.size());
  prepared_.push_back(std::make_unique<Prepared>(Prepared{process_set, std::move(request), wire}));
  return id(prepared_.size() - 1);
}

const Registry::Prepared* Registry::FindPrepared(uint64_t id) {
  std::lock_guard lock(mutex_);
  const uint64_t index = id & 0xffffffffu;
  if (id >> 32 != stamp_ || index == 0 || index > prepared_.size()) return nullptr;
  return prepared_[index - 1].get();
}

}  // namespace hvd::engine
