// SPDX-License-Identifier: Apache-2.0
#include "hvd/net/gmac.h"

#include <gtest/gtest.h>

#include <string>

namespace hvd::net {
namespace {

Gmac::Tag TagOf(uint8_t key_byte, uint64_t number, uint8_t kind, std::string_view data) {
  Key key;
  key.bytes.fill(key_byte);
  auto gmac = Gmac::Create(key);
  EXPECT_TRUE(gmac);
  const auto tag = gmac->Make(number, kind, AsBytes(data));
  EXPECT_TRUE(tag);
  return *tag;
}

TEST(Gmac, IsTheSameAtBothEndsAndChangesWithEverything) {
  const Gmac::Tag tag = TagOf(1, 7, 1, "hello");
  EXPECT_EQ(tag, TagOf(1, 7, 1, "hello"));
  EXPECT_NE(tag, TagOf(2, 7, 1, "hello")) << "key";
  EXPECT_NE(tag, TagOf(1, 8, 1, "hello")) << "number";
  EXPECT_NE(tag, TagOf(1, 7, 7, "hello")) << "kind";
  EXPECT_NE(tag, TagOf(1, 7, 1, "hellp")) << "data";
  EXPECT_NE(tag, TagOf(1, 7, 1, "hell")) << "length";
  EXPECT_NE(TagOf(1, 0, 1, ""), TagOf(1, 1, 1, ""));
}

TEST(Gmac, OneObjectMakesAsManyAsAreAskedFor) {
  auto gmac = Gmac::Create(Key());
  ASSERT_TRUE(gmac);
  const std::string large(1 << 20, 'x');
  for (uint64_t number = 0; number < 100; ++number) {
    const auto tag = gmac->Make(number, 1, AsBytes(number % 10 == 0 ? std::string_view(large) : "small"));
    ASSERT_TRUE(tag);
    EXPECT_EQ(*tag, TagOf(0, number, 1, number % 10 == 0 ? std::string_view(large) : "small"));
  }
}

}  // namespace
}  // namespace hvd::net
