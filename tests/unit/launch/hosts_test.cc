// SPDX-License-Identifier: Apache-2.0
#include "hvd/launch/plan/hosts.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace hvd::launch {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;

std::string HostsError(const std::string& text) {
  const auto hosts = ParseHosts(text, "-H");
  return hosts ? "accepted" : hosts.error().message;
}

TEST(Hosts, WhatPeopleWrite) {
  EXPECT_THAT(*ParseHosts("h1:2,h2.example.org:4", "-H"), ElementsAre(Host{"h1", 2}, Host{"h2.example.org", 4}));
  EXPECT_THAT(*ParseHosts("h1,h2", "-H"), ElementsAre(Host{"h1", 0}, Host{"h2", 0}));
  EXPECT_THAT(*ParseHosts("[fe80::1]:2, [::1]:1", "-H"), ElementsAre(Host{"fe80::1", 2}, Host{"::1", 1}));
  EXPECT_THAT(*ParseHosts("h1:2,h1:3", "-H"), ElementsAre(Host{"h1", 5}));
}

TEST(Hosts, WhatIsWrongIsNamed) {
  EXPECT_THAT(HostsError("h1:0"), HasSubstr("-H 'h1:0': expected a number of slots from 1"));
  EXPECT_THAT(HostsError("h1:x"), HasSubstr("-H 'h1:x': expected a number of slots"));
  EXPECT_THAT(HostsError("h1:"), HasSubstr("expected a number of slots"));
  EXPECT_THAT(HostsError("h1,,h2"), HasSubstr("expected HOST or HOST:SLOTS"));
  EXPECT_THAT(HostsError("h 1:2"), HasSubstr("expected HOST or HOST:SLOTS"));
  EXPECT_THAT(HostsError("-oProxyCommand=x"), HasSubstr("expected HOST or HOST:SLOTS"));
  EXPECT_THAT(HostsError("fe80::1"), HasSubstr("brackets around an IPv6 address"));
  EXPECT_THAT(HostsError("[fe80::1"), HasSubstr("a '[' without its ']'"));
  EXPECT_THAT(HostsError("[host]:2"), HasSubstr("expected an IPv6 address in the brackets"));
  EXPECT_THAT(HostsError("h1:2,h2"), HasSubstr("h1 has slots and h2 has none"));
}

TEST(Hostfile, WhatPeopleWrite) {
  const auto hosts = ParseHostfile("# cluster\n\nh1 slots=2\nh2   slots = 4  # fast\r\nh3:1\n", "hosts");
  ASSERT_TRUE(hosts) << hosts.error().message;
  EXPECT_THAT(*hosts, ElementsAre(Host{"h1", 2}, Host{"h2", 4}, Host{"h3", 1}));
}

TEST(Hostfile, WhatIsWrongIsNamedWithItsLine) {
  EXPECT_EQ(ParseHostfile("h1 slots=2\nh2 slot=2\n", "hosts").error().message,
            "hosts:2: 'h2 slot=2': expected 'HOST slots=N'");
  EXPECT_EQ(ParseHostfile("# nothing\n", "hosts").error().message, "hosts: names no host");
}

TEST(Hosts, NamesOfThisMachineAreOneHost) {
  const auto is_here = [](const std::string& name) { return name == "localhost" || name == "me"; };
  std::vector<Host> hosts{{"a", 1}, {"localhost", 1}, {"b", 2}, {"me", 3}};
  EXPECT_EQ(MergeThisMachine(is_here, 99, &hosts),
            "localhost and me are this machine: its ranks are those of one host");
  EXPECT_THAT(hosts, ElementsAre(Host{"a", 1}, Host{"localhost", 4}, Host{"b", 2}));
  EXPECT_EQ(MergeThisMachine(is_here, 99, &hosts), "");
  EXPECT_EQ(hosts.size(), 3u);
}

TEST(Hosts, OnlyNamesThatAreNeededAreLookedUp) {
  std::vector<std::string> asked;
  const auto is_here = [&](const std::string& name) {
    asked.push_back(name);
    return name == "me" || name == "localhost";
  };
  std::vector<Host> hosts{{"a", 1}, {"b", 1}, {"c", 1}};
  MergeThisMachine(is_here, 2, &hosts);
  EXPECT_THAT(asked, ElementsAre("a", "b"));
  EXPECT_THAT(hosts, ElementsAre(Host{"a", 1}, Host{"b", 1}));
  asked.clear();
  hosts = {{"me", 0}, {"localhost", 0}, {"b", 0}, {"c", 0}};
  MergeThisMachine(is_here, 2, &hosts);
  EXPECT_THAT(asked, ElementsAre("me", "localhost", "b"));
  EXPECT_THAT(hosts, ElementsAre(Host{"me", 0}, Host{"b", 0}));
  hosts = {{"a", 1}};
  MergeThisMachine(is_here, 2, &hosts);
  EXPECT_THAT(hosts, ElementsAre(Host{"a", 1})) << "too few is for AssignSlots to say";
}

TEST(Hosts, TheInterfaceOfAnAddressIsAName) {
  EXPECT_EQ(ParseHosts("[fe80::1%eth0.7]:2", "-H")->front().name, "fe80::1%eth0.7");
  for (const char* bad : {"[fe80::1%$(touch x)]", "[fe80::1%]", "[fe80::1%a b]", "[fe80::1%-o]", "[fe80::1%a;b]"}) {
    EXPECT_THAT(HostsError(bad), HasSubstr("expected an IPv6 address")) << bad;
  }
}

TEST(Slots, HostByHostInTheGivenOrder) {
  const auto slots = AssignSlots({{"a", 2}, {"b", 1}}, 3);
  ASSERT_TRUE(slots);
  EXPECT_THAT(*slots, ElementsAre(Slot{"a", 0, 0, 2, 0, 2}, Slot{"a", 1, 1, 2, 0, 1}, Slot{"b", 2, 0, 1, 1, 2}));
}

TEST(Slots, NoMoreThanAskedFor) {
  const auto slots = AssignSlots({{"localhost", 4}}, 2);
  ASSERT_TRUE(slots);
  EXPECT_THAT(*slots, ElementsAre(Slot{"localhost", 0, 0, 2, 0, 1}, Slot{"localhost", 1, 1, 2, 0, 1}));
}

TEST(Slots, HostsWithoutSlotsShareEvenly) {
  const auto slots = AssignSlots({{"a", 0}, {"b", 0}}, 3);
  ASSERT_TRUE(slots);
  EXPECT_EQ((*slots)[1].host, "a");
  EXPECT_EQ((*slots)[2].host, "b");
}

TEST(Slots, TooFewSaysHowManyThereAre) {
  EXPECT_EQ(AssignSlots({{"a", 2}, {"b", 1}}, 4).error().message,
            "-np 4: the hosts have 3 slots (a:2,b:1); lower -np or give more slots");
}

}  // namespace
}  // namespace hvd::launch
