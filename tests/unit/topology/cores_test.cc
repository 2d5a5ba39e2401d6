// SPDX-License-Identifier: Apache-2.0
#include "hvd/topology/cores.h"

#include <gtest/gtest.h>
#include <sched.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>
#include <thread>
#include <vector>

namespace hvd::topology {
namespace {

class Cgroup : public ::testing::Test {
 protected:
  void SetUp() override {
    char name[] = "/tmp/hvd-cgroup-XXXXXX";
    folder_ = mkdtemp(name);
    paths_ = {folder_ + "/membership", folder_ + "/fs"};
  }
  void TearDown() override { std::filesystem::remove_all(folder_); }
  void Write(const std::string& path, const std::string& text) {
    const std::filesystem::path full = folder_ + "/" + path;
    std::filesystem::create_directories(full.parent_path());
    std::ofstream(full) << text;
  }
  std::string folder_;
  CgroupPaths paths_;
};

TEST_F(Cgroup, NothingThereMeansNoLimit) {
  EXPECT_FALSE(CgroupCpuLimit(paths_));
  EXPECT_FALSE(CgroupMemoryLimit(paths_));
  EXPECT_GE(UsableCores(paths_), 1);
  EXPECT_GT(TotalMemory(paths_), 0);
}

TEST_F(Cgroup, V2TakesTheLeastOfAllLevels) {
  Write("membership", "0::/pod/worker\n");
  Write("fs/pod/worker/cpu.max", "max 100000\n");
  Write("fs/pod/cpu.max", "250000 100000\n");
  Write("fs/pod/worker/memory.max", "1048576\n");
  Write("fs/pod/memory.max", "max\n");
  EXPECT_DOUBLE_EQ(*CgroupCpuLimit(paths_), 2.5);
  EXPECT_EQ(*CgroupMemoryLimit(paths_), 1048576);
  EXPECT_EQ(TotalMemory(paths_), 1048576);
}

TEST_F(Cgroup, V2InAContainerWhosePathIsTheHosts) {
  Write("membership", "0::/kubepods/burstable/pod1\n");
  Write("fs/cpu.max", "50000 100000\n");
  EXPECT_DOUBLE_EQ(*CgroupCpuLimit(paths_), 0.5);
  EXPECT_EQ(UsableCores(paths_), 1);
}

TEST_F(Cgroup, V1) {
  Write("membership", "4:memory:/a\n3:cpu,cpuacct:/a\n1:name=systemd:/a\n");
  Write("fs/cpu/a/cpu.cfs_quota_us", "150000\n");
  Write("fs/cpu/a/cpu.cfs_period_us", "100000\n");
  Write("fs/cpu/cpu.cfs_quota_us", "-1\n");
  Write("fs/cpu/cpu.cfs_period_us", "100000\n");
  Write("fs/memory/a/memory.limit_in_bytes", "9223372036854771712\n");
  EXPECT_DOUBLE_EQ(*CgroupCpuLimit(paths_), 1.5);
  EXPECT_FALSE(CgroupMemoryLimit(paths_));
}

TEST_F(Cgroup, AQuotaAboveTheMachineDoesNotMatter) {
  const int cores = UsableCores(paths_);
  Write("membership", "0::/\n");
  Write("fs/cpu.max", "99999999999999999 1\n");
  EXPECT_EQ(UsableCores(paths_), cores);
}

void BindToFirstCore() {
  cpu_set_t all;
  ASSERT_EQ(sched_getaffinity(0, sizeof(all), &all), 0);
  int first = 0;
  while (!CPU_ISSET(first, &all)) ++first;
  cpu_set_t one;
  CPU_ZERO(&one);
  CPU_SET(first, &one);
  ASSERT_EQ(sched_setaffinity(0, sizeof(one), &one), 0);
}

TEST_F(Cgroup, AffinityCounts) {
  int seen = 0;
  std::thread([&] {
    BindToFirstCore();
    seen = UsableCores(paths_);
  }).join();
  EXPECT_EQ(seen, 1);
}

TEST_F(Cgroup, ProcessesThatAreBoundHaveTheirCoresTogether) {
  const int cores = UsableCores(paths_);
  int together = 0;
  const int process = ::getpid();
  // The main thread's affinity is the process's: still all cores.
  std::thread([&] {
    BindToFirstCore();
    together = UsableCores(std::vector<int>{process, 0x7fffffff}, paths_);
  }).join();
  EXPECT_EQ(together, cores);
}

TEST(Affinity, OneCoreEachOrTheFirstOnes) {
  EXPECT_EQ(*CoreOf("0,4,8", 2), 8);
  EXPECT_EQ(*CoreOf("4", 0), 4);
  EXPECT_EQ(*CoreOf("4", 3), 7);
}

TEST(Affinity, AnErrorNamesWhatIsWrong) {
  for (const char* bad : {"", "x", "1,", "1,,2", "-1", "0,2x", "99999999999"}) {
    ASSERT_FALSE(CoreOf(bad, 0)) << bad;
    EXPECT_NE(CoreOf(bad, 0).error().message.find("HOROVOD_THREAD_AFFINITY="), std::string::npos);
  }
  const auto none = CoreOf("0,1", 2);
  ASSERT_FALSE(none);
  EXPECT_NE(none.error().message.find("local rank 2"), std::string::npos);
}

TEST(Affinity, AThreadIsBound) {
  std::thread([] {
    const int core = ::sched_getcpu();
    ASSERT_TRUE(BindToCore(core));
    cpu_set_t bound;
    ASSERT_EQ(::sched_getaffinity(0, sizeof bound, &bound), 0);
    EXPECT_EQ(CPU_COUNT(&bound), 1);
    EXPECT_TRUE(CPU_ISSET(core, &bound));
    EXPECT_FALSE(BindToCore(100'000));
  }).join();
}

}  // namespace
}  // namespace hvd::topology
