// SPDX-License-Identifier: Apache-2.0
#include "hvd/net/strangers.h"

#include <gtest/gtest.h>

#include <set>

namespace hvd::net {
namespace {

Address At(const std::string& host, uint16_t port) { return Resolve({host, port})->front(); }

TEST(Strangers, AFloodFromOneSourceDisplacesItselfAlone) {
  Strangers strangers(4);
  EXPECT_FALSE(strangers.Add(1, At("10.0.0.1", 1000)));
  for (Strangers::Id id = 2; id <= 4; ++id) EXPECT_FALSE(strangers.Add(id, At("10.0.0.9", 1000 + id)));
  for (Strangers::Id id = 5; id < 500; ++id) {
    const auto victim = strangers.Add(id, At("10.0.0.9", 1000 + id));
    ASSERT_TRUE(victim);
    EXPECT_NE(*victim, 1u);
    EXPECT_LT(*victim, id) << "the newcomer has a place";
    EXPECT_EQ(strangers.size(), 4u);
  }
}

TEST(Strangers, ANewcomerFromElsewhereTakesThePlaceOfTheFlood) {
  Strangers strangers(3);
  for (Strangers::Id id = 1; id <= 3; ++id) strangers.Add(id, At("10.0.0.9", 1000));
  const auto victim = strangers.Add(4, At("10.0.0.1", 1000));
  ASSERT_TRUE(victim);
  EXPECT_LE(*victim, 3u);
  EXPECT_LE(*strangers.Add(5, At("10.0.0.2", 1000)), 3u);
}

TEST(Strangers, WhoMakesRoomCannotBeForeseen) {
  Strangers strangers(8);
  std::set<Strangers::Id> ages;
  for (Strangers::Id id = 0; id < 8; ++id) strangers.Add(id, At("10.0.0.9", 1000));
  for (Strangers::Id id = 8; id < 300; ++id) ages.insert(id - *strangers.Add(id, At("10.0.0.9", 1000)));
  EXPECT_GT(ages.size(), 8u) << "neither always the oldest nor always the newest";
}

TEST(Strangers, TheAddressesOfOneIpv6NetworkAreOneSource) {
  Strangers strangers(2);
  strangers.Add(1, At("2001:db8:1::1", 1000));
  strangers.Add(2, At("2001:db8:2::1", 1000));
  strangers.Remove(1);
  strangers.Add(3, At("2001:db8:2::ffff", 1000));
  const auto victim = strangers.Add(4, At("2001:db8:1::1", 1000));
  ASSERT_TRUE(victim);
  EXPECT_NE(strangers.Add(5, At("2001:db8:3::1", 1000)), std::nullopt);
  EXPECT_EQ(strangers.size(), 2u);
}

TEST(Strangers, ThoseThatAreGoneMakeRoom) {
  Strangers strangers(1);
  strangers.Add(1, At("10.0.0.1", 1000));
  strangers.Remove(1);
  strangers.Remove(1);
  strangers.Remove(77);
  EXPECT_FALSE(strangers.Add(2, At("10.0.0.1", 1000)));
  EXPECT_EQ(strangers.size(), 1u);
}

}  // namespace
}  // namespace hvd::net
