// SPDX-License-Identifier: Apache-2.0
// Members that ask for different things under one name: what all of them are told.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <limits>
#include <vector>

#include "hvd/controller/agreement_check.h"
#include "hvd/controller/sequencer.h"
#include "tests/unit/controller/requests.h"

namespace hvd::controller {
namespace {

using Kind = LogEntry::Kind;
using ::testing::HasSubstr;
using ::testing::StartsWith;

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

TEST(Disagreement, AllgatherThatCannotBeCountedFails) {
  const int64_t huge = int64_t{1} << 60;
  EXPECT_THAT(Negotiate({With(OpKind::kAllgather, {huge}), With(OpKind::kAllgather, {huge})}),
              HasSubstr("too many bytes"));
}

TEST(RowsFit, OneNumberOfEachMember) {
  const Signature own = With(OpKind::kAllgather, {2, 3});
  EXPECT_TRUE(RowsFit(own, std::vector<int64_t>{5, 2, 0}, 3, 1));
  EXPECT_FALSE(RowsFit(own, std::vector<int64_t>{5, 2}, 3, 1));
  EXPECT_FALSE(RowsFit(own, std::vector<int64_t>{5, 2, 0, 0}, 3, 1));
  EXPECT_FALSE(RowsFit(own, {}, 3, 1));
  EXPECT_FALSE(RowsFit(With(OpKind::kAllgather, {}), std::vector<int64_t>{5, 2, 0}, 3, 1)) << "a scalar has no rows";
  EXPECT_TRUE(RowsFit(With(OpKind::kReducescatter, {6}), {}, 3, 1)) << "all know its rows";
}

TEST(RowsFit, NoMoreThanThisMemberHas) {
  EXPECT_FALSE(RowsFit(With(OpKind::kAllgather, {2, 3}), std::vector<int64_t>{5, 3, 0}, 3, 1));
  const Signature own = With(OpKind::kAlltoall, {4});
  EXPECT_TRUE(RowsFit(own, std::vector<int64_t>{1, 9, 3, 1}, 2, 1));
  EXPECT_FALSE(RowsFit(own, std::vector<int64_t>{1, 9, 3, 2}, 2, 1));
}

TEST(RowsFit, WhatCannotBeCounted) {
  const int64_t huge = int64_t{1} << 60;
  const int64_t most = std::numeric_limits<int64_t>::max();
  const Signature own = With(OpKind::kAllgather, {2, 4});
  EXPECT_FALSE(RowsFit(own, std::vector<int64_t>{-1, 2}, 2, 1));
  EXPECT_FALSE(RowsFit(own, std::vector<int64_t>{huge, 2}, 2, 1)) << "the product";
  EXPECT_FALSE(RowsFit(own, std::vector<int64_t>{most, 2}, 2, 1)) << "the sum";
  EXPECT_FALSE(RowsFit(With(OpKind::kAlltoall, {0}), std::vector<int64_t>{most, most, 0, 0}, 2, 1));
}

}  // namespace
}  // namespace hvd::controller
