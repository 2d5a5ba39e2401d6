// SPDX-License-Identifier: Apache-2.0
#include "hvd/base/planted_link.h"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <unistd.h>

#include <filesystem>

namespace hvd {
namespace {

class PlantedLink : public ::testing::Test {
 protected:
  void SetUp() override {
    char name[] = "/tmp/hvd_link_XXXXXX";
    folder_ = ::mkdtemp(name);
    link_ = folder_ + "/link";
    ASSERT_EQ(::symlink("/tmp/somewhere", link_.c_str()), 0);
  }
  void TearDown() override { std::filesystem::remove_all(folder_); }

  std::string folder_, link_;
};

TEST_F(PlantedLink, OnesOwnAreFine) {
  EXPECT_TRUE(CheckNoPlantedLink(link_));
  ASSERT_EQ(::chmod(folder_.c_str(), 01777), 0);
  EXPECT_TRUE(CheckNoPlantedLink(link_));
  EXPECT_TRUE(CheckNoPlantedLink(folder_ + "/nothing"));
  EXPECT_TRUE(CheckNoPlantedLink("/dev/stdout"));
}

TEST_F(PlantedLink, AnotherUsersAreRefusedWhereOthersCanWrite) {
  if (::lchown(link_.c_str(), 12345, 12345) != 0) GTEST_SKIP() << "needs root";
  EXPECT_TRUE(CheckNoPlantedLink(link_)) << "only the folder's owner can have put it there";
  for (const mode_t mode : {01777, 0770}) {
    ASSERT_EQ(::chmod(folder_.c_str(), mode), 0);
    const auto checked = CheckNoPlantedLink(link_);
    ASSERT_FALSE(checked);
    EXPECT_NE(checked.error().message.find("uid 12345"), std::string::npos);
    EXPECT_FALSE(OpenToWrite(link_));
  }
  EXPECT_FALSE(std::filesystem::exists("/tmp/somewhere"));
}

TEST_F(PlantedLink, FilesAreWrittenAnew) {
  const std::string path = folder_ + "/file";
  const std::string alias = folder_ + "/alias";
  ASSERT_EQ(::symlink("file", alias.c_str()), 0);
  for (const std::string& name : {path, alias}) {
    const auto fd = OpenToWrite(name);
    ASSERT_TRUE(fd) << fd.error().message;
    EXPECT_EQ(::lseek(*fd, 0, SEEK_END), 0) << "what was there before is gone";
    EXPECT_EQ(::write(*fd, "text", 4), 4);
    ::close(*fd);
    EXPECT_EQ(std::filesystem::file_size(path), 4u);
  }
  EXPECT_FALSE(OpenToWrite(folder_));
  const auto null = OpenToWrite("/dev/null");
  ASSERT_TRUE(null);
  ::close(*null);
}

TEST_F(PlantedLink, NobodyWaitsForAPipe) {
  const std::string path = folder_ + "/pipe";
  ASSERT_EQ(::mkfifo(path.c_str(), 0666), 0);
  EXPECT_FALSE(OpenToWrite(path)) << "nobody reads it";
  const int reader = ::open(path.c_str(), O_RDONLY | O_NONBLOCK);
  const auto fd = OpenToWrite(path);
  ASSERT_TRUE(fd) << fd.error().message;
  ::close(*fd);
  if (::chown(path.c_str(), 12345, 12345) == 0) {
    EXPECT_FALSE(OpenToWrite(path)) << "another user's";
  }
  ::close(reader);
}

}  // namespace
}  // namespace hvd
