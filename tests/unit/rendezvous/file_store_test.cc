// SPDX-License-Identifier: Apache-2.0
#include <gtest/gtest.h>
#include <sys/stat.h>
#include <unistd.h>

#include <filesystem>

#include "hvd/rendezvous/factory.h"
#include "hvd/rendezvous/file/name.h"

namespace hvd::rendezvous {
namespace {

class FileStore : public ::testing::Test {
 protected:
  void SetUp() override {
    char name[] = "/tmp/hvd-file-store-XXXXXX";
    parent_ = mkdtemp(name);
    folder_ = parent_ + "/store";
  }
  void TearDown() override { std::filesystem::remove_all(parent_); }
  std::string parent_, folder_;
};

TEST_F(FileStore, FolderIsMadeForThisUserAlone) {
  umask(0);
  ASSERT_TRUE(OpenStore({.address = "file://" + folder_}));
  struct stat info {};
  ASSERT_EQ(stat(folder_.c_str(), &info), 0);
  EXPECT_EQ(info.st_mode & 0777, 0700u);
}

TEST_F(FileStore, AFolderOpenToOthersIsRefusedWithTheFix) {
  ASSERT_EQ(mkdir(folder_.c_str(), 0700), 0);
  ASSERT_EQ(chmod(folder_.c_str(), 0755), 0);
  const auto store = OpenStore({.address = "file://" + folder_});
  ASSERT_FALSE(store);
  EXPECT_EQ(store.error().code, Code::kPermissionDenied);
  EXPECT_NE(store.error().message.find("chmod 700 " + folder_), std::string::npos);
}

TEST_F(FileStore, RelativePathsAndMissingParentsAreErrors) {
  EXPECT_EQ(OpenStore({.address = "file://relative"}).error().code, Code::kInvalidArgument);
  EXPECT_FALSE(OpenStore({.address = "file://" + parent_ + "/no/such"}));
}

TEST_F(FileStore, ContentOutlivesItsWriterAndNothingElseIsLeft) {
  ASSERT_TRUE((*OpenStore({.address = "file://" + folder_}))->Set("rank/0", "here"));
  const auto store = *OpenStore({.address = "file://" + folder_});
  EXPECT_EQ(store->Wait({"rank/0"}, Duration(0))->front(), "here");
  EXPECT_EQ(std::distance(std::filesystem::directory_iterator(folder_), {}), 1);
}

TEST_F(FileStore, ALinkPlantedInTheFolderIsNotFollowed) {
  const auto store = *OpenStore({.address = "file://" + folder_});
  std::filesystem::create_symlink("/etc/hostname", folder_ + "/k-key");
  EXPECT_FALSE(store->Wait({"key"}, Duration(0)));
}

TEST(FileName, IsNeverAPathAndNeverTooLong) {
  for (const std::string& key : {std::string("a/b"), std::string(".."), std::string(256, '/'), std::string(256, 'a')}) {
    const std::string name = *file::FileName(key);
    EXPECT_EQ(name.find('/'), std::string::npos);
    EXPECT_NE(name.front(), '.');
    EXPECT_LE(name.size(), 255u);
  }
  EXPECT_EQ(*file::FileName("rank/0"), "k-rank%2F0");
  EXPECT_NE(*file::FileName(std::string(256, 'a')), *file::FileName(std::string(255, 'a')));
}

}  // namespace
}  // namespace hvd::rendezvous
