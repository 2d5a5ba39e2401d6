// SPDX-License-Identifier: Apache-2.0
#include "hvd/algorithms/table.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <map>

#include "hvd/algorithms/change.h"
#include "hvd/algorithms/table_text.h"

namespace hvd::algorithms {
namespace {

using testing::AllOf;
using testing::HasSubstr;
using testing::Not;

constexpr size_t kSizes[] = {1,     4,     32,    33,    4 << 10, 8 << 10, (8 << 10) + 1,
                             21845, 21846, 65536, 65537, 1 << 20, 1 << 30};

std::string NameAt(const Table& table, OpKind op, Scope scope, int members, size_t bytes) {
  return std::string(WordFor(Pick(table.For(op, scope, members), bytes).algorithm));
}

Table With(const std::string& changes, const Limits& limits = {}) {
  auto table = Table::Make(limits, changes);
  EXPECT_TRUE(table) << table.error().message;
  return table ? *table : Table();
}

std::string Refusal(const std::string& changes) {
  const auto table = Table::Make({}, changes);
  EXPECT_FALSE(table) << changes;
  return table ? "" : table.error().message;
}

TEST(AlgorithmTable, TakesWhatWasMeasured) {
  const Table table;
  struct Case {
    OpKind op;
    Scope scope;
    int members;
    size_t bytes;
    const char* name;
  };
  const Case cases[] = {
      {OpKind::kAllreduce, Scope::kShm, 2, 4, "tiny"},
      {OpKind::kAllreduce, Scope::kShm, 2, 33, "inline"},
      {OpKind::kAllreduce, Scope::kShm, 2, 8 << 10, "direct"},
      {OpKind::kAllreduce, Scope::kNetwork, 2, 65536, "one_step"},
      {OpKind::kAllreduce, Scope::kNetwork, 2, 65537, "direct_reduce"},
      {OpKind::kAllreduce, Scope::kNetwork, 4, 21845, "one_step"},
      {OpKind::kAllreduce, Scope::kNetwork, 4, 21846, "direct_reduce"},
      {OpKind::kAllreduce, Scope::kMixed, 4, 21846, "direct_reduce"},
      {OpKind::kAllreduce, Scope::kMixed, 4, 65536, "direct_reduce"},
      {OpKind::kAllreduce, Scope::kMixed, 4, 65537, "hierarchical_reduce"},
      {OpKind::kAllgather, Scope::kMixed, 4, 1, "exchange"},
      {OpKind::kAlltoall, Scope::kNetwork, 3, 1, "exchange"},
      {OpKind::kBroadcast, Scope::kNetwork, 3, 1, "tree"},
      {OpKind::kReducescatter, Scope::kNetwork, 3, 1, "direct_scatter"},
  };
  for (const Case& one : cases) {
    EXPECT_EQ(NameAt(table, one.op, one.scope, one.members, one.bytes), one.name)
        << WordFor(one.op) << " " << WordFor(one.scope) << " " << one.members << " " << one.bytes;
  }
  EXPECT_EQ(table.For(OpKind::kAllreduce, Scope::kNetwork, 2).back().parameters.slice, 256u << 10);
  EXPECT_EQ(table.For(OpKind::kAllreduce, Scope::kNetwork, 3).back().parameters.slice, 64u << 10);
}

TEST(AlgorithmTable, EverySizeHasALineAndEveryLineASize) {
  const Table table;
  std::map<std::string, int> taken;
  for (const Scope scope : Scopes()) {
    for (const OpKind op : Operations()) {
      for (int members = 1; members <= 5; ++members) {
        auto choices = table.For(op, scope, members);
        ASSERT_FALSE(choices.empty());
        EXPECT_EQ(choices.back().bytes, Range{});
        for (const size_t bytes : kSizes) ++taken[NameAt(table, op, scope, members, bytes)];
        // Memory that is not in the arena passes by these.
        for (const Algorithm arena : {Algorithm::kDirect, Algorithm::kCopied}) {
          std::erase_if(choices, [&](const Choice& choice) { return choice.algorithm == arena; });
          for (const size_t bytes : kSizes) ++taken[std::string(WordFor(Pick(choices, bytes).algorithm))];
        }
      }
    }
  }
  for (const Line& line : table.lines()) EXPECT_GT(taken[std::string(WordFor(line.algorithm))], 0);
}

TEST(AlgorithmTable, LimitsFollowRanksAndSettings) {
  EXPECT_EQ(LimitsFor(2, -1, 65536).eager_bytes, 65536u);
  EXPECT_EQ(LimitsFor(5, -1, 65536).eager_bytes, 32768u);
  EXPECT_EQ(LimitsFor(16, -1, 65536).eager_bytes, 16384u);
  EXPECT_EQ(LimitsFor(1000, -1, 65536).eager_bytes, 4096u);
  EXPECT_EQ(LimitsFor(2, 100, 65536).eager_bytes, 100u);
  EXPECT_EQ(LimitsFor(2, 1 << 20, 65536).eager_bytes, 65536u);
  const Table table(Limits{100, 1 << 20});
  EXPECT_EQ(NameAt(table, OpKind::kAllgather, Scope::kShm, 2, 100), "inline");
  EXPECT_EQ(NameAt(table, OpKind::kAllgather, Scope::kShm, 2, 101), "staged");
  EXPECT_EQ(Pick(table.For(OpKind::kAllgather, Scope::kShm, 2), 1 << 20).parameters.chunk, 1u << 20);
}

TEST(AlgorithmTable, EveryAlgorithmCanBeForcedWhereItIs) {
  const Table usual;
  for (const Line& line : usual.lines()) {
    const std::string entry =
        fmt::format("{}:{}:{}=..", WordFor(line.op), WordFor(line.scope), WordFor(line.algorithm));
    const Table table = With(entry);
    EXPECT_EQ(NameAt(table, line.op, line.scope, 3, 4), WordFor(line.algorithm)) << entry;
    // Nothing else changed.
    for (const OpKind op : Operations()) {
      if (op == line.op) continue;
      EXPECT_EQ(NameAt(table, op, line.scope, 3, 4), NameAt(usual, op, line.scope, 3, 4)) << entry;
    }
  }
}

TEST(AlgorithmTable, ChangesMoveThresholds) {
  const Table moved = With(" allreduce:network:one_step = ..1M ;; any:shm:direct=none; ");
  EXPECT_EQ(NameAt(moved, OpKind::kAllreduce, Scope::kNetwork, 2, 1 << 20), "one_step");
  EXPECT_EQ(NameAt(moved, OpKind::kAllreduce, Scope::kNetwork, 2, (1 << 20) + 1), "direct_reduce");
  EXPECT_EQ(NameAt(moved, OpKind::kAllreduce, Scope::kNetwork, 3, 1 << 20), "direct_reduce");
  EXPECT_EQ(NameAt(moved, OpKind::kAllreduce, Scope::kMixed, 2, 65537), "hierarchical_reduce");
  EXPECT_EQ(NameAt(moved, OpKind::kReducescatter, Scope::kShm, 2, 1 << 20), "staged");
  EXPECT_EQ(NameAt(moved, OpKind::kBroadcast, Scope::kShm, 2, 1 << 20), "cma");
  // Less than it had: the rest goes to the others.
  const Table less = With("allreduce:network:one_step=..1K");
  EXPECT_EQ(NameAt(less, OpKind::kAllreduce, Scope::kNetwork, 2, 1025), "direct_reduce");
  // A last resort that comes first for some sizes stays the last resort.
  const Table first = With("allreduce:network:direct_reduce=..100");
  EXPECT_EQ(NameAt(first, OpKind::kAllreduce, Scope::kNetwork, 2, 100), "direct_reduce");
  EXPECT_EQ(NameAt(first, OpKind::kAllreduce, Scope::kNetwork, 2, 101), "one_step");
  EXPECT_EQ(NameAt(first, OpKind::kAllreduce, Scope::kNetwork, 2, 65537), "direct_reduce");
}

TEST(AlgorithmTable, LaterChangesCountMore) {
  const Table staged = With("any:shm:direct=4K..;allreduce:shm:staged=64..;any:shm:staged=128..");
  EXPECT_EQ(NameAt(staged, OpKind::kAllreduce, Scope::kShm, 2, 127), "inline");
  EXPECT_EQ(NameAt(staged, OpKind::kAllreduce, Scope::kShm, 2, 1 << 20), "staged");
  EXPECT_EQ(staged.lines().size(), Table().lines().size() + Operations().size());
  const Table direct = With("any:shm:direct=4K..;allreduce:shm:direct=1M..");
  EXPECT_EQ(NameAt(direct, OpKind::kAllreduce, Scope::kShm, 2, 512 << 10), "copied");
  EXPECT_EQ(NameAt(direct, OpKind::kAllgather, Scope::kShm, 2, 4 << 10), "direct");
  EXPECT_EQ(direct.lines().size(), Table().lines().size());
}

TEST(AlgorithmTable, ParametersChangeInAllLinesOfAnAlgorithm) {
  const Table table = With(
      "allreduce:any:direct_reduce:slice=128K;allreduce:network:direct_reduce=..1M;"
      "allreduce:mixed:hierarchical_reduce:chunk=1M");
  for (const int members : {2, 3}) {
    for (const Choice& choice : table.For(OpKind::kAllreduce, Scope::kNetwork, members)) {
      const bool direct = choice.algorithm == Algorithm::kDirectReduce;
      EXPECT_EQ(choice.parameters.slice, direct ? 128u << 10 : 0u);
    }
  }
  EXPECT_EQ(Pick(table.For(OpKind::kAllreduce, Scope::kMixed, 3), 1 << 20).parameters.chunk, 1u << 20);
}

TEST(AlgorithmTable, WrongChangesNameTheEntryAndWhatIsKnown) {
  const std::pair<const char*, const char*> cases[] = {
      {"direct", "\"direct\" is no entry: give operation:scope:algorithm=LEAST..MOST"},
      {"allreduce:network=1..2", "\"allreduce:network=1..2\" is no entry"},
      {"a:b:c:d:e=1..2", "\"a:b:c:d:e=1..2\" is no entry"},
      {"sum:shm:tiny=..4", "no operation is called \"sum\"; known: any, allreduce, allgather, broadcast, alltoall, re"},
      {"any:net:tiny=..4", "any:net:tiny=..4: no scope is called \"net\"; known: any, shm, network, mixed"},
      {"any:shm:any=..4", "no algorithm is called \"any\"; known: tiny, direct"},
      {"allreduce:shm:one_step=..4", "one_step is not for that; known there: tiny, direct, copied, inline, staged"},
      {"any:shm:direct=4K", "\"4K\" is no range of bytes: give LEAST..MOST"},
      {"any:shm:direct=4k..", "\"4k..\" is no range"},
      {"any:shm:direct=-1..", "is no range"},
      {"any:shm:direct=2..1", "is no range"},
      {"any:shm:direct=", "\"\" is no range"},
      {"any:shm:direct=99999999999G..", "is no range"},
      {"any:shm:tiny=..33", "tiny takes at most 32 bytes"},
      {"any:shm:tiny=33..", "tiny takes at most 32 bytes"},
      {"any:shm:inline=..128K", "inline takes at most 65536 bytes: the eager limit (HOROVOD_EAGER_LIMIT)"},
      {"any:shm:staged=none", "staged takes what nothing else takes"},
      {"any:shm:direct:size=4K", "no parameter is called \"size\"; known: chunk, slice, flight"},
      {"any:shm:direct:=4K", "no parameter is called \"\""},
      {"any:shm:direct:slice=4K", "direct has no such parameter to set"},
      {"any:shm:staged:chunk=4K", "HOROVOD_CHUNK_BYTES is its chunk"},
      {"any:shm:direct:chunk=1K", "\"1K\" is no size for chunk: give a multiple of 64 from 4K to 64M"},
      {"any:shm:direct:chunk=5000", "is no size for chunk"},
      {"any:shm:direct=none;any:shm:direct=1..", "any:shm:direct is given twice"},
  };
  for (const auto& [changes, text] : cases) {
    EXPECT_THAT(Refusal(changes), AllOf(HasSubstr("HOROVOD_ALGORITHMS: "), HasSubstr(text)));
  }
}

TEST(AlgorithmTable, SizesAreWrittenAsTheyAreRead) {
  EXPECT_EQ(SizeText(0), "0");
  EXPECT_EQ(SizeText(1000), "1000");
  EXPECT_EQ(SizeText(65536), "64K");
  EXPECT_EQ(SizeText(65537), "65537");
  EXPECT_EQ(SizeText(uint64_t{3} << 30), "3G");
}

TEST(AlgorithmText, ShowsAllLinesOrThoseOfALayout) {
  const Table table;
  const std::string all = Describe(table);
  for (const Line& line : table.lines()) EXPECT_THAT(all, HasSubstr(std::string(WordFor(line.algorithm))));
  EXPECT_THAT(all, HasSubstr("HOROVOD_ALGORITHMS"));

  EXPECT_EQ(ScopeOf({3}, true), Scope::kShm);
  EXPECT_EQ(ScopeOf({3}, false), Scope::kNetwork);
  EXPECT_EQ(ScopeOf({1, 1}, true), Scope::kNetwork);
  EXPECT_EQ(ScopeOf({1, 2}, true), Scope::kMixed);
  EXPECT_THAT(DescribeFor(table, {2, 2}, true),
              AllOf(HasSubstr("4 ranks on 2 hosts"), HasSubstr("..21845  one_step"), HasSubstr("hierarchical_reduce"),
                    Not(HasSubstr("tiny")), Not(HasSubstr("slice=256K flight"))));
  EXPECT_THAT(DescribeFor(table, {2, 2}, false), Not(HasSubstr("hierarchical_reduce")));
  EXPECT_THAT(DescribeFor(With("allreduce:shm:direct=none"), {2}, true),
              AllOf(HasSubstr("allreduce "), HasSubstr("allgather, broadcast, alltoall  8K..")));
}

TEST(AlgorithmTable, TunedSizesAreTheirShareOfTheMeasuredOnes) {
  const Table table;
  EXPECT_EQ(table.Tuned(100, kMostParameter).lines(), table.lines());
  const Table half = table.Tuned(50, kMostParameter);
  ASSERT_EQ(half.lines().size(), table.lines().size());
  for (size_t i = 0; i < table.lines().size(); ++i) {
    EXPECT_EQ(half.lines()[i].parameters.chunk, table.lines()[i].parameters.chunk / 2);
    EXPECT_EQ(half.lines()[i].parameters.slice, table.lines()[i].parameters.slice / 2);
    EXPECT_EQ(half.lines()[i].parameters.flight, table.lines()[i].parameters.flight);
  }
  EXPECT_EQ(NameAt(table, OpKind::kAllgather, Scope::kShm, 2, 7000), "inline");
  EXPECT_EQ(NameAt(table.Tuned(100, 6000), OpKind::kAllgather, Scope::kShm, 2, 7000), "staged");
  // What is beside a mark is one chunk.
  EXPECT_EQ(NameAt(Table({4096, 16384}).Tuned(50, kMostParameter), OpKind::kAllgather, Scope::kShm, 2, 4096), "inline");
  EXPECT_EQ(NameAt(Table({6400, 6400}).Tuned(50, kMostParameter), OpKind::kAllgather, Scope::kShm, 2, 6400), "staged");
  const Table least = table.Tuned(1, 0);
  for (const Line& line : least.lines()) {
    EXPECT_GE(line.parameters.chunk + line.parameters.slice, line.parameters == Parameters{} ? 0 : kLeastParameter);
  }
}

TEST(AlgorithmTable, WhatWasTunedCanBeGivenToTheNextJob) {
  const Table table;
  for (const Scope scope : Scopes()) {
    for (const int members : {2, 4}) {
      for (const int percent : {25, 50, 200}) {
        const Table tuned = table.Tuned(percent, kMostParameter);
        const Table given = With(ChangesBetween(table, tuned, scope, members));
        for (const OpKind op : Operations()) {
          const auto want = tuned.For(op, scope, members);
          const auto have = given.For(op, scope, members);
          ASSERT_EQ(have.size(), want.size());
          for (size_t i = 0; i < want.size(); ++i) {
            if (want[i].algorithm == Algorithm::kStaged) continue;
            EXPECT_EQ(have[i].parameters, want[i].parameters);
          }
        }
      }
    }
  }
  EXPECT_EQ(ChangesBetween(table, table, Scope::kShm, 2), "");
  EXPECT_EQ(ChangesBetween(table, table.Tuned(50, kMostParameter), Scope::kShm, 2),
            "any:shm:direct:chunk=256K;any:shm:copied:chunk=128K");
}

}  // namespace
}  // namespace hvd::algorithms
