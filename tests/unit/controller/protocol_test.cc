// SPDX-License-Identifier: Apache-2.0
// A whole process set in one process: members that follow the protocol, messages under way for any length of time, and
// a sequencer. Whatever the schedule, every operation that all members submit is executed once or fails once, on every
// member, as its signatures say.
#include <gtest/gtest.h>
#include <rapidcheck.h>
#include <rapidcheck/gtest.h>

#include <deque>
#include <map>
#include <random>
#include <set>
#include <variant>

#include "hvd/controller/plan_book.h"
#include "hvd/controller/request_table.h"
#include "hvd/controller/sequencer.h"

namespace hvd::controller {
namespace {

using Kind = LogEntry::Kind;

struct World {
  int members;
  int names;
  int rounds;
  int64_t capacity;
  int64_t threshold;
  int odd_percent;  // how often one member disagrees
  uint32_t seed;
};

World AnyWorld() {
  return {*rc::gen::inRange(1, 9),
          *rc::gen::inRange(1, 8),
          *rc::gen::inRange(1, 6),
          *rc::gen::inRange<int64_t>(0, 5),
          *rc::gen::element<int64_t>(0, 8, 64, 1 << 20),
          *rc::gen::element(0, 10, 50),
          *rc::gen::arbitrary<uint32_t>()};
}

struct Op {
  std::vector<Signature> signatures;  // one per member
  bool agreed = true;
};

// What member m has to say to the sequencer.
using Message = std::variant<Request, std::pair<uint64_t, int64_t>>;

struct Member {
  PlanBook book;
  std::deque<Message> outbox;
  size_t position = 0;                      // in the log
  std::map<std::string, int> done;          // rounds over
  std::map<std::string, uint64_t> waiting;  // submitted names; the uid said ready for, 0 after a request
  std::vector<std::string> history;         // what happened, in order
};

class Simulation {
 public:
  explicit Simulation(const World& world) : world_(world), random_(world.seed), members_(world.members) {
    SequencerOptions options;
    options.process_set = 3;
    for (int m = 0; m < world.members; ++m) options.members.push_back(2 * m + 1);
    options.cache_capacity = world.capacity;
    options.fusion_threshold = world.threshold;
    sequencer_ = std::make_unique<Sequencer>(options);
    MakeOps();
  }

  void Run() {
    const int64_t expected = int64_t{world_.members} * world_.names * world_.rounds;
    int64_t idle = 0;
    while (over_ < expected && idle < 20000) idle = Step() ? 0 : idle + 1;
    RC_ASSERT(over_ == expected);  // none lost
    Deliver();
    RC_ASSERT(sequencer_->Pending().empty());
    RC_ASSERT(sequencer_->TakeLog().empty());
    while (ApplyAny()) {
    }
    CheckReplicas();
  }

 private:
  int Random(int n) { return static_cast<int>(random_() % static_cast<uint32_t>(n)); }
  bool Chance(int percent) { return Random(100) < percent; }
  static std::string Name(int i) { return "tensor." + std::to_string(i); }

  Signature AnySignature() {
    Signature s;
    s.op = static_cast<OpKind>(Random(4));
    s.dtype = Chance(50) ? DType::kFloat32 : DType::kInt64;
    s.reduce_op = Chance(80) ? ReduceOp::kSum : ReduceOp::kAverage;
    s.root = s.op == OpKind::kBroadcast ? 1 : -1;
    if (s.op != OpKind::kBarrier) s.shape = {Random(5), 1 + Random(2)};
    return s;
  }

  void Disturb(Signature& s) {
    switch (Random(3)) {
      case 0:
        s.dtype = DType::kUInt8;
        break;
      case 1:
        s.op = static_cast<OpKind>((static_cast<int>(s.op) + 1) % 4);
        break;
      default:
        s.device = Device::kCuda;
    }
  }

  void MakeOps() {
    for (int n = 0; n < world_.names; ++n) {
      Signature common = AnySignature();
      for (int r = 0; r < world_.rounds; ++r) {
        if (Chance(20)) common = AnySignature();  // all change their mind together
        Op op{std::vector<Signature>(members_.size(), common)};
        if (common.op == OpKind::kAllgather) {
          for (Signature& s : op.signatures) s.shape[0] = Random(4);
        }
        if (members_.size() > 1 && Chance(world_.odd_percent)) {
          Disturb(op.signatures[Random(world_.members)]);
          op.agreed = false;
        }
        ops_[Name(n)].push_back(op);
      }
    }
  }

  bool Step() {
    const int m = Random(world_.members);
    switch (Random(4)) {
      case 0:
        return Submit(m);
      case 1:
        return Send(m);
      case 2:
        return Chance(30) && Deliver();  // rarely, so that several become ready together
      default:
        return Apply(m);
    }
  }

  bool Submit(int m) {
    const std::string name = Name(Random(world_.names));
    Member& member = members_[m];
    if (member.waiting.contains(name) || member.done[name] == world_.rounds) return false;
    const Request request{name, ops_[name][member.done[name]].signatures[m]};
    if (const PlanPtr plan = member.book.Match(request)) {
      member.outbox.push_back(std::pair(plan->uid, FirstDim(request.signature)));
      member.waiting[name] = plan->uid;
    } else {
      member.outbox.push_back(request);
      member.waiting[name] = 0;
    }
    return true;
  }

  bool Send(int m) {
    auto& outbox = members_[m].outbox;
    if (outbox.empty()) return false;
    if (auto* request = std::get_if<Request>(&outbox.front())) {
      sequencer_->OnRequest(m, *request);
    } else {
      const auto& [uid, first_dim] = std::get<1>(outbox.front());
      sequencer_->OnReady(m, uid, first_dim);
    }
    outbox.pop_front();
    return true;
  }

  bool Deliver() {
    std::set<int> missing;
    for (const auto& waiting : sequencer_->Pending()) missing.insert(waiting.missing.begin(), waiting.missing.end());
    RC_ASSERT(sequencer_->Awaited() == std::vector<int>(missing.begin(), missing.end()));
    const auto entries = sequencer_->TakeLog();
    for (const LogEntry& entry : entries) CheckEntry(entry);
    log_.insert(log_.end(), entries.begin(), entries.end());
    return !entries.empty();
  }

  bool ApplyAny() {
    bool any = false;
    for (int m = 0; m < world_.members; ++m) any |= Apply(m);
    return any;
  }

  bool Apply(int m) {
    Member& member = members_[m];
    if (member.position == log_.size()) return false;
    const LogEntry& entry = log_[member.position++];
    member.book.Apply(entry);
    if (entry.kind == Kind::kError) Finish(m, entry.name, nullptr, nullptr);
    if (entry.kind == Kind::kForget) Resend(m, entry.uid);
    if (entry.kind != Kind::kExecute) return true;
    for (const Execution& execution : entry.executions) {
      const PlanPtr plan = member.book.FindByUid(execution.uid);
      RC_ASSERT(plan);
      Finish(m, plan->name, plan.get(), &execution);
      member.book.Drop(execution.uid);
    }
    return true;
  }

  void Resend(int m, uint64_t uid) {
    Member& member = members_[m];
    for (auto& [name, ready] : member.waiting) {
      if (ready != uid) continue;
      member.outbox.push_back(Request{name, ops_[name][member.done[name]].signatures[m]});
      ready = 0;
    }
  }

  void Finish(int m, const std::string& name, const Plan* plan, const Execution* execution) {
    Member& member = members_[m];
    RC_ASSERT(member.waiting.erase(name) == 1u);  // never twice, never unasked
    const Op& op = ops_[name][member.done[name]];
    RC_ASSERT(op.agreed == (plan != nullptr));
    if (plan != nullptr) {
      RC_ASSERT(plan->signature == Canonical(op.signatures[m]));
      if (plan->signature.op == OpKind::kAllgather) {
        RC_ASSERT(execution->first_dims.size() == members_.size());
        for (size_t i = 0; i < members_.size(); ++i) {
          RC_ASSERT(execution->first_dims[i] == op.signatures[i].shape[0]);
        }
      } else {
        RC_ASSERT(execution->first_dims.empty());
      }
    }
    ++member.done[name];
    member.history.push_back(name);
    ++over_;
  }

  // What must hold of the log by itself: life of plans, uniqueness of uids, capacity, fusion.
  void CheckEntry(const LogEntry& entry) {
    if (entry.kind == Kind::kDefine) {
      RC_ASSERT(entry.plan.uid != 0u);
      RC_ASSERT(defined_.insert(entry.plan.uid).second);
      plans_[entry.plan.uid] = entry.plan;
    } else if (entry.kind == Kind::kForget) {
      RC_ASSERT(plans_.contains(entry.uid) && plans_[entry.uid].cached);
      plans_.erase(entry.uid);
    } else if (entry.kind == Kind::kExecute) {
      CheckGroup(entry.executions);
    }
  }

  void CheckGroup(const std::vector<Execution>& group) {
    RC_ASSERT(!group.empty());
    int64_t bytes = 0;
    for (const Execution& execution : group) {
      RC_ASSERT(plans_.contains(execution.uid));
      const Signature& first = plans_[group[0].uid].signature;
      const Signature& s = plans_[execution.uid].signature;
      bytes += InputBytes(s);
      if (group.size() == 1) break;
      RC_ASSERT(s.op == OpKind::kAllreduce && s.dtype == first.dtype && s.reduce_op == first.reduce_op &&
                s.device == first.device && s.prescale == first.prescale && s.postscale == first.postscale);
    }
    if (group.size() > 1) RC_ASSERT(bytes <= world_.threshold);
  }

  void CheckReplicas() {
    const auto value = [](const PlanBook& book) {
      std::vector<Plan> plans;
      for (const PlanPtr& plan : book.All()) plans.push_back(*plan);
      return plans;
    };
    for (const Member& member : members_) {
      RC_ASSERT(value(member.book) == value(members_[0].book));
      RC_ASSERT(member.history == members_[0].history);
      RC_ASSERT(static_cast<int64_t>(member.book.size()) <= world_.capacity * RequestTable::kGrowth);
      for (const PlanPtr& plan : member.book.All()) RC_ASSERT(member.book.FindByName(plan->name) == plan);
    }
  }

  const World world_;
  std::mt19937 random_;
  std::vector<Member> members_;
  std::unique_ptr<Sequencer> sequencer_;
  std::map<std::string, std::vector<Op>> ops_;
  std::vector<LogEntry> log_;
  std::set<uint64_t> defined_;
  std::map<uint64_t, Plan> plans_;
  int64_t over_ = 0;
};

RC_GTEST_PROP(Protocol, EveryOperationEndsOnceAndAsItsSignaturesSay, ()) {
  World world = AnyWorld();
  for (int i = 0; i < 30; ++i, ++world.seed) {
    RC_LOG() << "members " << world.members << " names " << world.names << " rounds " << world.rounds << " capacity "
             << world.capacity << " threshold " << world.threshold << " odd " << world.odd_percent << " seed "
             << world.seed << '\n';
    Simulation(world).Run();
  }
}

}  // namespace
}  // namespace hvd::controller
