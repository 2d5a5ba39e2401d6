// SPDX-License-Identifier: Apache-2.0
#include "tests/unit/kernel/fixture.h"

namespace hvd::kernel {
namespace {

constexpr size_t kCounts[] = {0, 1, 3, 15, 16, 17, 63, 64, 65, 1000, 4097};
constexpr unsigned char kGuard = 0xA5;

// Destinations with guard bytes around them.
class Destinations {
 public:
  Destinations(size_t number, size_t bytes, size_t shift) : bytes_(bytes), shift_(shift) {
    for (size_t k = 0; k < number; ++k) buffers_.emplace_back(bytes + shift + 64, kGuard);
    for (Buffer& buffer : buffers_) pointers_.push_back(buffer.data() + shift);
  }
  std::span<void* const> pointers() const { return pointers_; }
  void ExpectGuards(const std::string& what) const {
    for (const Buffer& buffer : buffers_) {
      for (size_t i = 0; i < buffer.size(); ++i) {
        if (i >= shift_ && i < shift_ + bytes_) continue;
        ASSERT_EQ(buffer[i], kGuard) << what << " wrote outside, at byte " << i;
      }
    }
  }

 private:
  size_t bytes_;
  size_t shift_;
  std::vector<Buffer> buffers_;
  std::vector<void*> pointers_;
};

class ReduceTest : public KernelTest {
 protected:
  void Check(ReduceOp op, DType type, size_t sources, size_t count, Scale scale, size_t shift) {
    const Sources in = MakeSources(type, sources, count, shift);
    const Buffer expected = reference::Reduce(op, type, in.pointers, {static_cast<int>(sources)}, count, scale);
    for (const Table& table : Tables()) {
      ForceTable(&table);
      const std::string what = Describe(table, op, type, sources, count);
      Destinations out(1 + sources % 3, count * SizeOf(type), shift);
      Reduce(op, type, in.pointers, out.pointers(), count, scale);
      for (void* got : out.pointers()) ExpectSame(type, expected.data(), got, count, what);
      out.ExpectGuards(what);
      if (HasFatalFailure()) return;
    }
  }

  void CheckAll(Scale scale, size_t shift) {
    for (int t = 0; t < kDTypeCount; ++t) {
      const auto type = static_cast<DType>(t);
      if (type == DType::kBool && (scale.pre != 1.0 || scale.post != 1.0)) continue;
      for (ReduceOp op : kOps) {
        if (!Supports(op, type)) continue;
        for (size_t sources = 1; sources <= 8; ++sources) {
          for (size_t count : kCounts) {
            Check(op, type, sources, count, scale, shift);
            if (HasFatalFailure()) return;
          }
        }
      }
    }
  }
};

TEST_F(ReduceTest, EqualsReferenceForEveryTypeOpAndSize) { CheckAll({}, 0); }

TEST_F(ReduceTest, EqualsReferenceUnaligned) {
  CheckAll({}, 1);
  CheckAll({}, 7);
}

TEST_F(ReduceTest, EqualsReferenceScaled) {
  CheckAll({.pre = 0.37, .post = 1.0}, 0);
  CheckAll({.pre = 1.0, .post = 1.0 / 3}, 3);
  CheckAll({.pre = -2.5, .post = 1e3}, 0);
}

// Two sources and one or two destinations have loops of their own, with and without asking for lines ahead; some of
// these counts are so large that the loops with that run.
TEST_F(ReduceTest, EqualsReferenceForTwoSourcesHoweverStored) {
  for (int t = 0; t < kDTypeCount; ++t) {
    const auto type = static_cast<DType>(t);
    for (ReduceOp op : kOps) {
      if (!Supports(op, type)) continue;
      for (const Scale scale : {Scale{}, Scale{.pre = 0.37, .post = 1.0 / 3}}) {
        if (type == DType::kBool && scale.pre != 1) continue;
        for (size_t count : {1, 17, 65, 1000, 4097}) {
          const Sources in = MakeSources(type, 2, count, 1);
          const Buffer expected = reference::Reduce(op, type, in.pointers, {2}, count, scale);
          for (const Table& table : Tables()) {
            ForceTable(&table);
            const std::string what = Describe(table, op, type, 2, count);
            for (size_t destinations : {1, 2, 3}) {
              for (Stores stores : {Stores::kPlain, Stores::kPrefetched}) {
                Destinations out(destinations, count * SizeOf(type), 3);
                Reduce(op, type, in.pointers, out.pointers(), count, scale, stores);
                for (void* got : out.pointers()) ExpectSame(type, expected.data(), got, count, what);
                out.ExpectGuards(what);
                if (HasFatalFailure()) return;
              }
            }
          }
        }
      }
    }
  }
}

TEST_F(ReduceTest, TwoInPlaceEqualTwoOutOfPlace) {
  for (int t = 0; t < kDTypeCount; ++t) {
    const auto type = static_cast<DType>(t);
    for (Stores stores : {Stores::kPlain, Stores::kPrefetched}) {
      Sources in = MakeSources(type, 2, 4099);
      const Buffer expected = reference::Reduce(ReduceOp::kMin, type, in.pointers, {2}, 4099, {});
      void* const out[] = {in.buffers[0].data(), in.buffers[1].data()};
      Reduce(ReduceOp::kMin, type, in.pointers, out, 4099, {}, stores);
      for (void* got : out) ExpectSame(type, expected.data(), got, 4099, std::string(NameOf(type)));
    }
  }
}

TEST_F(ReduceTest, InPlaceEqualsOutOfPlace) {
  for (int t = 0; t < kDTypeCount; ++t) {
    const auto type = static_cast<DType>(t);
    for (const Scale scale : {Scale{}, Scale{.pre = 0.5, .post = 3}}) {
      if (type == DType::kBool && scale.pre != 1) continue;
      Sources in = MakeSources(type, 4, 2049);
      const Buffer expected = reference::Reduce(ReduceOp::kMax, type, in.pointers, {4}, 2049, scale);
      std::vector<void*> out;
      for (Buffer& buffer : in.buffers) out.push_back(buffer.data());
      Reduce(ReduceOp::kMax, type, in.pointers, out, 2049, scale);
      for (void* got : out) ExpectSame(type, expected.data(), got, 2049, std::string(NameOf(type)));
    }
  }
}

// A ring or a slice may cut a tensor anywhere: the bits of an element must not depend on the cut.
TEST_F(ReduceTest, CutsAtOddPlacesChangeNothing) {
  constexpr size_t kCount = 3001;
  constexpr size_t kCuts[] = {1, 2, 3, 5, 7, 13, 31, 61, 127, 250, 509, 1021};
  for (DType type : {DType::kFloat16, DType::kBFloat16, DType::kFloat32, DType::kFloat64, DType::kInt8}) {
    for (ReduceOp op : kOps) {
      const Sources in = MakeSources(type, 5, kCount);
      const Buffer expected = reference::Reduce(op, type, in.pointers, {5}, kCount, {});
      for (const Table& table : Tables()) {
        ForceTable(&table);
        Buffer got(kCount * SizeOf(type));
        for (size_t done = 0, n = 0; done < kCount; done += n) {
          n = std::min(kCount - done, kCuts[random() % std::size(kCuts)]);
          std::vector<const void*> from;
          for (const void* p : in.pointers) from.push_back(static_cast<const char*>(p) + done * SizeOf(type));
          void* const to[] = {got.data() + done * SizeOf(type)};
          Reduce(op, type, from, to, n);
        }
        ExpectSame(type, expected.data(), got.data(), kCount, Describe(table, op, type, 5, kCount));
      }
    }
  }
}

TEST_F(ReduceTest, FirstNaNWins) {
  const uint32_t in[3] = {0x3F800000, 0xFF812345, 0x7FC54321};  // 1, a signalling NaN, a quiet one
  for (const Table& table : Tables()) {
    ForceTable(&table);
    for (ReduceOp op : kOps) {
      uint32_t got = 0;
      const void* const from[] = {&in[0], &in[1], &in[2]};
      void* const to[] = {&got};
      Reduce(op, DType::kFloat32, from, to, 1);
      EXPECT_EQ(got | 1u << 22, 0xFFC12345) << table.name << " " << NameOf(op);
    }
  }
}

TEST_F(ReduceTest, MinAndMaxKeepTheEarlierZero) {
  for (const float first : {0.0f, -0.0f}) {
    const float second = -first;
    for (ReduceOp op : {ReduceOp::kMin, ReduceOp::kMax}) {
      float got = 1;
      const void* const from[] = {&first, &second};
      void* const to[] = {&got};
      Reduce(op, DType::kFloat32, from, to, 1);
      EXPECT_EQ(std::signbit(got), std::signbit(first));
    }
  }
}

TEST_F(ReduceTest, IntegerScaleSaturatesTruncatesAndMakesNaNZero) {
  const auto scaled = [](DType type, auto value, double factor) {
    auto got = value;
    const void* const from[] = {&value};
    void* const to[] = {&got};
    Reduce(ReduceOp::kSum, type, from, to, 1, {.pre = 1.0, .post = factor});
    return got;
  };
  for (const Table& table : Tables()) {
    SCOPED_TRACE(table.name);
    ForceTable(&table);
    EXPECT_EQ(scaled(DType::kInt8, int8_t{100}, 2.0), 127);
    EXPECT_EQ(scaled(DType::kInt8, int8_t{-100}, 2.0), -128);
    EXPECT_EQ(scaled(DType::kUInt8, uint8_t{100}, -1.0), 0);
    EXPECT_EQ(scaled(DType::kUInt16, uint16_t{60000}, 2.0), 65535);
    EXPECT_EQ(scaled(DType::kInt16, int16_t{-7}, 0.5), -3);
    EXPECT_EQ(scaled(DType::kInt32, int32_t{2000000000}, 1e300), std::numeric_limits<int32_t>::max());
    EXPECT_EQ(scaled(DType::kInt32, int32_t{-2000000000}, 1e300), std::numeric_limits<int32_t>::min());
    EXPECT_EQ(scaled(DType::kInt64, int64_t{1} << 62, 2.0), std::numeric_limits<int64_t>::max());
    EXPECT_EQ(scaled(DType::kInt64, -(int64_t{1} << 62), 2.0), std::numeric_limits<int64_t>::min());
    EXPECT_EQ(scaled(DType::kInt64, int64_t{1} << 62, std::numeric_limits<double>::infinity()),
              std::numeric_limits<int64_t>::max());
    EXPECT_EQ(scaled(DType::kInt64, int64_t{0}, std::numeric_limits<double>::infinity()), 0);
    EXPECT_EQ(scaled(DType::kInt32, int32_t{5}, std::nan("")), 0);
    EXPECT_EQ(scaled(DType::kUInt8, uint8_t{5}, std::nan("")), 0);
  }
}

TEST_F(ReduceTest, BoolIsLogical) {
  const uint8_t a[4] = {0, 0, 1, 2};
  const uint8_t b[4] = {0, 1, 0, 1};
  const void* const from[] = {a, b};
  for (const Table& table : Tables()) {
    ForceTable(&table);
    uint8_t got[4];
    void* const to[] = {got};
    Reduce(ReduceOp::kMin, DType::kBool, from, to, 4);
    EXPECT_EQ(Buffer(got, got + 4), (Buffer{0, 0, 0, 1})) << table.name;
    Reduce(ReduceOp::kMax, DType::kBool, from, to, 4);
    EXPECT_EQ(Buffer(got, got + 4), (Buffer{0, 1, 1, 1})) << table.name;
  }
}

TEST_F(ReduceTest, SupportsWhatTheHeaderSays) {
  EXPECT_FALSE(Supports(ReduceOp::kSum, DType::kBool));
  EXPECT_FALSE(Supports(ReduceOp::kProduct, DType::kBool));
  EXPECT_TRUE(Supports(ReduceOp::kMin, DType::kBool));
  EXPECT_FALSE(Supports(ReduceOp::kAdasum, DType::kFloat32));
  EXPECT_FALSE(Supports(ReduceOp::kSum, static_cast<DType>(99)));
  for (int t = 0; t < kDTypeCount; ++t) {
    if (static_cast<DType>(t) == DType::kBool) continue;
    for (ReduceOp op : kOps) EXPECT_TRUE(Supports(op, static_cast<DType>(t)));
  }
  EXPECT_STREQ(TargetName(), Tables()[0].name);
}

}  // namespace
}  // namespace hvd::kernel
