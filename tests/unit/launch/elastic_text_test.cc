// SPDX-License-Identifier: Apache-2.0
// The texts of elastic jobs: keys of the store, lines of discovery scripts, lines for the user.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "hvd/launch/elastic/discovery.h"
#include "hvd/launch/elastic/messages.h"
#include "hvd/launch/elastic/recovery.h"

namespace hvd::launch::elastic {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;

TEST(ElasticMessages, ReadWhatProcessesSet) {
  const auto ready =
      ReadNote("elastic/ready/3", "request 2\ngeneration 5\nheld 4 41\nsets 1*:0,3\ncause rank 1 was killed");
  ASSERT_TRUE(ready);
  EXPECT_EQ(ready->kind, Note::Kind::kReady);
  EXPECT_EQ(ready->process, 3);
  EXPECT_EQ(ready->ready.request, 2);
  EXPECT_EQ(ready->ready.generation, 5);
  EXPECT_EQ(ready->ready.aligned, 4);
  EXPECT_EQ(ready->ready.commit, 41);
  EXPECT_EQ(ready->ready.sets, "1*:0,3");
  EXPECT_EQ(ready->ready.cause, "rank 1 was killed");
  EXPECT_EQ(ReadNote("elastic/committed/7", "12")->generation, 12);
  EXPECT_EQ(ReadNote("elastic/done/7", "")->process, 7);
  EXPECT_EQ(ReadNote("hvd/9/0a1b/verdict", "ok")->generation, 9);
}

TEST(ElasticMessages, IgnoreWhatIsDamagedOrForOthers) {
  for (const char* key : {"elastic/ready/x", "elastic/ready/", "elastic/done/1x", "hvd/at/0", "elastic/view/1/1"}) {
    EXPECT_FALSE(ReadNote(key, "request 1\ngeneration 0\nheld 0 -1")) << key;
  }
  for (const char* value : {"", "request", "request 0", "request 1\nheld 1", "request 1\nheld 1 2 3", "request -4"}) {
    EXPECT_FALSE(ReadNote("elastic/ready/1", value)) << value;
  }
  EXPECT_FALSE(ReadNote("hvd/9/0a1b/verdict", "3 broken"));
}

TEST(ElasticMessages, WriteTheViewOfEachMember) {
  View view{.generation = 3, .members = {{4, {.rank = 0}}, {7, {.rank = 1}}}, .synced = {0}, .commit = 12};
  const Slot slot{.rank = 1, .local_rank = 1, .local_size = 2, .cross_rank = 0, .cross_size = 1};
  EXPECT_EQ(ViewText(view, slot, 5, "1*:4", "rank 2 joins"),
            "view\ngeneration 3\nranks 1 2 1 2 0 1\nmembers 4 7\nsynced 0\ncommit 12\nnews 5\nsets 1*:4\n"
            "reason rank 2 joins");
  EXPECT_EQ(NewsText(3, 1, News::kAdded), "3 1 2");
}

TEST(ElasticDiscovery, ReadsHostsStrictly) {
  EXPECT_THAT(*ReadHosts("a:2\n\n  b:1 \na:2\n", "x", {}), ElementsAre(Host{"a", 2}, Host{"b", 1}));
  EXPECT_THAT(*ReadHosts("a\nb\n", "x", 4), ElementsAre(Host{"a", 4}, Host{"b", 4}));
  EXPECT_THAT(*ReadHosts("\n", "x", {}), ElementsAre());
  const auto error = [](const char* text) { return ReadHosts(text, "x.sh", {}).error().message; };
  EXPECT_THAT(error("a\n"), HasSubstr("--host-discovery-script x.sh: 'a' has no number of slots: print a:SLOTS"));
  EXPECT_THAT(error("a:1,b:1\n"), HasSubstr("'a:1,b:1': expected one HOST or HOST:SLOTS per line"));
  EXPECT_THAT(error("$(reboot):1\n"), HasSubstr("'$(reboot):1': expected HOST or HOST:SLOTS"));
  EXPECT_THAT(error("a:0\n"), HasSubstr("expected a number of slots from 1"));
}

TEST(ElasticRecovery, SaysWhatHappenedInOneLine) {
  Ending killed;
  killed.signal = 9;
  const Change lost{Change::Kind::kLost, 2, 42, "node", killed};
  EXPECT_EQ(RecoveryLine({lost}, 3, 41, false, 0.049),
            "rank 2 (pid 42, node) was killed by signal 9; 3 ranks go on from commit 41, 0.05 s");
  EXPECT_EQ(RecoveryLine({{Change::Kind::kAdded, 1, 43, "node", {}}}, 1, -1, true, 1),
            "rank 1 (pid 43, node) joins; 1 rank goes on from the start, 1.00 s; a complete commit was lost "
            "with all ranks that held it");
  EXPECT_EQ(Summary({.recoveries = 3, .rollbacks = 1, .lost_s = 1.44}), "3 recoveries, 1 rollback, 1.4 s lost");
}

}  // namespace
}  // namespace hvd::launch::elastic
