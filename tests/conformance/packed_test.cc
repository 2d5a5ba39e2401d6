// SPDX-License-Identifier: Apache-2.0
// Allreduces of float32 and float64 that travel as float16 and bfloat16 (HVD_WIRE_*): the bits are those of casting,
// reducing and casting back, whatever way the data takes; and all that can go wrong goes wrong as for any other type.
#include <gtest/gtest.h>

#include <chrono>
#include <cmath>
#include <cstring>
#include <limits>
#include <random>
#include <string>
#include <thread>
#include <vector>

#include "hvd/kernel/kernel.h"
#include "tests/support/job.h"
#include "tests/support/reductions.h"
#include "tests/support/request.h"

namespace hvd::test {
namespace {

struct Wire {
  int32_t flag;
  int32_t dtype;
  DType type;
};
constexpr Wire kWires[] = {{HVD_WIRE_FLOAT16, HVD_FLOAT16, DType::kFloat16},
                           {HVD_WIRE_BFLOAT16, HVD_BFLOAT16, DType::kBFloat16}};

// None, one, odd ones, those that are beside marks, and those of several chunks.
constexpr size_t kCounts[] = {0, 1, 3, 16, 17, 1000, 16385, 40'001, 300'001};

template <class T>
constexpr int32_t kMemory = sizeof(T) == 8 ? HVD_FLOAT64 : HVD_FLOAT32;
template <class T>
constexpr DType kMemoryType = sizeof(T) == 8 ? DType::kFloat64 : DType::kFloat32;

template <class T>
std::vector<T> Values(int rank, size_t count) {
  std::mt19937 random(static_cast<unsigned>(rank) + 1);
  std::vector<T> values(count);
  for (T& value : values) value = static_cast<T>(static_cast<double>(static_cast<int32_t>(random())) / (1u << 30));
  return values;
}

// Numbers at the ends of the types: infinite, not a number, too large for float16, too small for it.
template <class T>
std::vector<T> EdgeValues(int rank, size_t count) {
  constexpr double kInfinity = std::numeric_limits<double>::infinity();
  const double edges[] = {1,     -0.0,     kInfinity, -kInfinity, std::nan(""), 65504, 65519, 65520,
                          -1e30, 5.97e-08, 2.9e-08,   1e-40,      3.3961e38,    0.1,   -2,    1e-300};
  std::vector<T> values(count);
  // Each pair of ranks meets all pairs of values.
  for (size_t i = 0; i < count; ++i) values[i] = static_cast<T>(edges[(rank % 2 == 0 ? i : i / 16) % 16]);
  return values;
}

template <class T>
void Describe(Request& request, const Reduction& reduction, T* in, T* out, const int64_t* count) {
  request->dtype = kMemory<T>;
  request->reduce_op = reduction.op;
  request->prescale = reduction.prescale;
  request->postscale = reduction.postscale;
  request->ndim = 1;
  request->shape = count;
  request->input = {in, static_cast<uint64_t>(*count) * sizeof(T), HVD_CPU, 0};
  request->output = {out, request->input.bytes, HVD_CPU, 0};
}

// Casts, reduces and casts back.
template <class T>
std::vector<T> Expected(hvd_context* ctx, const std::string& name, const Wire& wire, const Reduction& reduction,
                        const std::vector<T>& mine) {
  const auto count = static_cast<int64_t>(mine.size());
  std::vector<uint16_t> small(mine.size());
  kernel::Narrow(kMemoryType<T>, mine.data(), wire.type, small.data(), small.size());
  Request request(HVD_ALLREDUCE, name);
  Describe<T>(request, reduction, nullptr, nullptr, &count);
  request->dtype = wire.dtype;
  request->input = request->output = {small.data(), small.size() * 2, HVD_CPU, 0};
  EXPECT_EQ(hvd_run(ctx, request, nullptr), HVD_OK) << hvd_last_error();
  std::vector<T> result(mine.size());
  kernel::Widen(wire.type, small.data(), kMemoryType<T>, result.data(), small.size());
  return result;
}

template <class T>
bool SameBits(const T* a, const std::vector<T>& b) {
  return b.empty() || std::memcmp(a, b.data(), b.size() * sizeof(T)) == 0;
}

// Arena memory that goes with the test.
template <class T>
struct ArenaArray {
  explicit ArenaArray(size_t count) : data(static_cast<T*>(hvd_alloc(count * sizeof(T) + 1))) {}
  ~ArenaArray() { hvd_free(data); }
  ArenaArray(const ArenaArray&) = delete;
  ArenaArray& operator=(const ArenaArray&) = delete;
  T* const data;
};

// Twice under one name, so that it is agreed on by messages and then by marks; in place and not; in any memory.
template <class T>
void CheckAllPlaces(hvd_context* ctx, const std::string& name, const Wire& wire, const Reduction& reduction,
                    const std::vector<T>& mine) {
  const std::vector<T> expected = Expected(ctx, "cast " + name, wire, reduction, mine);
  const auto count = static_cast<int64_t>(mine.size());
  std::vector<T> heap(mine.size() + 1);
  std::vector<T> other(mine.size() + 1);
  const ArenaArray<T> arena(mine.size());
  struct DataLocation {
    T* in;
    T* out;
  };
  for (const DataLocation& place : {DataLocation{heap.data(), heap.data()}, DataLocation{heap.data(), other.data()},
                                    DataLocation{arena.data, arena.data}, DataLocation{heap.data(), arena.data}}) {
    std::copy(mine.begin(), mine.end(), place.in);
    Request request(HVD_ALLREDUCE, name);
    Describe(request, reduction, place.in, place.out, &count);
    request->flags = wire.flag;
    hvd_output output = EmptyOutput();
    ASSERT_EQ(hvd_run(ctx, request, &output), HVD_OK) << hvd_last_error();
    ASSERT_TRUE(SameBits(place.out, expected)) << name;
    ASSERT_TRUE(place.in == place.out || SameBits(place.in, mine)) << name << ": the input has changed";
    ASSERT_EQ(output.data, place.out);
    ASSERT_EQ(output.bytes, mine.size() * sizeof(T));
  }
}

class PackedTest : public ::testing::TestWithParam<int> {};
INSTANTIATE_TEST_SUITE_P(Ranks, PackedTest, ::testing::Values(1, 2, 3, 4));

TEST_P(PackedTest, EverySizeHasTheBitsOfCasting) {
  RunThreads(GetParam(), [](int rank, hvd_context* ctx) {
    for (const Wire& wire : kWires) {
      for (const size_t count : kCounts) {
        const std::string name = std::to_string(wire.flag) + "." + std::to_string(count);
        CheckAllPlaces(ctx, "f" + name, wire, kReductions[0], Values<float>(rank, count));
        CheckAllPlaces(ctx, "d" + name, wire, kReductions[0], Values<double>(rank, count));
      }
    }
  });
}

TEST_P(PackedTest, EveryReductionHasTheBitsOfCasting) {
  RunThreads(GetParam(), [](int rank, hvd_context* ctx) {
    for (const Wire& wire : kWires) {
      for (const Reduction& reduction : kReductions) {
        const std::string name = std::to_string(wire.flag) + "." + std::to_string(&reduction - kReductions);
        CheckAllPlaces(ctx, "small" + name, wire, reduction, Values<float>(rank, 33));
        CheckAllPlaces(ctx, "large" + name, wire, reduction, Values<double>(rank, 70'001));
      }
    }
  });
}

TEST_P(PackedTest, NumbersAtTheEndsOfTheTypes) {
  RunThreads(GetParam(), [](int rank, hvd_context* ctx) {
    for (const Wire& wire : kWires) {
      for (const int op : {HVD_SUM, HVD_MIN, HVD_MAX}) {
        const std::string name = std::to_string(wire.flag) + "." + std::to_string(op);
        CheckAllPlaces(ctx, "f" + name, wire, {op, 1, 1}, EdgeValues<float>(rank, 515));
        CheckAllPlaces(ctx, "d" + name, wire, {op, 1, 1}, EdgeValues<double>(rank, 515));
      }
    }
  });
}

// Fused with each other and with what has that type already.
TEST_P(PackedTest, ManyInFlight) {
  constexpr int kCount = 40;
  RunThreads(GetParam(), [](int rank, hvd_context* ctx) {
    for (int round = 0; round < 3; ++round) {
      std::vector<std::vector<float>> data(kCount);
      std::vector<std::vector<uint16_t>> halves(kCount);
      std::vector<hvd_handle> handles;
      for (int k = 0; k < kCount; ++k) {
        const int i = (k * 7 + rank * round) % kCount;  // ranks differ in their order
        const auto count = static_cast<int64_t>(1 + i * 37 % 501);
        data[i].assign(static_cast<size_t>(count), static_cast<float>(1 + i % 3));
        Request request(HVD_ALLREDUCE, "m" + std::to_string(i), {count}, data[i].data());
        request->flags = HVD_WIRE_FLOAT16;
        if (i % 4 == 0) {  // nothing to narrow
          halves[i].assign(data[i].size(), 0x3c00);
          request->dtype = HVD_FLOAT16;
          request->input = request->output = {halves[i].data(), halves[i].size() * 2, HVD_CPU, 0};
        }
        ASSERT_EQ(hvd_submit(ctx, request, &handles.emplace_back()), HVD_OK) << hvd_last_error();
      }
      for (const hvd_handle handle : handles) {
        ASSERT_EQ(hvd_wait(ctx, handle, -1), HVD_OK) << hvd_last_error();
        hvd_release(ctx, handle);
      }
      uint16_t sum = 0;
      const auto size = static_cast<float>(GetParam());
      kernel::Narrow(DType::kFloat32, &size, DType::kFloat16, &sum, 1);
      for (int i = 0; i < kCount; ++i) {
        const float expected = i % 4 == 0 ? static_cast<float>(1 + i % 3) : static_cast<float>(1 + i % 3) * size;
        ASSERT_EQ(data[i], std::vector<float>(data[i].size(), expected)) << i;
        ASSERT_EQ(halves[i], std::vector<uint16_t>(halves[i].size(), sum)) << i;
      }
    }
  });
}

TEST_P(PackedTest, AGroupMayHoldOtherTypes) {
  RunThreads(GetParam(), [](int rank, hvd_context* ctx) {
    std::vector<float> floats(100, 0.5f + static_cast<float>(rank));
    std::vector<int32_t> integers(3, 70'001 + rank);  // no number of float16
    Request first(HVD_ALLREDUCE, "g_1of2", {100}, floats.data());
    Request second(HVD_ALLREDUCE, "g_2of2", {3}, reinterpret_cast<const float*>(integers.data()));
    second->dtype = HVD_INT32;
    first->flags = second->flags = HVD_WIRE_BFLOAT16;
    const hvd_request both[] = {*first.operator->(), *second.operator->()};
    hvd_handle handles[2];
    ASSERT_EQ(hvd_submit_group(ctx, both, 2, handles), HVD_OK) << hvd_last_error();
    for (const hvd_handle handle : handles) {
      ASSERT_EQ(hvd_wait(ctx, handle, -1), HVD_OK) << hvd_last_error();
      hvd_release(ctx, handle);
    }
    const int size = GetParam();
    EXPECT_EQ(floats, std::vector<float>(100, static_cast<float>(size * size) / 2));
    EXPECT_EQ(integers, std::vector<int32_t>(3, 70'001 * size + size * (size - 1) / 2));
  });
}

TEST_P(PackedTest, APreparedRequestKeepsIt) {
  RunThreads(GetParam(), [](int rank, hvd_context* ctx) {
    float data[6];
    Request described(HVD_ALLREDUCE, "p", {2, 3}, data);
    uint64_t plain = 0;
    ASSERT_EQ(hvd_prepare(ctx, described, &plain), HVD_OK) << hvd_last_error();
    described->flags = HVD_WIRE_FLOAT16;
    uint64_t id = 0;
    ASSERT_EQ(hvd_prepare(ctx, described, &id), HVD_OK) << hvd_last_error();
    ASSERT_NE(id, plain);
    for (int round = 0; round < 6; ++round) {
      for (float& value : data) value = 1.0f + 0x1p-12f + static_cast<float>(rank);
      Request request(HVD_ALLREDUCE, "", {6}, data);
      request->prepared = id;
      ASSERT_EQ(hvd_run(ctx, request, nullptr), HVD_OK) << hvd_last_error();
      for (const float value : data) ASSERT_EQ(value, static_cast<float>(GetParam() * (GetParam() + 1)) / 2);
    }
  });
}

// Small ones take the fast path from the third time on (engine/fast_path_cache.h), and leave it for the ordinary one
// where a rank is late, before or after it has reduced its part.
TEST_P(PackedTest, AgainAndAgainWithLateRanks) {
  const int size = GetParam();
  RunThreads(size, [&](int rank, hvd_context* ctx) {
    for (const size_t count : {5, 1000, 30'000}) {
      const std::vector<float> mine = Values<float>(rank, count);
      const std::string name = "again" + std::to_string(count);
      const std::vector<float> expected = Expected(ctx, "cast " + name, kWires[0], kReductions[2], mine);
      const auto shape = static_cast<int64_t>(count);
      for (int round = 0; round < 30; ++round) {
        std::vector<float> data = mine;
        Request request(HVD_ALLREDUCE, name);
        Describe(request, kReductions[2], data.data(), data.data(), &shape);
        request->flags = HVD_WIRE_FLOAT16;
        if (round % 3 == 1 && round % size == rank) std::this_thread::sleep_for(std::chrono::milliseconds(1));
        ASSERT_EQ(hvd_run(ctx, request, nullptr), HVD_OK) << hvd_last_error();
        ASSERT_EQ(data, expected) << "round " << round;
      }
    }
  });
}

TEST_P(PackedTest, ANameMayChangeWhatItTravelsAs) {
  const int size = GetParam();
  RunThreads(size, [&](int, hvd_context* ctx) {
    for (int round = 0; round < 40; ++round) {
      const int turn = round / 5 % 4;
      constexpr float kValue = 1.0f + 0x1p-9f + 0x1p-12f;
      std::vector<float> floats(9, kValue);
      std::vector<double> doubles(9, kValue);
      const int64_t count = 9;
      Request request(HVD_ALLREDUCE, "changes");
      Describe(request, kReductions[2], floats.data(), floats.data(), &count);
      if (turn == 3) Describe(request, kReductions[2], doubles.data(), doubles.data(), &count);
      const int32_t flags[] = {0, HVD_WIRE_FLOAT16, HVD_WIRE_BFLOAT16, HVD_WIRE_FLOAT16};
      request->flags = flags[turn];
      ASSERT_EQ(hvd_run(ctx, request, nullptr), HVD_OK) << hvd_last_error();
      const double found = turn == 3 ? doubles[8] : floats[8];
      const double expected[] = {kValue, 1.0 + 0x1p-9, 1.0, 1.0 + 0x1p-9};
      // A third of three has a few bits of its own.
      ASSERT_NEAR(found, expected[turn], size == 3 ? 0x1p-22 : 0) << "round " << round;
    }
  });
}

TEST_P(PackedTest, JoinedRanksAddNothing) {
  const int size = GetParam();
  RunThreads(size, [&](int rank, hvd_context* ctx) {
    for (int step = 0; step <= rank; ++step) {
      std::vector<float> data(5000, 1.5f);
      Request request(HVD_ALLREDUCE, "step" + std::to_string(step), {5000}, data.data());
      request->flags = HVD_WIRE_BFLOAT16;
      ASSERT_EQ(hvd_run(ctx, request, nullptr), HVD_OK) << hvd_last_error();
      ASSERT_EQ(data, std::vector<float>(5000, 1.5f * static_cast<float>(size - step)));
    }
    hvd_output output = EmptyOutput();
    ASSERT_EQ(hvd_run(ctx, Request(HVD_JOIN, ""), &output), HVD_OK) << hvd_last_error();
  });
}

TEST(PackedErrors, RanksThatDifferAreToldSo) {
  RunThreads(3, [](int rank, hvd_context* ctx) {
    for (int round = 0; round < 3; ++round) {
      std::vector<float> data(50, 1.0f);
      Request request(HVD_ALLREDUCE, "differs", {50}, data.data());
      if (rank == 1) request->flags = HVD_WIRE_BFLOAT16;
      EXPECT_EQ(hvd_run(ctx, request, nullptr), HVD_FAILED_PRECONDITION);
      const std::string text = hvd_last_error();
      EXPECT_NE(text.find("Mismatched data types: One rank had type float32, but another rank had type bfloat16"),
                std::string::npos)
          << text;
      EXPECT_NE(text.find("Compression counts: give it on all ranks, or on none."), std::string::npos) << text;
      EXPECT_EQ(data, std::vector<float>(50, 1.0f));
      request->flags = HVD_WIRE_FLOAT16;
      EXPECT_EQ(hvd_run(ctx, request, nullptr), HVD_OK) << hvd_last_error();
      EXPECT_EQ(data, std::vector<float>(50, 3.0f));
    }
  });
}

TEST(PackedErrors, WhoComesAfterATimeOutGetsTheData) {
  for (const int64_t count : {int64_t{10}, int64_t{100'000}}) {
    RunThreads(2, [&](int rank, hvd_context* ctx) {
      std::vector<float> data(static_cast<size_t>(count), 2.5f);
      Request request(HVD_ALLREDUCE, "late", {count}, data.data());
      request->flags = HVD_WIRE_FLOAT16;
      if (rank == 0) {
        request->timeout_s = 0.05;
        EXPECT_EQ(hvd_run(ctx, request, nullptr), HVD_DEADLINE_EXCEEDED);
        EXPECT_EQ(data, std::vector<float>(data.size(), 2.5f));
        data.assign(data.size(), -1.0f);  // is the caller's again
      }
      ASSERT_EQ(hvd_run(ctx, Request(HVD_BARRIER, "timed out"), nullptr), HVD_OK);
      if (rank == 1) {
        ASSERT_EQ(hvd_run(ctx, request, nullptr), HVD_OK) << hvd_last_error();
        EXPECT_EQ(data, std::vector<float>(data.size(), 5.0f));
      }
      ASSERT_EQ(hvd_run(ctx, Request(HVD_BARRIER, "end"), nullptr), HVD_OK);
    });
  }
}

}  // namespace
}  // namespace hvd::test
