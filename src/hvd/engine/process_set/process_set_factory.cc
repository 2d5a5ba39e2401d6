// SPDX-License-Identifier: Apache-2.0
#include "hvd/engine/process_set/process_set_factory.h"

#include <algorithm>
#include <utility>

#include "hvd/base/log.h"
#include "hvd/comm/builtin/mixed_communicator.h"
#include "hvd/comm/mpi/communicator.h"

namespace hvd::engine {

Status CheckRanks(std::string_view title, int size, std::vector<Rank>* ranks) {
  std::sort(ranks->begin(), ranks->end());
  if (ranks->empty()) return Fail(Code::kInvalidArgument, "{} is empty: give at least one rank", title);
  if (ranks->front() < 0 || ranks->back() >= size) {
    return Fail(Code::kInvalidArgument, "{} names rank {}, but ranks are 0 to {}", title,
                ranks->front() < 0 ? ranks->front() : ranks->back(), size - 1);
  }
  if (const auto twice = std::adjacent_find(ranks->begin(), ranks->end()); twice != ranks->end()) {
    return Fail(Code::kInvalidArgument, "{} names rank {} twice", title, *twice);
  }
  return {};
}

ProcessSetFactory::ProcessSetFactory(const World* world, const Config* config, ProcessSetDelegate* host,
                                     Recorder* recorder)
    : world_(world), config_(config), host_(host), recorder_(recorder), arena_(&transport::shm::Arena::Process()) {}

Status ProcessSetFactory::LoadTable() {
  HVD_ASSIGN_OR_RETURN(table_, TableOf(world_->settings));
  return {};
}

std::unique_ptr<ProcessSet> ProcessSetFactory::Make(int id, std::vector<Rank> ranks, int64_t fusion_threshold,
                                                    ResumePolicy policy) {
  ProcessSetOptions set;
  set.id = id;
  set.serial = next_serial_++;
  set.host = host_;
  set.recorder = recorder_;
  set.sequencer = {set.id, ranks, world_->settings.cache_capacity, fusion_threshold, config_->join_extended};
  set.resume_policy = policy;
  const Rank rank = world_->layout.rank;
  const auto at = std::lower_bound(ranks.begin(), ranks.end(), rank);
  set.me = at == ranks.end() || *at != rank ? -1 : static_cast<int>(at - ranks.begin());
  set.ranks = std::move(ranks);
  recorder_->KnowSet(set.id, set.ranks);
  if (OperatesByMpi()) {
    if (set.me >= 0 && set.ranks.size() > 1) ConnectByMpi(&set);
    return std::make_unique<ProcessSet>(std::move(set));
  }
  ConnectByMemory(&set);
  if (set.me >= 0 && set.log == nullptr && set.ranks.size() > 1) ConnectByPairs(&set);
  return std::make_unique<ProcessSet>(std::move(set));
}

void ProcessSetFactory::Recycle(int id) {
  const auto streams = streams_.extract(id);
  if (streams.empty()) return;
  const Streams& old = streams.mapped();
  if (old.announce != nullptr) stream_memory_.GiveBack(old.announce, old.bytes, old.clears);
  if (old.log != nullptr) stream_memory_.GiveBack(old.log, old.bytes, old.clears);
}

void ProcessSetFactory::ConnectByMemory(ProcessSetOptions* set) {
  std::vector<int> locals;
  for (const Rank rank : set->ranks) {
    if (const int local = world_->layout.LocalOf(rank); local >= 0) locals.push_back(local);
  }
  if (world_->window == nullptr || locals.size() < 2) return;
  // Every local rank takes, member or not: offsets stay equal, and so does the answer.
  const auto bytes =
      collective::window::MarkStream::Bytes(static_cast<int>(locals.size()), world_->settings.eager_bytes);
  const auto announce = stream_memory_.Take(world_->window.get(), bytes);
  const auto log = stream_memory_.Take(world_->window.get(), bytes);
  streams_[set->id] = {announce.value_or(nullptr), log.value_or(nullptr), bytes,
                       locals.front() == world_->layout.LocalOf(world_->layout.rank)};
  if (set->me < 0 || locals.size() < set->ranks.size()) return;
  if (!announce || !log) {
    log::Warning("Process set {} cannot use shared memory and falls back to messages, which is slower: {}.", set->id,
                 (announce ? log : announce).error().message);
    return;
  }
  comm::builtin::WindowOptions window{.locations{table_, static_cast<int>(locals.size())}};
  window.window = world_->window.get();
  window.memory = &arena_;
  window.locals = locals;
  window.me = set->me;
  for (const Rank rank : set->ranks) window.flows.push_back(&recorder_->counters().peers[rank].shm);
  window.eager_bytes = world_->settings.eager_bytes;
  window.staging.chunk_bytes = world_->settings.chunk_bytes;
  window.early = true;
  window.clock = world_->loop.get();
  window.stream_memory = *announce;
  set->announce = std::make_unique<comm::builtin::WindowCommunicator>(window);
  window.stream_memory = *log;
  set->log = std::make_unique<comm::builtin::WindowCommunicator>(window);
}

void ProcessSetFactory::ConnectByPairs(ProcessSetOptions* set) {
  comm::builtin::PairOptions pairs;
  pairs.process_set = set->serial;
  pairs.me = set->me;
  std::vector<std::vector<int>> by_host(world_->ranks.size());
  for (size_t m = 0; m < set->ranks.size(); ++m) {
    pairs.pairs.push_back(world_->pairs[set->ranks[m]].get());
    by_host[world_->layout.host_of[set->ranks[m]]].push_back(static_cast<int>(m));
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
  ConnectByMessages(set, pairs);
  if (mixed) return ConnectMixed(set, std::move(pairs));
  set->log = std::make_unique<comm::builtin::PairCommunicator>(std::move(pairs), table_);
}

void ProcessSetFactory::ConnectByMessages(ProcessSetOptions* set, const comm::builtin::PairOptions& pairs) {
  comm::builtin::MessageAnnouncerOptions messages;
  messages.set = set->serial;
  messages.me = pairs.me;
  messages.order = pairs.order;
  messages.choices = table_.For(OpKind::kAllreduce, pairs.scope, static_cast<int>(set->ranks.size()));
  if (!comm::builtin::MessageAnnouncer::Suits(messages)) return;
  messages.post = [this, ranks = set->ranks](std::span<const int> members, const wire::MarkMessage& message) {
    wire::EncodeMarks(message, &mark_buffer_);
    for (const int member : members) host_->SendControl(ranks[member], mark_buffer_);
  };
  set->messages = std::make_unique<comm::builtin::MessageAnnouncer>(std::move(messages));
}

void ProcessSetFactory::ConnectMixed(ProcessSetOptions* set, comm::builtin::PairOptions pairs) {
  comm::builtin::MixedOptions hosts;
  hosts.pairs = std::move(pairs);
  if (const auto streams = streams_.find(set->id); streams != streams_.end() && streams->second.log != nullptr) {
    const auto here = std::ranges::count_if(set->ranks, [&](Rank rank) { return world_->layout.LocalOf(rank) >= 0; });
    // The slice owners read and write the data while it travels, so none of it is beside a mark.
    comm::builtin::WindowOptions window{.locations{table_, static_cast<int>(here), false}};
    window.window = world_->window.get();
    window.memory = &arena_;
    for (const Rank rank : set->ranks) {
      const int local = world_->layout.LocalOf(rank);
      if (local < 0) continue;
      if (rank == world_->layout.rank) window.me = static_cast<int>(window.locals.size());
      window.locals.push_back(local);
      hosts.flows.push_back(&recorder_->counters().peers[rank].shm);
    }
    window.eager_bytes = world_->settings.eager_bytes;
    window.staging = comm::builtin::MixedCommunicator::StagingBy(table_, static_cast<int>(set->ranks.size()));
    window.stream_memory = streams->second.log;
    hosts.here = std::make_unique<comm::builtin::WindowCommunicator>(window);
  }
  set->log = std::make_unique<comm::builtin::MixedCommunicator>(std::move(hosts), table_);
}

void ProcessSetFactory::ConnectByMpi(ProcessSetOptions* set) {
  comm::mpi::Options options;
  options.library = world_->mpi;
  options.group = comm::mpi::AsyncMpiComm::Make(world_->mpi, world_->mpi_comm, set->ranks, set->serial);
  options.members = static_cast<int>(set->ranks.size());
  options.me = set->me;
  set->log = std::make_unique<comm::mpi::Communicator>(std::move(options));
}

}  // namespace hvd::engine
