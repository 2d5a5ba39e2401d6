// SPDX-License-Identifier: Apache-2.0
// What horovodrun and its agents tell each other, and how they get to know each other.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <random>

#include "hvd/launch/remote/agent_options.h"
#include "hvd/launch/remote/agent_protocol.h"
#include "hvd/launch/remote/ssh.h"

namespace hvd::launch {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;

constexpr size_t kLength = 4;

Result<Message> Decoded(const std::string& frame) { return DecodeMessage(net::AsBytes(frame).subspan(kLength)); }

Message StartMessage() {
  Message message{.kind = Kind::kStart, .text = "beta", .place = {"10.0.0.1:5", "job.1"}, .grace_s = 2.5};
  message.plan.slots = {{.host = "alpha", .rank = 0, .local_size = 1, .cross_size = 2},
                        {.host = "beta", .rank = 1, .local_size = 1, .cross_rank = 1, .cross_size = 2}};
  message.plan.folder = "/work";
  message.plan.program = "/usr/bin/python";
  message.plan.arguments = {"python", "", "a b\n"};
  message.plan.environment.Set("A", "1=2");
  return message;
}

TEST(AgentMessages, AreWhatWasSent) {
  const auto start = Decoded(Encode(StartMessage()));
  ASSERT_TRUE(start) << start.error().message;
  EXPECT_EQ(start->text, "beta");
  EXPECT_EQ(start->plan.slots, StartMessage().plan.slots);
  EXPECT_EQ(start->plan.arguments, StartMessage().plan.arguments);
  EXPECT_EQ(start->plan.environment.Get("A"), "1=2");
  EXPECT_EQ(start->place.store, "10.0.0.1:5");
  EXPECT_EQ(start->place.job, "job.1");
  EXPECT_EQ(start->grace_s, 2.5);
  const auto output =
      Decoded(Encode({.kind = Kind::kOutput, .rank = 3, .number = 1, .text = std::string("\0\xff", 2)}));
  EXPECT_EQ(output->text, std::string("\0\xff", 2));
  Message ended{.kind = Kind::kEnded, .rank = 3};
  ended.ending.code = 7;
  ended.ending.told = true;
  EXPECT_EQ(Decoded(Encode(ended))->ending.code, 7);
  EXPECT_TRUE(Decoded(Encode(ended))->ending.told);
  const auto hello = Decoded(Encode({.kind = Kind::kHello, .text = "1.0", .list = {"a", "b"}, .more = {"c:1"}}));
  EXPECT_THAT(hello->list, ElementsAre("a", "b"));
  EXPECT_THAT(hello->more, ElementsAre("c:1"));
}

TEST(AgentMessages, OfAnotherLengthOrKindAreRefused) {
  const std::string frame = Encode(StartMessage());
  for (size_t size = 0; size + kLength < frame.size(); ++size) {
    EXPECT_FALSE(DecodeMessage(net::AsBytes(frame).subspan(kLength, size))) << size;
  }
  EXPECT_FALSE(Decoded(frame + "x"));
  EXPECT_FALSE(Decoded(std::string(kLength, '\0') + '\x63'));
  // A count that promises more than there is.
  EXPECT_FALSE(Decoded(std::string(kLength, '\0') + "\x01" + "\x01\x01\x01\x7f"));
}

TEST(AgentMessages, OfRandomBytesDoNoHarm) {
  std::mt19937 random(20261115);
  const std::string frame = Encode(StartMessage());
  for (int round = 0; round < 20000; ++round) {
    std::string changed = frame;
    for (int i = 0; i < 3; ++i) changed[kLength + random() % (changed.size() - kLength)] = static_cast<char>(random());
    (void)Decoded(changed);
  }
}

TEST(SshCommand, HasNothingSecretAndKeepsTheUsersWays) {
  const auto words = SshArguments({"/usr/bin/ssh", 2222, "/key"}, "beta", "/opt/it's/horovodrun");
  ASSERT_EQ(words.size(), 13U);
  EXPECT_THAT(std::vector(words.begin(), words.begin() + 12),
              ElementsAre("/usr/bin/ssh", "-T", "-o", "BatchMode=yes", "-o", "ControlMaster=no", "-p", "2222", "-i",
                          "/key", "--", "beta"));
  EXPECT_THAT(words.back(), HasSubstr("exec sh -c 'if test -x \"$0\"; then exec \"$0\" agent --from-stdin; fi; "));
  EXPECT_THAT(words.back(), HasSubstr(" '/opt/it'\\''s/horovodrun'"));
}

TEST(SshCommand, WhatItSaysLeadsToAdvice) {
  EXPECT_THAT(SshAdvice("root@b: Permission denied (publickey).", "b"), HasSubstr("ssh-copy-id b"));
  EXPECT_THAT(SshAdvice("Host key verification failed.", "b"), HasSubstr("known_hosts"));
  EXPECT_THAT(SshAdvice("connect to host b port 22: Connection refused", "b"), HasSubstr("-p PORT"));
  EXPECT_THAT(SshAdvice("something else", "b"), HasSubstr("ssh -v b true"));
}

TEST(AgentOptions, ComeFromFlagsOrFromSsh) {
  EXPECT_THAT(ParseAgentOptions({"--driver", "a:1"}, {}).error().message, HasSubstr("--token-file is missing"));
  EXPECT_THAT(ParseAgentOptions({}, {}).error().message, HasSubstr("--driver is missing"));
  EXPECT_THAT(ParseAgentOptions({"--drivers", "a:1"}, {}).error().message, HasSubstr("did you mean --driver?"));
  EXPECT_THAT(ParseAgentOptions({"--host"}, {}).error().message, HasSubstr("--host: needs a value"));
  auto options = ParseAgentOptions({"--from-stdin"}, {});
  ASSERT_TRUE(options) << options.error().message;
  const std::string token(64, 'a');
  ASSERT_TRUE(
      TakeTold("token " + token + "\nhost beta\naddress [::1]:5\naddress b:6\ntimeout 7\nsilence 2\n\n", &*options));
  EXPECT_TRUE(options->token.has_value());
  EXPECT_EQ(options->host, "beta");
  EXPECT_THAT(options->addresses, ElementsAre("[::1]:5", "b:6"));
  EXPECT_EQ(options->timeout_s, 7);
  EXPECT_EQ(options->silence_s, 2);
  AgentOptions nothing;
  EXPECT_FALSE(TakeTold("", &nothing));
  EXPECT_FALSE(TakeTold("token 12\naddress a:1\n\n", &nothing));
}

}  // namespace
}  // namespace hvd::launch
