// SPDX-License-Identifier: Apache-2.0
#include "hvd/launch/plan/plan.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/stat.h>

#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>

#include "hvd/launch/plan/command.h"
#include "hvd/launch/plan/remote_environment.h"

namespace hvd::launch {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;

class Plans : public testing::Test {
 protected:
  void SetUp() override {
    char name[] = "/tmp/hvd-plan-XXXXXX";
    folder_ = mkdtemp(name);
    environment_.Set("PATH", folder_ + ":/usr/bin:/bin");
  }
  void TearDown() override { std::filesystem::remove_all(folder_); }

  std::string File(const std::string& name, const std::string& text, mode_t mode) const {
    const std::string path = folder_ + "/" + name;
    std::ofstream(path) << text;
    chmod(path.c_str(), mode);
    return path;
  }
  Result<Plan> Make(const List& arguments) const {
    auto options = Parse(arguments, ReadFile);
    if (!options) return Fail(options.error());
    return MakePlan(*options, environment_, folder_ + "/horovodrun", ReadFile);
  }

  std::string folder_;
  Environment environment_;
};

TEST_F(Plans, ACommandIsLookedForAsAShellDoes) {
  const std::string tool = File("tool", "#!/bin/sh\n", 0755);
  const auto plan = Make({"-np", "1", "tool", "a b"});
  ASSERT_TRUE(plan) << plan.error().message;
  EXPECT_EQ(plan->program, tool);
  EXPECT_THAT(plan->arguments, ElementsAre("tool", "a b"));
}

TEST_F(Plans, AScriptGetsThePythonBesideTheLauncher) {
  const std::string script = File("train.py", "pass\n", 0644);
  const std::string python = File("python", "#!/bin/sh\n", 0755);
  const auto plan = Make({"-np", "1", script, "-v"});
  ASSERT_TRUE(plan) << plan.error().message;
  EXPECT_EQ(plan->program, python);
  EXPECT_THAT(plan->arguments, ElementsAre(python, script, "-v"));
}

TEST_F(Plans, AScriptThatNamesItsInterpreterIsRunAsItIs) {
  const std::string script = File("train.py", "#!/usr/bin/env python3\n", 0755);
  EXPECT_EQ(Make({"-np", "1", script})->program, script);
}

TEST_F(Plans, ACommandThatCannotBeRunIsNamed) {
  const auto missing = Make({"-np", "1", "no-such-tool"});
  EXPECT_EQ(missing.error().code, Code::kNotFound);
  EXPECT_EQ(missing.error().message, "no-such-tool: there is no such program in PATH");
  EXPECT_EQ(Make({"-np", "1", "/no/such"}).error().code, Code::kNotFound);
  EXPECT_EQ(Make({"-np", "1", File("data", "x", 0644)}).error().code, Code::kPermissionDenied);
  EXPECT_THAT(Make({"-np", "1", folder_}).error().message, HasSubstr("this is a folder, not a program"));
  EXPECT_THAT(Make({"-np", "1", "nothing.py"}).error().message, HasSubstr("no such script here"));
}

TEST_F(Plans, HostsThatAreNotThisMachineAreKnown) {
  const auto plan = Make({"-np", "4", "-H", "no-such-host.invalid:1,localhost:2,[2001:db8::1]:1", "true"});
  ASSERT_TRUE(plan) << plan.error().message;
  EXPECT_THAT(plan->remote_hosts, ElementsAre("no-such-host.invalid", "2001:db8::1"));
  EXPECT_EQ(SlotsOf(*plan, "localhost").size(), 2U);
  for (const char* host : {"localhost", "127.0.0.1", "[::1]"}) {
    EXPECT_TRUE(Make({"-np", "1", "-H", host, "true"})->remote_hosts.empty()) << host;
  }
}

TEST_F(Plans, ARankLearnsWhereItIs) {
  environment_.Set("HOROVOD_TOKEN_FILE", "/outer");
  const auto plan = Make({"-np", "2", "-H", "localhost:4", "--cache-capacity", "5", "-x", "A=1=2",
                          "--network-interfaces", "eth7,eth8", "true"});
  ASSERT_TRUE(plan) << plan.error().message;
  const Environment rank = RankEnvironment(*plan, plan->slots[1], {"127.0.0.1:77", "outer/inner"});
  const std::pair<const char*, const char*> wanted[] = {{"HOROVOD_RANK", "1"},
                                                        {"HOROVOD_SIZE", "2"},
                                                        {"HOROVOD_LOCAL_RANK", "1"},
                                                        {"HOROVOD_LOCAL_SIZE", "2"},
                                                        {"HOROVOD_CROSS_RANK", "0"},
                                                        {"HOROVOD_CROSS_SIZE", "1"},
                                                        {"HOROVOD_HOSTNAME", "localhost"},
                                                        {"HOROVOD_RENDEZVOUS_ADDR", "127.0.0.1:77"},
                                                        {"HOROVOD_GLOO_RENDEZVOUS_ADDR", "127.0.0.1"},
                                                        {"HOROVOD_GLOO_RENDEZVOUS_PORT", "77"},
                                                        {"HOROVOD_CONTROLLER", "gloo"},
                                                        {"HOROVOD_CPU_OPERATIONS", "gloo"},
                                                        {"HOROVOD_CACHE_CAPACITY", "5"},
                                                        {"HOROVOD_GLOO_IFACE", "eth7"},
                                                        {"PYTHONUNBUFFERED", "1"},
                                                        {"A", "1=2"},
                                                        {kJobVariable, "outer/inner"}};
  for (const auto& [name, value] : wanted) EXPECT_EQ(rank.Get(name), value) << name;
  EXPECT_FALSE(rank.Get("HOROVOD_TOKEN_FILE"));
  EXPECT_EQ(RankEnvironment(*plan, plan->slots[1], {"[::1]:7", "job", "/f"}).Get("HOROVOD_TOKEN_FILE"), "/f");
}

TEST_F(Plans, WhatIsWithheldReachesNoRankUnlessGiven) {
  environment_.Set("CLOUD_KEY", "secret");
  environment_.Set("OTHER_KEY", "secret");
  const auto plan = Make({"-np", "1", "--no-env", "CLOUD_KEY", "--no-env", "OTHER_KEY", "-x", "OTHER_KEY=x", "true"});
  ASSERT_TRUE(plan) << plan.error().message;
  EXPECT_FALSE(RankEnvironment(*plan, plan->slots[0], {"[::1]:7", "job", ""}).Get("CLOUD_KEY"));
  EXPECT_FALSE(ForOtherHosts(*plan, "/work").environment.Get("CLOUD_KEY"));
  EXPECT_EQ(plan->environment.Get("OTHER_KEY"), "x");
}

TEST_F(Plans, WhatBelongsToAHostDoesNotTravelUnlessGiven) {
  environment_.Set("HOME", "/home/here");
  environment_.Set("SSH_AUTH_SOCK", "/tmp/agent");
  environment_.Set("CUDA_VISIBLE_DEVICES", "1");
  environment_.Set("MINE", "all");
  const auto plan = Make({"-np", "1", "-x", "CUDA_VISIBLE_DEVICES=0", "-x", "TMPDIR=/scratch", "true"});
  ASSERT_TRUE(plan) << plan.error().message;
  Plan there = ForOtherHosts(*plan, "/work");
  EXPECT_EQ(there.folder, "/work");
  EXPECT_FALSE(there.environment.Get("HOME"));
  EXPECT_FALSE(there.environment.Get("SSH_AUTH_SOCK"));
  EXPECT_EQ(there.environment.Get("CUDA_VISIBLE_DEVICES"), "0");
  Environment own;
  own.Set("HOME", "/home/there");
  own.Set("TMPDIR", "/tmp");
  own.Set("MINE", "not");
  own.Set("LC_ALL", "C");
  AddHostsOwn(own, &there.environment);
  EXPECT_EQ(there.environment.Get("HOME"), "/home/there");
  EXPECT_EQ(there.environment.Get("TMPDIR"), "/scratch");
  EXPECT_EQ(there.environment.Get("MINE"), "all");
  EXPECT_FALSE(there.environment.Get("LC_ALL"));
}

TEST_F(Plans, VariablesFromAFile) {
  const std::string file = File("env", "# comment\nexport A=\"x y\"\nB=z\r\n\n", 0644);
  const auto plan = Make({"-np", "1", "--env-file", file, "true"});
  ASSERT_TRUE(plan) << plan.error().message;
  EXPECT_EQ(plan->environment.Get("A"), "x y");
  EXPECT_EQ(plan->environment.Get("B"), "z");
  EXPECT_THAT(Make({"-np", "1", "--env-file", File("bad", "A B\n", 0644), "true"}).error().message,
              HasSubstr("bad:1: expected NAME=VALUE"));
  const std::string marked = File("marked",
                                  "\xEF\xBB\xBF"
                                  "C=1\n",
                                  0644);
  EXPECT_EQ(Make({"-np", "1", "--env-file", marked, "true"})->environment.Get("C"), "1");
  EXPECT_THAT(Make({"-np", "1", "--env-file", File("odd", "ok=1\na-b=2\n", 0644), "true"}).error().message,
              HasSubstr("odd:2: expected NAME=VALUE; a NAME has letters, digits, _ and ."));
  EXPECT_THAT(Make({"-np", "1", "-x", "1A=2", "true"}).error().message,
              HasSubstr("-x 1A: expected NAME or NAME=VALUE"));
  EXPECT_EQ(Make({"-np", "1", "-x", "HOROVOD_RANK=7", "true"}).error().message,
            "-x HOROVOD_RANK: HOROVOD_RANK is for horovodrun to set, on each rank; leave it out");
  EXPECT_THAT(Make({"-np", "1", "-x", "HOROVOD_CPU_OPERATIONS=bogus", "true"}).error().message,
              HasSubstr("HOROVOD_CPU_OPERATIONS=bogus is not valid: give one of \"mpi gloo\""));
  EXPECT_THAT(Make({"-np", "1", "-x", "HOROVOD_HEAP=bogus", "true"}).error().message,
              HasSubstr("HOROVOD_HEAP=bogus is not valid: give one of \"arena system\""));
  EXPECT_EQ(Make({"-np", "1", "--heap", "arena", "true"})->environment.Get("HOROVOD_HEAP"), "arena");
  EXPECT_THAT(Make({"-np", "1", "-x", "NOT_SET", "true"}).error().message, HasSubstr("-x NOT_SET: it is not set here"));
}

TEST_F(Plans, AreShown) {
  const auto plan = Make({"-np", "2", "true", "a b"});
  ASSERT_TRUE(plan);
  EXPECT_THAT(Describe(*plan), HasSubstr("true 'a b'\nrank 0   host localhost, local rank 0 of 2"));
  EXPECT_EQ(nlohmann::json::parse(DescribeAsJson(*plan))["ranks"].size(), 2U);
}

}  // namespace
}  // namespace hvd::launch
