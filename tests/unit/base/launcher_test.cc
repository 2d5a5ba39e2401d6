// SPDX-License-Identifier: Apache-2.0
// Who started this process, by the variables that each launcher sets, and what contradicts them.
#include "hvd/base/launcher.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <map>

#include "hvd/base/config.h"

namespace hvd {
namespace {

using ::testing::HasSubstr;
using Given = std::map<std::string, std::string>;

Result<Launcher> Find(const Given& given) {
  return FindLauncher([&](const char* name) -> const char* {
    const auto found = given.find(name);
    return found == given.end() ? nullptr : found->second.c_str();
  });
}

Given Together(Given a, const Given& b) {
  a.insert(b.begin(), b.end());
  return a;
}

const Given kOpenMpi{{"OMPI_COMM_WORLD_RANK", "1"},
                     {"OMPI_COMM_WORLD_SIZE", "4"},
                     {"OMPI_COMM_WORLD_LOCAL_RANK", "1"},
                     {"OMPI_COMM_WORLD_LOCAL_SIZE", "2"},
                     {"PMIX_NAMESPACE", "77"},
                     {"PMIX_RANK", "1"},
                     {"PMIX_SERVER_URI2", "76.0;tcp4://127.0.0.1:37689"}};
const Given kMpich{
    {"PMI_RANK", "2"}, {"PMI_SIZE", "3"}, {"PMI_FD", "6"}, {"MPI_LOCALRANKID", "2"}, {"MPI_LOCALNRANKS", "3"}};
const Given kSlurm{{"SLURM_PROCID", "3"},         {"SLURM_NTASKS", "8"},
                   {"SLURM_STEP_NUM_TASKS", "5"}, {"SLURM_STEP_ID", "0"},
                   {"SLURM_JOB_ID", "12"},        {"SLURM_NODEID", "1"},
                   {"SLURM_LOCALID", "1"},        {"SLURM_STEP_TASKS_PER_NODE", "2(x2),1"}};
const Given kTorch{{"RANK", "1"},          {"WORLD_SIZE", "2"},     {"LOCAL_RANK", "1"}, {"LOCAL_WORLD_SIZE", "2"},
                   {"MASTER_ADDR", "a.b"}, {"MASTER_PORT", "29500"}};

TEST(Launcher, EachIsKnownByItsVariables) {
  const auto open_mpi = Find(kOpenMpi);
  ASSERT_TRUE(open_mpi);
  EXPECT_EQ(open_mpi->kind, LauncherKind::kOpenMpi);
  EXPECT_EQ(open_mpi->rank, 1);
  EXPECT_EQ(open_mpi->size, 4);
  EXPECT_EQ(open_mpi->local_rank, 1);
  EXPECT_EQ(open_mpi->local_size, 2);
  EXPECT_FALSE(open_mpi->all_local());
  EXPECT_TRUE(open_mpi->pmix);
  EXPECT_EQ(open_mpi->job, "pmix-77-76.0;tcp4://127.0.0.1:37689");

  const auto mpich = Find(kMpich);
  ASSERT_TRUE(mpich);
  EXPECT_EQ(mpich->kind, LauncherKind::kMpich);
  EXPECT_EQ(mpich->rank, 2);
  EXPECT_TRUE(mpich->all_local());
  EXPECT_EQ(mpich->pmi_fd, 6);

  const auto slurm = Find(kSlurm);
  ASSERT_TRUE(slurm);
  EXPECT_EQ(slurm->kind, LauncherKind::kSlurm);
  EXPECT_EQ(slurm->rank, 3);
  EXPECT_EQ(slurm->size, 5) << "of the step, not of the allocation";
  EXPECT_EQ(slurm->local_rank, 1);
  EXPECT_EQ(slurm->local_size, 2);
  EXPECT_EQ(slurm->job, "slurm-12-0");

  const auto torch = Find(kTorch);
  ASSERT_TRUE(torch);
  EXPECT_EQ(torch->kind, LauncherKind::kVariables);
  EXPECT_EQ(torch->master_port, 29500);

  const auto jsrun = Find({{"JSM_NAMESPACE_RANK", "0"}, {"JSM_NAMESPACE_SIZE", "2"}});
  ASSERT_TRUE(jsrun);
  EXPECT_EQ(jsrun->kind, LauncherKind::kJsrun);
  EXPECT_EQ(jsrun->local_size, -1);

  EXPECT_EQ(Find({})->kind, LauncherKind::kNone);
}

TEST(Launcher, TheInnerOneCounts) {
  const Given torchrun = Together(kTorch, {{"TORCHELASTIC_RUN_ID", "none"}});
  EXPECT_EQ(Find(Together(torchrun, kSlurm))->kind, LauncherKind::kTorchrun);
  EXPECT_EQ(Find(Together(kOpenMpi, kSlurm))->kind, LauncherKind::kOpenMpi);
  EXPECT_EQ(Find(Together(kMpich, kSlurm))->kind, LauncherKind::kMpich);
  // srun --mpi=pmi2 sets PMI_RANK, too.
  EXPECT_EQ(Find(Together(kSlurm, {{"PMI_RANK", "3"}, {"PMI_SIZE", "5"}, {"PMI_FD", "9"}}))->kind,
            LauncherKind::kSlurm);
  // One process alone is no job: what it started may be.
  EXPECT_EQ(Find(Together({{"OMPI_COMM_WORLD_RANK", "0"}, {"OMPI_COMM_WORLD_SIZE", "1"}}, kTorch))->kind,
            LauncherKind::kVariables);
}

TEST(Launcher, WhatIsNoStepOfSrunIsNoJob) {
  // A batch script, and a shell that salloc opened.
  EXPECT_EQ(Find({{"SLURM_PROCID", "0"}, {"SLURM_NTASKS", "4"}, {"SLURM_JOB_ID", "1"}})->kind, LauncherKind::kNone);
  EXPECT_EQ(Find({{"SLURM_PROCID", "0"},
                  {"SLURM_NTASKS", "4"},
                  {"SLURM_STEP_ID", "4294967290"},
                  {"SLURM_STEP_NUM_TASKS", "1"}})
                ->kind,
            LauncherKind::kNone);
}

TEST(Launcher, NonsenseNamesTheVariable) {
  const auto text = Find(Together({{"OMPI_COMM_WORLD_RANK", "one"}}, kOpenMpi));
  ASSERT_FALSE(text);
  EXPECT_THAT(text.error().message, HasSubstr("OMPI_COMM_WORLD_RANK=one"));
  const auto above = Find({{"PMI_RANK", "3"}, {"PMI_SIZE", "3"}, {"MPI_LOCALRANKID", "0"}});
  ASSERT_FALSE(above);
  EXPECT_THAT(above.error().message, HasSubstr("PMI_RANK=3 is not below PMI_SIZE=3"));
}

TEST(Launcher, RanksThatContradictAreAnError) {
  Config config;
  config.launcher = *Find(kOpenMpi);
  config.rank = 0;
  config.size = 4;
  const Status rank = FollowLauncher(&config);
  ASSERT_FALSE(rank);
  EXPECT_THAT(rank.error().message, HasSubstr("HOROVOD_RANK=0 contradicts OMPI_COMM_WORLD_RANK=1"));
  config.rank = -1;
  config.size = 2;
  const Status size = FollowLauncher(&config);
  ASSERT_FALSE(size);
  EXPECT_THAT(size.error().message, HasSubstr("HOROVOD_SIZE=2 contradicts OMPI_COMM_WORLD_SIZE=4"));
  config.size = 4;
  ASSERT_TRUE(FollowLauncher(&config));
  EXPECT_EQ(config.rank, 1);
  EXPECT_EQ(config.local_size, 2);
}

TEST(Launcher, AJobOfItsOwnIsNotTheLaunchers) {
  Config config;
  config.launcher = *Find(kSlurm);
  config.rank = 0;
  config.size = 2;
  config.rendezvous_addr = "127.0.0.1:4711";
  ASSERT_TRUE(FollowLauncher(&config));
  EXPECT_EQ(config.size, 2);
  EXPECT_EQ(config.launcher.kind, LauncherKind::kNone);
}

TEST(Launcher, VariablesOfTorchThatLackOneAreAnErrorThatNamesIt) {
  for (const auto& [lacks, other] :
       {std::pair("MASTER_PORT", "MASTER_ADDR"), std::pair("MASTER_ADDR", "MASTER_PORT")}) {
    Given given = kTorch;
    given.erase(lacks);
    Config config;
    config.launcher = *Find(given);
    EXPECT_EQ(config.launcher.kind, LauncherKind::kNone);
    const Status followed = FollowLauncher(&config);
    ASSERT_FALSE(followed);
    EXPECT_THAT(followed.error().message, HasSubstr(std::string(lacks) + " is not"));
    EXPECT_THAT(followed.error().message, HasSubstr(std::string(other) + " are set"));
    // Whoever says HOROVOD_RANK needs none of them.
    config.rank = 0;
    config.size = 2;
    EXPECT_TRUE(FollowLauncher(&config));
  }
}

TEST(Launcher, RankAndWorldSizeAloneMayBeAnybodys) {
  Config config;
  config.launcher = *Find({{"RANK", "gold"}, {"WORLD_SIZE", "large"}});
  EXPECT_EQ(config.launcher.kind, LauncherKind::kNone);
  EXPECT_THAT(config.launcher.hint, HasSubstr("MASTER_ADDR and MASTER_PORT are not set"));
  EXPECT_TRUE(FollowLauncher(&config));
  EXPECT_TRUE(FollowLauncher(&config));
  EXPECT_EQ(Find({{"RANK", "0"}})->hint, "");
}

}  // namespace
}  // namespace hvd
