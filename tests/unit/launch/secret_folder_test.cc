// SPDX-License-Identifier: Apache-2.0
// Folders of tokens go with their job, or else when the next job of that user starts.
#include "hvd/launch/run/secret_folder.h"

#include <fmt/format.h>
#include <gtest/gtest.h>
#include <stdlib.h>
#include <sys/stat.h>

#include <filesystem>
#include <fstream>
#include <optional>

#include "hvd/topology/process.h"

namespace hvd::launch {
namespace {

class SecretFolderTest : public ::testing::Test {
 protected:
  SecretFolderTest() {
    char name[] = "/tmp/hvd_secret_XXXXXX";
    parent_ = ::mkdtemp(name);
    environment_.Set("XDG_RUNTIME_DIR", parent_);
  }
  ~SecretFolderTest() override { std::filesystem::remove_all(parent_); }

  // What a launcher leaves that was killed: `later` is how much later than this process it was started.
  std::string Leave(const std::string& name, uint64_t later, mode_t mode = 0700) {
    const std::string folder = parent_ + "/" + name;
    EXPECT_EQ(::mkdir(folder.c_str(), mode), 0);
    EXPECT_EQ(::chmod(folder.c_str(), mode), 0);
    const topology::Process self = topology::ThisProcess();
    std::ofstream(folder + "/owner") << fmt::format("{} {} {}", self.pid, self.start_time + later, self.machine);
    std::ofstream(folder + "/token") << "secret";
    return folder;
  }

  std::string parent_;
  Environment environment_;
};

TEST_F(SecretFolderTest, GoesWithItsOwner) {
  std::string path;
  {
    const auto folder = SecretFolder::Create(environment_);
    ASSERT_TRUE(folder);
    path = folder->path();
    const auto token = net::Token::Generate();
    ASSERT_TRUE(token);
    ASSERT_TRUE(folder->Put(*token));
    struct stat info {};
    ASSERT_EQ(::stat(folder->token_file().c_str(), &info), 0);
    EXPECT_EQ(info.st_mode & 0777, 0600u);
    ASSERT_EQ(::stat(path.c_str(), &info), 0);
    EXPECT_EQ(info.st_mode & 0777, 0700u);
  }
  EXPECT_FALSE(std::filesystem::exists(path));
}

TEST_F(SecretFolderTest, IsRemovedByTheNextJobIfItsOwnerWasKilled) {
  const std::string left = Leave("hvd-killed", 1);
  const std::string running = Leave("hvd-running", 0);
  const std::string open = Leave("hvd-open", 1, 0755);
  const std::string other = Leave("other", 1);
  const std::string ownerless = Leave("hvd-ownerless", 1);
  std::filesystem::remove(ownerless + "/owner");
  ASSERT_TRUE(SecretFolder::Create(environment_));
  EXPECT_FALSE(std::filesystem::exists(left));
  for (const std::string& folder : {running, open, other, ownerless}) {
    EXPECT_TRUE(std::filesystem::exists(folder + "/token")) << folder;
  }
}

}  // namespace
}  // namespace hvd::launch
