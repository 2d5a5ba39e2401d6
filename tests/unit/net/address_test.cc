// SPDX-License-Identifier: Apache-2.0
#include "hvd/net/address.h"

#include <gtest/gtest.h>

namespace hvd::net {
namespace {

TEST(ParseHostPort, TakesWhatUsersWrite) {
  struct Case {
    const char* text;
    const char* host;
    int port;
    const char* shown;
  };
  const Case cases[] = {
      {"node1:29500", "node1", 29500, "node1:29500"},
      {"127.0.0.1:0", "127.0.0.1", 0, "127.0.0.1:0"},
      {"[::1]:80", "::1", 80, "[::1]:80"},
      {"[fe80::1%eth0]:80", "fe80::1%eth0", 80, "[fe80::1%eth0]:80"},
      {"[::1]", "::1", 7, "[::1]:7"},
      {"::1", "::1", 7, "[::1]:7"},
      {"node1", "node1", 7, "node1:7"},
  };
  for (const Case& c : cases) {
    SCOPED_TRACE(c.text);
    const auto where = ParseHostPort(c.text, 7);
    ASSERT_TRUE(where) << where.error().message;
    EXPECT_EQ(where->host, c.host);
    EXPECT_EQ(where->port, c.port);
    EXPECT_EQ(ToString(*where), c.shown);
  }
}

TEST(ParseHostPort, RefusesTheRestAndNamesIt) {
  for (const char* text : {"", ":80", "host:", "host:x", "host:65536", "host:-1", "host: 1", "[::1", "[::1]80", "[]:1",
                           ":::]", "[[::1]:1", "a]:1"}) {
    SCOPED_TRACE(text);
    const auto where = ParseHostPort(text);
    ASSERT_FALSE(where);
    EXPECT_EQ(where.error().code, Code::kInvalidArgument);
    EXPECT_NE(where.error().message.find(text), std::string::npos);
  }
}

TEST(Address, KnowsLoopbackAndWildcard) {
  const auto resolve = [](const char* host) { return Resolve({host, 5})->front(); };
  EXPECT_TRUE(resolve("127.0.0.1").IsLoopback());
  EXPECT_TRUE(resolve("127.8.9.1").IsLoopback());
  EXPECT_TRUE(resolve("::1").IsLoopback());
  EXPECT_TRUE(resolve("::ffff:127.0.0.1").IsLoopback());
  EXPECT_FALSE(resolve("10.0.0.1").IsLoopback());
  EXPECT_FALSE(resolve("::ffff:10.0.0.1").IsLoopback());
  EXPECT_TRUE(resolve("0.0.0.0").IsWildcard());
  EXPECT_TRUE(resolve("::").IsWildcard());
  EXPECT_TRUE(resolve("::ffff:0.0.0.0").IsWildcard());
  EXPECT_FALSE(resolve("127.0.0.1").IsWildcard());
  EXPECT_TRUE(Address::UnixAbstract("x")->IsLoopback());
}

TEST(Address, ShowsItself) {
  EXPECT_EQ(Resolve({"::1", 80})->front().ToString(), "[::1]:80");
  EXPECT_EQ(Resolve({"127.0.0.1", 80})->front().WithPort(81).ToString(), "127.0.0.1:81");
  EXPECT_EQ(Address::UnixAbstract("name")->ToString(), "unix:@name");
}

TEST(Address, UnixNamesAreLimited) {
  EXPECT_FALSE(Address::UnixAbstract(""));
  EXPECT_TRUE(Address::UnixAbstract(std::string(107, 'x')));
  EXPECT_FALSE(Address::UnixAbstract(std::string(108, 'x')));
}

TEST(Resolve, NamesTheHostThatItCannotFind) {
  const auto found = Resolve({"no-such-host.invalid", 1});
  ASSERT_FALSE(found);
  EXPECT_EQ(found.error().code, Code::kNotFound);
  EXPECT_NE(found.error().message.find("no-such-host.invalid"), std::string::npos);
}

}  // namespace
}  // namespace hvd::net
