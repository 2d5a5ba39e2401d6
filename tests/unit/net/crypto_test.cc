// SPDX-License-Identifier: Apache-2.0
#include "hvd/net/crypto.h"

#include <gtest/gtest.h>

#include <numeric>

namespace hvd::net {
namespace {

Key Counting() {
  Key key;
  std::iota(key.bytes.begin(), key.bytes.end(), uint8_t{0});
  return key;
}

// Expected values were computed with Python's hmac and hashlib.
TEST(Crypto, HmacMatchesAnIndependentImplementation) {
  EXPECT_EQ(ToHex(*HmacSha256(Counting(), AsBytes("what do ya want for nothing?"))),
            "099805f4ac310786968565c098db515cc50862b420ae31e20238312344bed36a");
}

TEST(Crypto, HkdfMatchesAnIndependentImplementation) {
  EXPECT_EQ(ToHex(DeriveKey(Counting().bytes, "tls store", 3)->bytes),
            "dd221f8f27279eeed5c51dc1b10f506c20effceb06c57b3a3e1aab273b75d41f");
}

TEST(Crypto, Sha256OfNothing) {
  EXPECT_EQ(ToHex(*Sha256({})), "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855");
}

TEST(Crypto, LabelAndGenerationSeparateKeys) {
  const auto key = [](std::string_view label, uint64_t generation) {
    return ToHex(DeriveKey(Counting().bytes, label, generation)->bytes);
  };
  EXPECT_NE(key("a", 0), key("b", 0));
  EXPECT_NE(key("a", 0), key("a", 1));
  EXPECT_EQ(key("a", 1), key("a", 1));
}

TEST(Crypto, CompareTakesLengthIntoAccount) {
  EXPECT_TRUE(ConstantTimeEqual(AsBytes("abc"), AsBytes("abc")));
  EXPECT_FALSE(ConstantTimeEqual(AsBytes("abc"), AsBytes("abd")));
  EXPECT_FALSE(ConstantTimeEqual(AsBytes("abc"), AsBytes("ab")));
  EXPECT_TRUE(ConstantTimeEqual({}, {}));
}

TEST(Crypto, RandomBytesAreRandom) {
  std::array<uint8_t, 32> a{}, b{};
  ASSERT_TRUE(RandomBytes(a));
  ASSERT_TRUE(RandomBytes(b));
  EXPECT_NE(a, b);
}

}  // namespace
}  // namespace hvd::net
