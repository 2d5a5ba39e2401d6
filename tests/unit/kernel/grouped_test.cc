// SPDX-License-Identifier: Apache-2.0
#include <numeric>

#include "tests/unit/kernel/fixture.h"

namespace hvd::kernel {
namespace {

class GroupedTest : public KernelTest {};

TEST_F(GroupedTest, EqualsReference) {
  const std::vector<std::vector<int>> layouts = {{1},    {5},       {1, 1, 1},    {2, 2},
                                                 {1, 3}, {3, 1, 2}, {2, 2, 2, 2}, {1, 1, 6}};
  for (int t = 0; t < kDTypeCount; ++t) {
    const auto type = static_cast<DType>(t);
    for (const std::vector<int>& groups : layouts) {
      const size_t sources = static_cast<size_t>(std::accumulate(groups.begin(), groups.end(), 0));
      for (ReduceOp op : kOps) {
        for (const Scale scale : {Scale{}, Scale{.pre = 0.7, .post = 1}, Scale{.pre = 1, .post = 0.3}, Scale{3, 0.5}}) {
          if (!Supports(op, type) || (type == DType::kBool && (scale.pre != 1 || scale.post != 1))) continue;
          for (size_t count : {size_t{1}, size_t{17}, size_t{2500}}) {
            const Sources in = MakeSources(type, sources, count);
            const Buffer expected = reference::Reduce(op, type, in.pointers, groups, count, scale);
            for (const Table& table : Tables()) {
              ForceTable(&table);
              Buffer a(count * SizeOf(type));
              Buffer b(count * SizeOf(type));
              void* const to[] = {a.data(), b.data()};
              ReduceGrouped(op, type, in.pointers, groups, to, count, scale);
              const std::string what = Describe(table, op, type, sources, count);
              ExpectSame(type, expected.data(), a.data(), count, what);
              ExpectSame(type, expected.data(), b.data(), count, what);
              if (HasFatalFailure()) return;
            }
          }
        }
      }
    }
  }
}

TEST_F(GroupedTest, OneGroupEqualsReduce) {
  for (DType type : {DType::kFloat16, DType::kBFloat16, DType::kFloat32}) {
    const Sources in = MakeSources(type, 6, 999);
    Buffer plain(999 * SizeOf(type));
    Buffer grouped(999 * SizeOf(type));
    void* const to_plain[] = {plain.data()};
    void* const to_grouped[] = {grouped.data()};
    const int groups[] = {6};
    Reduce(ReduceOp::kSum, type, in.pointers, to_plain, 999, {.pre = 0.1, .post = 0.2});
    ReduceGrouped(ReduceOp::kSum, type, in.pointers, groups, to_grouped, 999, {.pre = 0.1, .post = 0.2});
    EXPECT_EQ(plain, grouped);
  }
}

TEST_F(GroupedTest, InPlace) {
  for (DType type : {DType::kFloat16, DType::kFloat32, DType::kInt32}) {
    Sources in = MakeSources(type, 4, 5000);
    const Buffer expected = reference::Reduce(ReduceOp::kSum, type, in.pointers, {2, 2}, 5000, {});
    std::vector<void*> to;
    for (Buffer& buffer : in.buffers) to.push_back(buffer.data());
    const int groups[] = {2, 2};
    ReduceGrouped(ReduceOp::kSum, type, in.pointers, groups, to, 5000);
    for (void* got : to) ExpectSame(type, expected.data(), got, 5000, std::string(NameOf(type)));
  }
}

}  // namespace
}  // namespace hvd::kernel
