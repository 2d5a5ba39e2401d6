// SPDX-License-Identifier: Apache-2.0
#include "hvd/engine/process_set/process_set_changes.h"

#include <fmt/format.h>

#include <utility>

namespace hvd::engine {
namespace {

Error TooMany() {
  return {Code::kResourceExhausted, fmt::format("there are {} process sets already", SetTable::kMost)};
}

}  // namespace

ProcessSetChanges::ProcessSetChanges(const EngineContext& context, ProcessSetFactory* factory, Operations* operations,
                                     Autotuning* tuning, bool dynamic, ResumePolicy resume_policy)
    : context_(context),
      factory_(factory),
      operations_(operations),
      tuning_(tuning),
      dynamic_(dynamic),
      resume_policy_(resume_policy) {}

Status ProcessSetChanges::CheckNew(std::string_view title, const std::vector<Rank>& ranks) const {
  const ProcessSet* other = context_.sets->WithRanks(ranks);
  if (other == nullptr) return {};
  return Fail(Code::kInvalidArgument, "{} has the same ranks as process set {}: use that one", title, other->id());
}

Status ProcessSetChanges::Create(const std::vector<std::vector<Rank>>& sets, bool survived) {
  HVD_RETURN_IF_ERROR(factory_->LoadTable());
  const int size = context_.world->layout.size;
  std::vector<Rank> everybody(size);
  for (Rank rank = 0; rank < size; ++rank) everybody[rank] = rank;
  context_.sets->Add(Make(0, std::move(everybody)));
  int id = 0;
  for (std::vector<Rank> ranks : sets) {
    ++id;
    if (survived && ranks.empty()) continue;
    const std::string title = fmt::format("process set {}", id);
    if (id >= SetTable::kMost) return Fail(TooMany());
    HVD_RETURN_IF_ERROR(CheckRanks(title, size, &ranks));
    if (!survived) HVD_RETURN_IF_ERROR(CheckNew(title, ranks));
    context_.sets->Add(Make(id, std::move(ranks)));
  }
  return {};
}

std::unique_ptr<ProcessSet> ProcessSetChanges::Make(int id, std::vector<Rank> ranks) {
  auto made = factory_->Make(id, std::move(ranks), tuning_->fusion_threshold(), resume_policy_);
  tuning_->Prepare(made.get());
  return made;
}

ProcessSet* ProcessSetChanges::RemovedBy(const Operation& op) const {
  const controller::Signature& signature = op.request.signature;
  if (signature.op != OpKind::kRemoveProcessSet) return nullptr;
  return context_.sets->Find(static_cast<int>(signature.numbers[0]));
}

bool ProcessSetChanges::IsPostponed(const Operation& op) {
  ProcessSet* set = RemovedBy(op);
  if (set == nullptr) return false;
  // Data of the set's operations may still move between ranks: they end first, and no more begin.
  if (set->busy()) return true;
  set->Close(true);
  return false;
}

void ProcessSetChanges::OnComplete(const Operation& op) {
  if (ProcessSet* set = RemovedBy(op)) set->Close(false);
}

Error ProcessSetChanges::Apply(Operation* op) {
  const controller::Signature& signature = op->request.signature;
  if (signature.op == OpKind::kRemoveProcessSet) {
    const int id = static_cast<int>(signature.numbers[0]);
    ProcessSet* set = context_.sets->Find(id);
    if (set == nullptr) return {Code::kInvalidArgument, fmt::format("process set {} does not exist", id)};
    // It is idle on every rank; this is for a thread that found it just before, and submits to it now.
    set->FailAll({Code::kInvalidArgument, fmt::format("process set {} has been removed", id)});
    context_.sets->Remove(id);
    factory_->Recycle(id);
    return kSuccess;
  }
  std::vector<Rank> ranks(signature.numbers.begin(), signature.numbers.end());
  if (const Status fresh = CheckNew("the process set", ranks); !fresh) return fresh.error();
  op->number = context_.sets->NextId();
  if (op->number < 0) return TooMany();
  context_.sets->Add(Make(op->number, std::move(ranks)));
  // Members that were faster have sent messages to the new set already.
  std::vector<EarlyMessage> early;
  std::swap(early, early_);
  for (const EarlyMessage& message : early) receiver_(message.from, message.bytes);
  return kSuccess;
}

void ProcessSetChanges::Reclaim() {
  if (!context_.sets->reclaimable()) return;
  // What is still in the inbox was submitted by a thread that found a set that may be gone.
  if (operations_->has_submissions()) return;
  for (const auto& set : context_.sets->Reclaim()) operations_->registry().ForgetSet(set.get());
}

void ProcessSetChanges::HoldEarlyMessage(Rank from, std::span<const std::byte> bytes) {
  constexpr size_t kMost = 64 << 10;
  if (!dynamic_ || early_.size() >= kMost) return;
  early_.push_back({from, {bytes.begin(), bytes.end()}});
}

}  // namespace hvd::engine
