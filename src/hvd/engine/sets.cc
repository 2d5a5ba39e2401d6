// SPDX-License-Identifier: Apache-2.0
// Process sets: made at init and, as operations of the global set, while the engine works.
#include <algorithm>

#include "hvd/base/log.h"
#include "hvd/comm/host/hosts_communicator.h"
#include "hvd/comm/mpi/communicator.h"
#include "hvd/engine/engine.h"

namespace hvd::engine {
namespace {

constexpr std::string_view kNewSet = "the process set";
// One name for all changes: a rank's next one begins when the one before is over here. So whoever uses the memory of a
// removed set again knows that no rank uses it for the old one.
constexpr std::string_view kChange = "process_set.change";

}  // namespace

Status Engine::CheckRanks(std::string_view title, std::vector<Rank>* ranks) const {
  std::sort(ranks->begin(), ranks->end());
  if (ranks->empty()) return Fail(Code::kInvalidArgument, "{} is empty: give at least one rank", title);
  if (ranks->front() < 0 || ranks->back() >= world_.layout.size) {
    return Fail(Code::kInvalidArgument, "{} names rank {}, but ranks are 0 to {}", title,
                ranks->front() < 0 ? ranks->front() : ranks->back(), world_.layout.size - 1);
  }
  if (const auto twice = std::adjacent_find(ranks->begin(), ranks->end()); twice != ranks->end()) {
    return Fail(Code::kInvalidArgument, "{} names rank {} twice", title, *twice);
  }
  return {};
}

Status Engine::CheckNew(std::string_view title, const std::vector<Rank>& ranks) const {
  const ProcessSet* other = sets_.WithRanks(ranks);
  if (other == nullptr) return {};
  return Fail(Code::kInvalidArgument, "{} has the same ranks as process set {}: use that one", title, other->id());
}

Status Engine::CreateSets() {
  HVD_ASSIGN_OR_RETURN(table_, TableOf(world_.settings));
  std::vector<Rank> everybody(world_.layout.size);
  for (Rank rank = 0; rank < world_.layout.size; ++rank) everybody[rank] = rank;
  sets_.Add(MakeSet(std::move(everybody)));
  for (std::vector<Rank> ranks : options_.process_sets) {
    const std::string title = fmt::format("process set {}", sets_.NextId());
    HVD_RETURN_IF_ERROR(CheckRanks(title, &ranks));
    HVD_RETURN_IF_ERROR(CheckNew(title, ranks));
    sets_.Add(MakeSet(std::move(ranks)));
  }
  return {};
}

std::unique_ptr<ProcessSet> Engine::MakeSet(std::vector<Rank> ranks) {
  const Layout& layout = world_.layout;
  ProcessSetOptions set;
  set.id = sets_.NextId();
  set.serial = sets_made_++;
  set.host = this;
  set.recorder = &recorder_;
  set.sequencer = {set.id, ranks, world_.settings.cache_capacity, fusion_threshold_.load(std::memory_order_relaxed),
                   options_.config.join_extended};
  set.resume_policy = options_.resume_policy;
  const auto at = std::lower_bound(ranks.begin(), ranks.end(), layout.rank);
  set.me = at == ranks.end() || *at != layout.rank ? -1 : static_cast<int>(at - ranks.begin());
  set.ranks = std::move(ranks);
  recorder_.KnowSet(set.id, set.ranks);
  if (OperatesByMpi()) {
    if (set.me >= 0 && set.ranks.size() > 1) ConnectByMpi(&set);
    return std::make_unique<ProcessSet>(std::move(set));
  }
  ConnectByMemory(&set);
  if (set.me >= 0 && set.log == nullptr && set.ranks.size() > 1) ConnectByPairs(&set);
  auto made = std::make_unique<ProcessSet>(std::move(set));
  // The global set's log has said so on every rank before it said that this set is made.
  if (tuning_ != wire::Tuning()) made->BeginTuned(table_.Tuned(tuning_.chunk_percent, tuning_.eager_bytes));
  if (asked_ && *asked_ != tuning_) made->Tune(*asked_);
  return made;
}

void Engine::ConnectByMemory(ProcessSetOptions* set) {
  std::vector<int> locals;
  for (const Rank rank : set->ranks) {
    if (const int local = world_.layout.LocalOf(rank); local >= 0) locals.push_back(local);
  }
  if (world_.window == nullptr || locals.size() < 2) return;
  // Every local rank takes, member or not: offsets stay equal, and so does the answer.
  const auto bytes = collective::window::Stream::Bytes(static_cast<int>(locals.size()), world_.settings.eager_bytes);
  const auto announce = stream_memory_.Take(world_.window.get(), bytes);
  const auto log = stream_memory_.Take(world_.window.get(), bytes);
  streams_[set->id] = {announce.value_or(nullptr), log.value_or(nullptr), bytes,
                       locals.front() == world_.layout.LocalOf(world_.layout.rank)};
  if (set->me < 0 || locals.size() < set->ranks.size()) return;
  if (!announce || !log) {
    log::Warning("Process set {} exchanges messages, which is slower: {}.", set->id,
                 (announce ? log : announce).error().message);
    return;
  }
  comm::host::WindowOptions window{.places{table_, static_cast<int>(locals.size())}};
  window.window = world_.window.get();
  window.memory = &arena_;
  window.locals = locals;
  window.me = set->me;
  for (const Rank rank : set->ranks) window.flows.push_back(&recorder_.counters().peers[rank].shm);
  window.eager_bytes = world_.settings.eager_bytes;
  window.staging.chunk_bytes = world_.settings.chunk_bytes;
  window.early = true;
  window.clock = world_.loop.get();
  window.stream_memory = *announce;
  set->announce = std::make_unique<comm::host::WindowCommunicator>(window);
  window.stream_memory = *log;
  set->log = std::make_unique<comm::host::WindowCommunicator>(window);
}

void Engine::ConnectByPairs(ProcessSetOptions* set) {
  comm::host::PairOptions pairs;
  pairs.process_set = set->serial;
  pairs.me = set->me;
  std::vector<std::vector<int>> by_host(world_.ranks.size());
  for (size_t m = 0; m < set->ranks.size(); ++m) {
    pairs.pairs.push_back(world_.pairs[set->ranks[m]].get());
    by_host[world_.layout.host_of[set->ranks[m]]].push_back(static_cast<int>(m));
  }
  // Hosts are numbered by their first rank.
  for (const std::vector<int>& members : by_host) {
    if (members.empty()) continue;
    pairs.order.members.insert(pairs.order.members.end(), members.begin(), members.end());
    pairs.order.host_sizes.push_back(static_cast<int>(members.size()));
  }
  const auto& sizes = pairs.order.host_sizes;
  const bool mixed = sizes.size() > 1 && sizes.size() < set->ranks.size();
  if (mixed) pairs.scope = algorithms::Scope::kMixed;
  ConnectByMail(set, pairs);
  if (mixed) return ConnectByHosts(set, std::move(pairs));
  set->log = std::make_unique<comm::host::PairCommunicator>(std::move(pairs), table_);
}

void Engine::ConnectByMail(ProcessSetOptions* set, const comm::host::PairOptions& pairs) {
  comm::host::MailOptions mail;
  mail.set = set->serial;
  mail.me = pairs.me;
  mail.order = pairs.order;
  mail.choices = table_.For(OpKind::kAllreduce, pairs.scope, static_cast<int>(set->ranks.size()));
  if (!comm::host::MailCommunicator::Suits(mail)) return;
  mail.post = [this, ranks = set->ranks](std::span<const int> members, const wire::MarkMessage& message) {
    wire::EncodeMarks(message, &mail_buffer_);
    for (const int member : members) SendControl(ranks[member], mail_buffer_);
  };
  set->mail = std::make_unique<comm::host::MailCommunicator>(std::move(mail));
}

void Engine::ConnectByHosts(ProcessSetOptions* set, comm::host::PairOptions pairs) {
  comm::host::HostsOptions hosts;
  hosts.pairs = std::move(pairs);
  if (const auto streams = streams_.find(set->id); streams != streams_.end() && streams->second.log != nullptr) {
    const auto here = std::ranges::count_if(set->ranks, [&](Rank rank) { return world_.layout.LocalOf(rank) >= 0; });
    // The carriers read and write the data while it travels, so none of it is beside a mark.
    comm::host::WindowOptions window{.places{table_, static_cast<int>(here), false}};
    window.window = world_.window.get();
    window.memory = &arena_;
    for (const Rank rank : set->ranks) {
      const int local = world_.layout.LocalOf(rank);
      if (local < 0) continue;
      if (rank == world_.layout.rank) window.me = static_cast<int>(window.locals.size());
      window.locals.push_back(local);
      hosts.flows.push_back(&recorder_.counters().peers[rank].shm);
    }
    window.eager_bytes = world_.settings.eager_bytes;
    window.staging = comm::host::HostsCommunicator::StagingBy(table_, static_cast<int>(set->ranks.size()));
    window.stream_memory = streams->second.log;
    hosts.here = std::make_unique<comm::host::WindowCommunicator>(window);
  }
  set->log = std::make_unique<comm::host::HostsCommunicator>(std::move(hosts), table_);
}

void Engine::ConnectByMpi(ProcessSetOptions* set) {
  comm::mpi::Options options;
  options.library = world_.mpi;
  options.group = comm::mpi::Group::Make(world_.mpi, world_.mpi_comm, set->ranks, set->serial);
  options.members = static_cast<int>(set->ranks.size());
  options.me = set->me;
  set->log = std::make_unique<comm::mpi::Communicator>(std::move(options));
}

Result<int> Engine::AddSet(std::vector<Rank> ranks) {
  HVD_RETURN_IF_ERROR(CheckRanks(kNewSet, &ranks));
  HVD_RETURN_IF_ERROR(CheckNew(kNewSet, ranks));  // and again when it is made: another thread may be at it, too
  controller::Request request;
  request.name = kChange;
  request.signature.op = OpKind::kAddProcessSet;
  request.signature.numbers.assign(ranks.begin(), ranks.end());
  return ChangeSets(std::move(request));
}

Status Engine::RemoveSet(int id) {
  if (id == 0) return Fail(Code::kInvalidArgument, "the global process set cannot be removed");
  if (sets_.Find(id) == nullptr) return Fail(Code::kInvalidArgument, "process set {} does not exist", id);
  controller::Request request;
  request.name = kChange;
  request.signature.op = OpKind::kRemoveProcessSet;
  request.signature.numbers = {id};
  HVD_RETURN_IF_ERROR(ChangeSets(std::move(request)));
  return {};
}

Result<int> Engine::ChangeSets(controller::Request request) {
  if (!options_.dynamic_sets) {
    return Fail(Code::kFailedPrecondition,
                "process sets cannot be added or removed while running: call init with process_sets=\"dynamic\" or set "
                "HOROVOD_DYNAMIC_PROCESS_SETS=1 on every rank");
  }
  const std::lock_guard lock(change_mutex_);
  Submission submission;
  submission.request = std::move(request);
  HVD_ASSIGN_OR_RETURN(const Ran change, Run(std::move(submission)));
  const Error error = change.op->error;
  const int id = change.op->number;
  Forget(change.handle);
  if (error.code != Code::kOk) return Fail(error);
  return id;
}

ProcessSet* Engine::RemovedBy(const Operation& op) const {
  const controller::Signature& signature = op.request.signature;
  if (signature.op != OpKind::kRemoveProcessSet) return nullptr;
  return sets_.Find(static_cast<int>(signature.numbers[0]));
}

bool Engine::HoldsBack(const Operation& op) {
  ProcessSet* set = RemovedBy(op);
  if (set == nullptr) return false;
  // Data of the set's operations may still move between ranks: they end first, and no more begin.
  if (set->busy()) return true;
  set->Close(true);
  return false;
}

Error Engine::ApplySetChange(Operation* op) {
  const controller::Signature& signature = op->request.signature;
  if (signature.op == OpKind::kRemoveProcessSet) {
    const int id = static_cast<int>(signature.numbers[0]);
    ProcessSet* set = sets_.Find(id);
    if (set == nullptr) return {Code::kInvalidArgument, fmt::format("process set {} does not exist", id)};
    // It is idle on every rank; this is for who found it just before, and submits to it now.
    set->FailAll({Code::kInvalidArgument, fmt::format("process set {} has been removed", id)});
    sets_.Remove(id);
    if (const auto streams = streams_.extract(id); !streams.empty()) {
      const Streams& old = streams.mapped();
      if (old.announce != nullptr) stream_memory_.GiveBack(old.announce, old.bytes, old.clears);
      if (old.log != nullptr) stream_memory_.GiveBack(old.log, old.bytes, old.clears);
    }
    return {Code::kOk, {}, -1};
  }
  std::vector<Rank> ranks(signature.numbers.begin(), signature.numbers.end());
  if (const Status fresh = CheckNew(kNewSet, ranks); !fresh) return fresh.error();
  op->number = sets_.NextId();
  if (op->number < 0)
    return {Code::kResourceExhausted, fmt::format("there are {} process sets already", SetTable::kMost)};
  sets_.Add(MakeSet(std::move(ranks)));
  // Members that were faster have spoken to the new set already.
  std::vector<EarlyMessage> early;
  std::swap(early, early_);
  for (const EarlyMessage& message : early) OnControl(message.from, message.bytes);
  return {Code::kOk, {}, -1};
}

void Engine::ReclaimSets() {
  // What is still in the inbox was submitted by somebody who found a set that may be gone.
  if (inbox_full_.load(std::memory_order_acquire)) return;
  for (const auto& set : sets_.Reclaim()) registry_.ForgetSet(set.get());
}

}  // namespace hvd::engine
