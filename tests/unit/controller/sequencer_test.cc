// SPDX-License-Identifier: Apache-2.0
#include "hvd/controller/sequencer.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>

#include "hvd/controller/plan_book.h"

namespace hvd::controller {
namespace {

using Kind = LogEntry::Kind;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::StartsWith;

SequencerOptions Options(int members, int64_t capacity = 16) {
  SequencerOptions options;
  options.process_set = 2;
  for (int i = 0; i < members; ++i) options.members.push_back(10 + i);
  options.cache_capacity = capacity;
  options.fusion_threshold = 1 << 20;
  return options;
}

Signature Allreduce(Shape shape = {4}) {
  Signature s;
  s.shape = std::move(shape);
  return s;
}

Signature With(OpKind op, Shape shape) {
  Signature s = Allreduce(std::move(shape));
  s.op = op;
  return s;
}

std::vector<Kind> Kinds(const std::vector<LogEntry>& log) {
  std::vector<Kind> kinds;
  for (const LogEntry& entry : log) kinds.push_back(entry.kind);
  return kinds;
}

// All members of a fresh sequencer ask for 'x'; the text of the error, or "".
std::string Negotiate(const std::vector<Signature>& signatures) {
  Sequencer sequencer(Options(static_cast<int>(signatures.size())));
  for (size_t i = 0; i < signatures.size(); ++i) sequencer.OnRequest(static_cast<int>(i), {"x", signatures[i]});
  for (const LogEntry& entry : sequencer.TakeLog()) {
    if (entry.kind != Kind::kError) continue;
    EXPECT_EQ(entry.error.code, Code::kFailedPrecondition);
    EXPECT_EQ(entry.name, "x");
    return entry.error.message;
  }
  return "";
}

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

TEST(Sequencer, AllgatherThatCannotBeCountedFails) {
  const int64_t huge = int64_t{1} << 60;
  EXPECT_THAT(Negotiate({With(OpKind::kAllgather, {huge}), With(OpKind::kAllgather, {huge})}),
              HasSubstr("too many bytes"));
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

// Names and texts of the errors in a log.
std::vector<std::string> Errors(const std::vector<LogEntry>& log) {
  std::vector<std::string> errors;
  for (const LogEntry& entry : log) {
    if (entry.kind == Kind::kError) errors.push_back(entry.name + ": " + entry.error.message);
  }
  return errors;
}

TEST(Sequencer, GroupsOfDifferentLengthFailWhenAllHaveAskedForTheirs) {
  Sequencer sequencer(Options(3));
  sequencer.OnRequest(0, {"grouped_allreduce.g_1of1", Allreduce()});
  for (const int m : {1, 2}) sequencer.OnRequest(m, {"grouped_allreduce.g_1of2", Allreduce()});
  sequencer.OnRequest(1, {"grouped_allreduce.g_2of2", Allreduce()});
  EXPECT_TRUE(sequencer.TakeLog().empty()) << "member 2 has not asked for all of its group";
  sequencer.OnRequest(2, {"grouped_allreduce.g_2of2", Allreduce()});
  const std::string text =
      ": Mismatched group lengths: One rank gave a group of 1, but another rank gave a group of 2: rank 10 has 1, "
      "ranks "
      "[11, 12] have 2, for 'grouped_allreduce.g' in process set 2.";
  EXPECT_THAT(Errors(sequencer.TakeLog()),
              ElementsAre("grouped_allreduce.g_1of1" + text, "grouped_allreduce.g_1of2" + text,
                          "grouped_allreduce.g_2of2" + text));
  EXPECT_TRUE(sequencer.idle());
  EXPECT_THAT(sequencer.Awaited(), ElementsAre());
  // The name is free again.
  for (int m = 0; m < 3; ++m) sequencer.OnRequest(m, {"grouped_allreduce.g_1of1", Allreduce()});
  EXPECT_THAT(Kinds(sequencer.TakeLog()), ElementsAre(Kind::kDefine, Kind::kExecute));
}

TEST(Sequencer, GroupsOfDifferentLengthWithPlansFail) {
  Sequencer sequencer(Options(2));
  std::map<std::string, uint64_t> uids;
  for (const std::string name : {"grouped_allgather.g_1of1", "grouped_allgather.g_1of2", "grouped_allgather.g_2of2"}) {
    for (int m = 0; m < 2; ++m) sequencer.OnRequest(m, {name, Allreduce()});
    uids[name] = sequencer.TakeLog()[0].plan.uid;
  }
  sequencer.OnReady(0, uids["grouped_allgather.g_1of2"], 0);
  sequencer.OnReady(0, uids["grouped_allgather.g_2of2"], 0);
  sequencer.OnReady(1, uids["grouped_allgather.g_1of1"], 0);
  EXPECT_EQ(Errors(sequencer.TakeLog()).size(), 3u);
  EXPECT_TRUE(sequencer.idle());
  for (int m = 0; m < 2; ++m) sequencer.OnReady(m, uids["grouped_allgather.g_1of1"], 0);
  EXPECT_THAT(Kinds(sequencer.TakeLog()), ElementsAre(Kind::kExecute)) << "plans are still known";
}

TEST(Sequencer, GroupsOfDifferentLengthWhileSomeHaveJoined) {
  Sequencer sequencer(Options(3));
  sequencer.OnRequest(0, {"grouped_allreduce.g_1of1", Allreduce()});
  for (const std::string name : {"grouped_allreduce.g_1of2", "grouped_allreduce.g_2of2"}) {
    sequencer.OnRequest(1, {name, Allreduce()});
  }
  EXPECT_TRUE(sequencer.TakeLog().empty());
  Signature join;
  join.op = OpKind::kJoin;
  sequencer.OnRequest(2, {std::string(kJoinName), join});
  EXPECT_EQ(Errors(sequencer.TakeLog()).size(), 3u);
  EXPECT_THAT(sequencer.Awaited(), ElementsAre(0, 1));
}

TEST(Sequencer, NamesThatOnlyLookLikeGroupsDoNotMatter) {
  for (const std::string name : {"w_1of", "w_0of2", "w_3of2", "w_01of2", "w_1of2x", "w1of2", "w_1of99999999999"}) {
    Sequencer sequencer(Options(2));
    sequencer.OnRequest(0, {"grouped_allreduce." + name, Allreduce()});
    sequencer.OnRequest(1, {"grouped_allreduce.w_1of1", Allreduce()});
    EXPECT_TRUE(sequencer.TakeLog().empty()) << name;
  }
  Sequencer sequencer(Options(2));
  sequencer.OnRequest(0, {"allreduce.w_1of1", Allreduce()});
  sequencer.OnRequest(1, {"allreduce.w_1of2", Allreduce()});
  sequencer.OnRequest(1, {"allreduce.w_2of2", Allreduce()});
  EXPECT_TRUE(sequencer.TakeLog().empty());
}

TEST(Sequencer, StrangersAndUnknownUidsAreIgnored) {
  Sequencer sequencer(Options(1));
  sequencer.OnRequest(-1, {"x", Allreduce()});
  sequencer.OnRequest(1, {"x", Allreduce()});
  sequencer.OnReady(0, 12345, 0);
  sequencer.OnReady(7, 1, 0);
  EXPECT_TRUE(sequencer.TakeLog().empty());
}

TEST(Disagreement, DataTypesNameRanksAndValues) {
  Signature other = Allreduce();
  other.dtype = DType::kFloat64;
  EXPECT_EQ(Negotiate({Allreduce(), other, Allreduce(), other}),
            "Mismatched data types: One rank had type float32, but another rank had type float64: ranks [10, 12] have "
            "float32, ranks [11, 13] have float64, for ALLREDUCE of tensor 'x' in process set 2.");
}

TEST(Disagreement, Operations) {
  EXPECT_EQ(
      Negotiate({Allreduce(), With(OpKind::kAllgather, {4})}),
      "Mismatched operations: One rank did an ALLREDUCE, but another rank did an ALLGATHER: rank 10 has ALLREDUCE, "
      "rank 11 has ALLGATHER, for tensor 'x' in process set 2.");
}

TEST(Disagreement, TheFirstCheckWins) {
  Signature other = With(OpKind::kBroadcast, {9});
  other.dtype = DType::kInt8;
  other.device = Device::kCuda;
  EXPECT_THAT(Negotiate({Allreduce(), other}), StartsWith("Mismatched data types"));
  other.dtype = DType::kFloat32;
  EXPECT_THAT(Negotiate({Allreduce(), other}), StartsWith("Mismatched operations"));
  other.op = OpKind::kAllreduce;
  other.prescale = 2;
  EXPECT_THAT(Negotiate({Allreduce(), other}), StartsWith("Mismatched ALLREDUCE tensor shapes"));
  other.shape = {4};
  other.reduce_op = ReduceOp::kMax;
  EXPECT_THAT(Negotiate({Allreduce(), other}), StartsWith("Mismatched prescale and/or postscale factors"));
  other.prescale = 1;
  EXPECT_THAT(Negotiate({Allreduce(), other}), StartsWith("Mismatched reduction operation"));
  other.reduce_op = ReduceOp::kSum;
  EXPECT_THAT(Negotiate({Allreduce(), other}), StartsWith("Mismatched ALLREDUCE CPU/GPU device selection"));
}

TEST(Disagreement, Shapes) {
  EXPECT_THAT(Negotiate({Allreduce({2, 3}), Allreduce({3})}), HasSubstr("shape [2, 3], but another rank"));
  EXPECT_THAT(Negotiate({With(OpKind::kBroadcast, {2}), With(OpKind::kBroadcast, {3})}),
              StartsWith("Mismatched BROADCAST tensor shapes"));
  EXPECT_THAT(Negotiate({With(OpKind::kAllgather, {2, 3}), With(OpKind::kAllgather, {2})}),
              HasSubstr("sent a tensor of rank 2, but another rank sent a tensor of rank 1"));
  EXPECT_THAT(Negotiate({With(OpKind::kAllgather, {2, 3}), With(OpKind::kAllgather, {2, 4})}),
              HasSubstr("dimension 1 equal to 3, but another rank sent a tensor with dimension 1 equal to 4"));
  EXPECT_THAT(Negotiate({With(OpKind::kAllgather, {}), With(OpKind::kAllgather, {})}),
              HasSubstr("Process-set rank zero tried to ALLGATHER a rank-zero tensor"));
}

TEST(Disagreement, AverageAndSum) {
  Signature average = Allreduce();
  average.reduce_op = ReduceOp::kAverage;
  EXPECT_THAT(
      Negotiate({average, Allreduce()}),
      StartsWith("Mismatched reduction operation: One rank had op 0 (average), but another rank had op 1 (sum)"));
}

TEST(Disagreement, Roots) {
  Signature a = With(OpKind::kBroadcast, {2});
  Signature b = a;
  a.root = 10;
  b.root = 11;
  EXPECT_THAT(Negotiate({a, b, b}),
              StartsWith("Mismatched BROADCAST root ranks: One rank specified root rank 10, but another rank specified "
                         "root rank 11: rank 10 has 10, ranks [11, 12] have 11"));
}

TEST(Disagreement, FieldsThatTheOperationDoesNotUseAreIgnored) {
  Signature a = With(OpKind::kBroadcast, {2});
  Signature b = a;
  b.reduce_op = ReduceOp::kMax;
  b.prescale = 7;
  EXPECT_EQ(Negotiate({a, b}), "");
  b = Allreduce();
  b.root = 5;
  EXPECT_EQ(Negotiate({Allreduce(), b}), "");
}

TEST(Disagreement, LongListsAreShortened) {
  std::vector<Signature> signatures(100, Allreduce());
  signatures[99].dtype = DType::kInt8;
  EXPECT_THAT(Negotiate(signatures), HasSubstr("ranks [10, 11, 12, 13, 14, 15, 16, 17, ...] (99 in all) have float32"));
  for (int i = 0; i < 100; ++i) signatures[i] = Allreduce({i});
  const std::string text = Negotiate(signatures);
  EXPECT_THAT(text, HasSubstr("the others have 96 more values"));
  EXPECT_LT(text.size(), 500u);
}

TEST(PlanBook, FollowsTheLog) {
  PlanBook book;
  Sequencer sequencer(Options(1, 1));
  sequencer.OnRequest(0, {"a", Allreduce()});
  for (const auto& entry : sequencer.TakeLog()) book.Apply(entry);
  const PlanPtr a = book.FindByName("a");
  ASSERT_TRUE(a);
  EXPECT_EQ(book.Match({"a", Allreduce()}), a);
  EXPECT_FALSE(book.Match({"a", Allreduce({5})}));
  EXPECT_EQ(book.FindByUid(a->uid), a);
  book.Drop(a->uid);  // cached: stays
  EXPECT_EQ(book.size(), 1u);
  sequencer.OnRequest(0, {"b", Allreduce()});
  for (const auto& entry : sequencer.TakeLog()) book.Apply(entry);
  EXPECT_FALSE(book.FindByName("a"));
  EXPECT_FALSE(book.FindByUid(a->uid));
  EXPECT_EQ(a->name, "a");  // still held
  EXPECT_TRUE(book.FindByName("b"));
}

TEST(PlanBook, PlansThatAreNotCachedLiveUntilDropped) {
  PlanBook book;
  Sequencer sequencer(Options(1, 0));
  sequencer.OnRequest(0, {"a", Allreduce()});
  const auto log = sequencer.TakeLog();
  for (const auto& entry : log) book.Apply(entry);
  EXPECT_FALSE(book.FindByName("a"));
  EXPECT_TRUE(book.FindByUid(log[0].plan.uid));
  book.Drop(log[0].plan.uid);
  EXPECT_EQ(book.size(), 0u);
}

}  // namespace
}  // namespace hvd::controller
