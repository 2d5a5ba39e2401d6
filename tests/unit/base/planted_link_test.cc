// SPDX-License-Identifier: Apache-2.0
#include "hvd/base/planted_link.h"

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

TEST_F(PlantedLink, AnotherUsersAreRefusedWhereEverybodyCanWrite) {
  if (::lchown(link_.c_str(), 12345, 12345) != 0) GTEST_SKIP() << "needs root";
  EXPECT_TRUE(CheckNoPlantedLink(link_)) << "only the folder's owner can have put it there";
  ASSERT_EQ(::chmod(folder_.c_str(), 01777), 0);
  const auto checked = CheckNoPlantedLink(link_);
  ASSERT_FALSE(checked);
  EXPECT_NE(checked.error().message.find("uid 12345"), std::string::npos);
}

}  // namespace
}  // namespace hvd
