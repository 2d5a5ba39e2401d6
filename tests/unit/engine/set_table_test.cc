// SPDX-License-Identifier: Apache-2.0
#include "hvd/engine/process_set/set_table.h"

#include <gtest/gtest.h>

#include <optional>

namespace hvd::engine {
namespace {

std::unique_ptr<ProcessSet> MakeSet(int id) {
  ProcessSetOptions options;
  options.id = options.serial = id;
  options.ranks = {0};
  options.me = 0;
  options.sequencer.members = {0};
  return std::make_unique<ProcessSet>(std::move(options));
}

TEST(SetTable, IdsAreGivenOutAgain) {
  SetTable table;
  for (int id = 0; id < 3; ++id) {
    EXPECT_EQ(table.NextId(), id);
    table.Add(MakeSet(id));
  }
  table.Remove(1);
  EXPECT_EQ(table.Find(1), nullptr);
  EXPECT_NE(table.Find(2), nullptr);
  EXPECT_EQ(table.NextId(), 1);
}

TEST(SetTable, IdsThatAreLeftOutAreGivenOutFirst) {
  SetTable table;
  for (const int id : {0, 2, 3}) table.Add(MakeSet(id));
  EXPECT_EQ(table.NextId(), 1);
  table.Add(MakeSet(1));
  EXPECT_EQ(table.NextId(), 4);
}

TEST(SetTable, ARemovedSetStaysForWhoMayHaveFoundIt) {
  SetTable table;
  table.Add(MakeSet(0));
  table.Add(MakeSet(1));
  std::optional<SetTable::Pin> pin(&table);
  const ProcessSet* found = table.Find(1);
  table.Remove(1);
  EXPECT_FALSE(table.reclaimable());
  EXPECT_EQ(found->id(), 1);
  pin.reset();
  ASSERT_TRUE(table.reclaimable());
  EXPECT_EQ(table.Reclaim().size(), 1u);
  EXPECT_FALSE(table.reclaimable());
  EXPECT_EQ(table.size(), 1u);
}

TEST(SetTable, NothingToReclaimWhereNothingWasRemoved) {
  SetTable table;
  table.Add(MakeSet(0));
  EXPECT_FALSE(table.reclaimable());
  const SetTable::Pin none(nullptr);
}

}  // namespace
}  // namespace hvd::engine
