// SPDX-License-Identifier: Apache-2.0
// Groups whose members differ in how many they are.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <map>
#include <string>

#include "hvd/controller/sequencer.h"
#include "tests/unit/controller/requests.h"

namespace hvd::controller {
namespace {

using Kind = LogEntry::Kind;
using ::testing::ElementsAre;

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

}  // namespace
}  // namespace hvd::controller
