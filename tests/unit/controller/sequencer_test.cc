// SPDX-License-Identifier: Apache-2.0
// What a sequencer logs, and when: plans, executions, evictions, contradictions, fusion, who is awaited.
#include "hvd/controller/sequencer.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <map>
#include <string>

#include "tests/unit/controller/requests.h"

namespace hvd::controller {
namespace {

using Kind = LogEntry::Kind;
using ::testing::ElementsAre;

TEST(Sequencer, DefinesThenExecutesWhenAllAsked) {
  Sequencer sequencer(Options(2));
  sequencer.OnRequest(1, {"x", Allreduce()});
  EXPECT_TRUE(sequencer.TakeLog().empty());
  sequencer.OnRequest(0, {"x", Allreduce()});
  const auto log = sequencer.TakeLog();
  ASSERT_THAT(Kinds(log), ElementsAre(Kind::kDefine, Kind::kExecute));
  EXPECT_TRUE(log[0].plan.cached);
  EXPECT_EQ(log[0].plan.name, "x");
  ASSERT_EQ(log[1].executions.size(), 1u);
  EXPECT_EQ(log[1].executions[0].uid, log[0].plan.uid);
  EXPECT_TRUE(sequencer.TakeLog().empty());
}

TEST(Sequencer, CachedPlanExecutesByReadyMarksAndEqualRequests) {
  Sequencer sequencer(Options(3));
  for (int m = 0; m < 3; ++m) sequencer.OnRequest(m, {"x", Allreduce()});
  const uint64_t uid = sequencer.TakeLog()[0].plan.uid;
  sequencer.OnReady(0, uid, 0);
  sequencer.OnRequest(1, {"x", Allreduce()});
  sequencer.OnReady(2, uid, 0);
  const auto log = sequencer.TakeLog();
  ASSERT_THAT(Kinds(log), ElementsAre(Kind::kExecute));
  EXPECT_EQ(log[0].executions[0].uid, uid);
}

TEST(Sequencer, CapacityZeroDefinesEveryTimeWithANewUid) {
  Sequencer sequencer(Options(1, 0));
  sequencer.OnRequest(0, {"x", Allreduce()});
  const auto first = sequencer.TakeLog();
  sequencer.OnRequest(0, {"x", Allreduce()});
  const auto second = sequencer.TakeLog();
  ASSERT_THAT(Kinds(second), ElementsAre(Kind::kDefine, Kind::kExecute));
  EXPECT_FALSE(second[0].plan.cached);
  EXPECT_NE(first[0].plan.uid, second[0].plan.uid);
  sequencer.OnReady(0, second[0].plan.uid, 0);
  EXPECT_TRUE(sequencer.TakeLog().empty());
}

TEST(Sequencer, EvictsTheLeastRecentlyExecuted) {
  Sequencer sequencer(Options(1, 2));
  std::map<std::string, uint64_t> uids;
  const auto ask = [&](const std::string& name) {
    sequencer.OnRequest(0, {name, Allreduce()});
    auto log = sequencer.TakeLog();
    for (const auto& entry : log) {
      if (entry.kind == Kind::kDefine) uids[entry.plan.name] = entry.plan.uid;
    }
    return log;
  };
  ask("a");
  ask("b");
  sequencer.OnReady(0, uids["a"], 0);
  sequencer.TakeLog();
  const auto log = ask("c");
  ASSERT_THAT(Kinds(log), ElementsAre(Kind::kForget, Kind::kDefine, Kind::kExecute));
  EXPECT_EQ(log[0].uid, uids["b"]);
}

TEST(Sequencer, APartlyReadyPlanIsNotEvicted) {
  Sequencer sequencer(Options(2, 1));
  for (int m = 0; m < 2; ++m) sequencer.OnRequest(m, {"a", Allreduce()});
  const uint64_t a = sequencer.TakeLog()[0].plan.uid;
  sequencer.OnReady(0, a, 0);
  for (int m = 0; m < 2; ++m) sequencer.OnRequest(m, {"b", Allreduce()});
  const auto log = sequencer.TakeLog();
  ASSERT_THAT(Kinds(log), ElementsAre(Kind::kDefine, Kind::kExecute));
  EXPECT_FALSE(log[0].plan.cached);
  sequencer.OnReady(1, a, 0);
  EXPECT_THAT(Kinds(sequencer.TakeLog()), ElementsAre(Kind::kExecute));
}

TEST(Sequencer, EvictionInTheBatchOfTheLastExecutionComesAfterIt) {
  Sequencer sequencer(Options(1, 1));
  sequencer.OnRequest(0, {"a", Allreduce()});
  sequencer.OnRequest(0, {"b", With(OpKind::kBroadcast, {3})});
  const auto log = sequencer.TakeLog();
  ASSERT_THAT(Kinds(log), ElementsAre(Kind::kDefine, Kind::kDefine, Kind::kExecute, Kind::kExecute, Kind::kForget));
  EXPECT_EQ(log[4].uid, log[0].plan.uid);
}

TEST(Sequencer, ContradictionBeforeTheOthersReady) {
  Sequencer sequencer(Options(2));
  for (int m = 0; m < 2; ++m) sequencer.OnRequest(m, {"x", Allreduce()});
  const uint64_t uid = sequencer.TakeLog()[0].plan.uid;
  sequencer.OnRequest(1, {"x", Allreduce({5})});
  auto log = sequencer.TakeLog();
  ASSERT_THAT(Kinds(log), ElementsAre(Kind::kForget));
  EXPECT_EQ(log[0].uid, uid);
  sequencer.OnReady(0, uid, 0);  // was under way: ignored
  EXPECT_TRUE(sequencer.TakeLog().empty());
  sequencer.OnRequest(0, {"x", Allreduce({4})});
  EXPECT_THAT(Kinds(sequencer.TakeLog()), ElementsAre(Kind::kError));
}

TEST(Sequencer, ContradictionAfterTheOthersReady) {
  Sequencer sequencer(Options(3));
  for (int m = 0; m < 3; ++m) sequencer.OnRequest(m, {"x", Allreduce()});
  const uint64_t uid = sequencer.TakeLog()[0].plan.uid;
  sequencer.OnReady(0, uid, 0);
  sequencer.OnRequest(2, {"x", Allreduce()});     // behind: counts as ready, and is kept
  sequencer.OnRequest(1, {"x", Allreduce({5})});  // contradicts
  EXPECT_THAT(Kinds(sequencer.TakeLog()), ElementsAre(Kind::kForget));
  EXPECT_THAT(sequencer.Pending()[0].missing, ElementsAre(0));
  sequencer.OnRequest(0, {"x", Allreduce()});  // sent again because of kForget
  EXPECT_THAT(Kinds(sequencer.TakeLog()), ElementsAre(Kind::kError));
  // The name is free again.
  for (int m = 0; m < 3; ++m) sequencer.OnRequest(m, {"x", Allreduce({5})});
  EXPECT_THAT(Kinds(sequencer.TakeLog()), ElementsAre(Kind::kDefine, Kind::kExecute));
}

TEST(Sequencer, AllMembersMayChangeTheirMindTogether) {
  Sequencer sequencer(Options(2));
  for (int m = 0; m < 2; ++m) sequencer.OnRequest(m, {"x", Allreduce({4})});
  sequencer.TakeLog();
  for (int m = 0; m < 2; ++m) sequencer.OnRequest(m, {"x", Allreduce({5})});
  EXPECT_THAT(Kinds(sequencer.TakeLog()), ElementsAre(Kind::kForget, Kind::kDefine, Kind::kExecute));
}

TEST(Sequencer, AllgatherCarriesFirstDimensionsAndStaysCached) {
  Sequencer sequencer(Options(2));
  sequencer.OnRequest(0, {"g", With(OpKind::kAllgather, {3, 2})});
  sequencer.OnRequest(1, {"g", With(OpKind::kAllgather, {0, 2})});
  auto log = sequencer.TakeLog();
  ASSERT_THAT(Kinds(log), ElementsAre(Kind::kDefine, Kind::kExecute));
  EXPECT_EQ(log[0].plan.signature.shape, (Shape{0, 2}));
  EXPECT_THAT(log[1].executions[0].first_dims, ElementsAre(3, 0));
  sequencer.OnRequest(1, {"g", With(OpKind::kAllgather, {7, 2})});
  sequencer.OnReady(0, log[0].plan.uid, 1);
  log = sequencer.TakeLog();
  ASSERT_THAT(Kinds(log), ElementsAre(Kind::kExecute));
  EXPECT_THAT(log[0].executions[0].first_dims, ElementsAre(1, 7));
}

TEST(Sequencer, AlltoallStaysCachedWhileAllSplitsAreEqual) {
  const auto alltoall = [](std::vector<int64_t> splits) {
    Signature s = With(OpKind::kAlltoall, {0, 2});
    for (const int64_t rows : splits) s.shape[0] += rows;
    s.numbers = std::move(splits);
    return s;
  };
  Sequencer sequencer(Options(2));
  sequencer.OnRequest(0, {"a", alltoall({3, 3})});
  sequencer.OnRequest(1, {"a", alltoall({0, 0})});
  auto log = sequencer.TakeLog();
  ASSERT_THAT(Kinds(log), ElementsAre(Kind::kDefine, Kind::kExecute));
  EXPECT_TRUE(log[0].plan.cached);
  EXPECT_THAT(log[1].executions[0].first_dims, ElementsAre(3, 3, 0, 0));
  const uint64_t uid = log[0].plan.uid;
  sequencer.OnReady(0, uid, 4);
  sequencer.OnRequest(1, {"a", alltoall({5, 5})});
  log = sequencer.TakeLog();
  ASSERT_THAT(Kinds(log), ElementsAre(Kind::kExecute));
  EXPECT_THAT(log[0].executions[0].first_dims, ElementsAre(2, 2, 5, 5));
  // Other splits on one rank: all must tell theirs, and nothing is kept.
  sequencer.OnReady(0, uid, 4);
  sequencer.OnRequest(1, {"a", alltoall({1, 5})});
  ASSERT_THAT(Kinds(sequencer.TakeLog()), ElementsAre(Kind::kForget));
  sequencer.OnRequest(0, {"a", alltoall({2, 2})});
  log = sequencer.TakeLog();
  ASSERT_THAT(Kinds(log), ElementsAre(Kind::kDefine, Kind::kExecute));
  EXPECT_FALSE(log[0].plan.cached);
  EXPECT_THAT(log[1].executions[0].first_dims, ElementsAre(2, 2, 1, 5));
}

TEST(Sequencer, FusesWhatIsReadyTogether) {
  auto options = Options(1);
  options.fusion_threshold = 64;
  Sequencer sequencer(options);
  Signature doubles = Allreduce({1});
  doubles.dtype = DType::kFloat64;
  sequencer.OnRequest(0, {"a", Allreduce({8})});    // 32 bytes
  sequencer.OnRequest(0, {"b", doubles});           // another kind
  sequencer.OnRequest(0, {"c", Allreduce({100})});  // alone
  sequencer.OnRequest(0, {"d", Allreduce({8})});    // fills a's group
  sequencer.OnRequest(0, {"e", Allreduce({1})});    // the next group
  std::map<uint64_t, std::string> names;
  std::vector<std::string> groups;
  for (const LogEntry& entry : sequencer.TakeLog()) {
    if (entry.kind == Kind::kDefine) names[entry.plan.uid] = entry.plan.name;
    if (entry.kind != Kind::kExecute) continue;
    std::string group;
    for (const Execution& execution : entry.executions) group += names.at(execution.uid);
    groups.push_back(group);
  }
  EXPECT_THAT(groups, ElementsAre("ad", "b", "c", "e"));
}

TEST(Sequencer, KnowsWhetherAllThatIsReadyIsSmallAndMayShareAnEntry) {
  Sequencer sequencer(Options(1));
  const auto ready = [&](const char* name, const Signature& signature) {
    sequencer.TakeLog();
    sequencer.OnRequest(0, {name, signature});
    const bool is_new = !sequencer.HasOnlySmall(1 << 10);
    sequencer.TakeLog();
    sequencer.OnRequest(0, {name, signature});
    return is_new;
  };
  EXPECT_FALSE(sequencer.HasOnlySmall(1 << 10)) << "nothing is ready";
  EXPECT_TRUE(ready("a", Allreduce({64}))) << "a plan that is new is to be known at once";
  EXPECT_TRUE(sequencer.HasOnlySmall(256));
  EXPECT_FALSE(sequencer.HasOnlySmall(255));
  sequencer.OnRequest(0, {"a", Allreduce({64})});
  EXPECT_TRUE(sequencer.HasOnlySmall(512));
  EXPECT_FALSE(sequencer.HasOnlySmall(511)) << "together";
  sequencer.TakeLog();
  EXPECT_FALSE(sequencer.HasOnlySmall(512));
  ready("b", With(OpKind::kBroadcast, {1}));
  EXPECT_FALSE(sequencer.HasOnlySmall(1 << 10)) << "shares no entry";
  ready("a", Allreduce({64}));
  sequencer.OnRequest(0, {"a", Allreduce({65})});
  EXPECT_FALSE(sequencer.HasOnlySmall(1 << 10)) << "a plan is forgotten";
  sequencer.TakeLog();
  sequencer.SetFusionThreshold(0);
  sequencer.OnRequest(0, {"a", Allreduce({65})});
  EXPECT_FALSE(sequencer.HasOnlySmall(1 << 10)) << "nothing is fused";
}

TEST(Sequencer, TheFusionThresholdMayChangeBetweenEntries) {
  Sequencer sequencer(Options(1));
  const auto batches = [&] {
    for (const char* name : {"a", "b", "c"}) sequencer.OnRequest(0, {name, Allreduce({8})});  // 32 bytes each
    const auto log = sequencer.TakeLog();
    return std::ranges::count(log, Kind::kExecute, &LogEntry::kind);
  };
  EXPECT_EQ(batches(), 1);
  sequencer.SetFusionThreshold(64);
  EXPECT_EQ(batches(), 2);
  sequencer.SetFusionThreshold(0);
  EXPECT_EQ(batches(), 3);
}

TEST(Sequencer, PendingNamesTheMissing) {
  Sequencer sequencer(Options(3));
  sequencer.OnRequest(2, {"z", With(OpKind::kBarrier, {})});
  sequencer.OnRequest(1, {"a", Allreduce()});
  sequencer.OnRequest(0, {"a", Allreduce()});
  const auto pending = sequencer.Pending();
  ASSERT_EQ(pending.size(), 2u);
  EXPECT_EQ(pending[0].name, "z");
  EXPECT_EQ(pending[0].signature->op, OpKind::kBarrier);
  EXPECT_THAT(pending[0].missing, ElementsAre(0, 1));
  EXPECT_THAT(pending[1].missing, ElementsAre(2));
  EXPECT_THAT(sequencer.Awaited(), ElementsAre(0, 1, 2));
}

TEST(Sequencer, AwaitedIsWhoeverIsMissingAnywhere) {
  Sequencer sequencer(Options(3));
  EXPECT_THAT(sequencer.Awaited(), ElementsAre());
  sequencer.OnRequest(1, {"a", Allreduce()});
  sequencer.OnRequest(1, {"a", Allreduce()});  // replaces the first
  EXPECT_THAT(sequencer.Awaited(), ElementsAre(0, 2));
  Signature join;
  join.op = OpKind::kJoin;
  sequencer.OnRequest(2, {std::string(kJoinName), join});
  EXPECT_THAT(sequencer.Awaited(), ElementsAre(0, 1)) << "who joined wants everything, and the join lacks the others";
  sequencer.OnRequest(0, {"a", Allreduce()});
  EXPECT_THAT(sequencer.Awaited(), ElementsAre(0, 1));
  for (int m = 0; m < 2; ++m) sequencer.OnRequest(m, {std::string(kJoinName), join});
  EXPECT_THAT(sequencer.Awaited(), ElementsAre());
}

TEST(Sequencer, StrangersAndUnknownUidsAreIgnored) {
  Sequencer sequencer(Options(1));
  sequencer.OnRequest(-1, {"x", Allreduce()});
  sequencer.OnRequest(1, {"x", Allreduce()});
  sequencer.OnReady(0, 12345, 0);
  sequencer.OnReady(7, 1, 0);
  EXPECT_TRUE(sequencer.TakeLog().empty());
}

}  // namespace
}  // namespace hvd::controller
