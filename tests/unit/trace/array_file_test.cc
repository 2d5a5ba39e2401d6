// SPDX-License-Identifier: Apache-2.0
#include "hvd/trace/array_file.h"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <signal.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include "tests/unit/trace/strict_json.h"

namespace hvd::trace {
namespace {

class ArrayFileTest : public ::testing::Test {
 protected:
  std::unique_ptr<ArrayFile> Make(uint64_t limit = 0) {
    auto made = ArrayFile::Create(path_, "0", limit);
    EXPECT_TRUE(made);
    return std::move(*made);
  }
  std::vector<Json> Items() const {
    const auto value = JsonReader::Parse(ReadFile(path_));
    EXPECT_TRUE(value);
    return value ? value->items : std::vector<Json>{};
  }

  TempFolder folder_;
  const std::string path_ = folder_.File("array.json");
};

TEST_F(ArrayFileTest, IsAnArrayFromTheBeginning) {
  const auto file = Make();
  EXPECT_EQ(Items().size(), 1u);
  ASSERT_TRUE(file->Append("1"));
  EXPECT_EQ(Items().size(), 1u);
  ASSERT_TRUE(file->Flush());
  EXPECT_EQ(Items().size(), 2u);
}

TEST_F(ArrayFileTest, FollowsNoPlantedLinkAndKeepsTheMode) {
  const std::string victim = folder_.File("victim");
  ASSERT_EQ(::close(::open(victim.c_str(), O_CREAT | O_WRONLY, 0600)), 0);
  ASSERT_EQ(::symlink(victim.c_str(), (path_ + ".part").c_str()), 0);
  ASSERT_EQ(::close(::open(path_.c_str(), O_CREAT | O_WRONLY, 0600)), 0);
  ASSERT_TRUE(Make()->Close());
  EXPECT_EQ(Items().size(), 1u);
  EXPECT_EQ(ReadFile(victim), "");
  struct stat info {};
  ASSERT_EQ(::stat(path_.c_str(), &info), 0);
  EXPECT_EQ(info.st_mode & 0777, 0600u);
}

TEST_F(ArrayFileTest, IsAnArrayAfterEveryElement) {
  const auto file = Make();
  int count = 1;
  for (size_t length = 1; length < 4000; length += length / 3 + 1) {
    for (int i = 0; i < 3; ++i) {
      ASSERT_TRUE(file->Append("\"" + std::string(length, 'x') + "\""));
      if (i != 1) {
        ASSERT_TRUE(file->Flush());
      }
      ++count;
    }
    ASSERT_EQ(Items().size(), static_cast<size_t>(count)) << length;
  }
}

TEST_F(ArrayFileTest, GrowsAndKeepsEverything) {
  const auto file = Make();
  for (int i = 1; i < 100000; ++i) ASSERT_TRUE(file->Append(std::to_string(i)));
  ASSERT_TRUE(file->Flush());
  const auto items = Items();
  ASSERT_EQ(items.size(), 100000u);
  for (size_t i = 0; i < items.size(); ++i) ASSERT_EQ(items[i].number, i);
}

TEST_F(ArrayFileTest, ElementsThatFillPagesExactly) {
  const auto file = Make();
  for (int i = 0; i < 100; ++i) ASSERT_TRUE(file->Append("\"" + std::string(2044, 'x') + "\""));
  ASSERT_TRUE(file->Append("\"" + std::string(ArrayFile::kMaxUnit - 2, 'y') + "\""));
  EXPECT_FALSE(file->Append(std::string(ArrayFile::kMaxUnit + 1, '1')));
  ASSERT_TRUE(file->Flush());
  EXPECT_EQ(Items().size(), 102u);
}

TEST_F(ArrayFileTest, StaysBelowItsLimit) {
  const auto file = Make(200000);
  int count = 1;
  while (true) {
    const Status added = file->Append("123456789");
    if (!added) {
      EXPECT_EQ(added.error().code, Code::kResourceExhausted);
      break;
    }
    ++count;
  }
  ASSERT_TRUE(file->Flush());
  const std::string text = ReadFile(path_);
  EXPECT_LE(text.size(), 200000u);
  EXPECT_GT(text.size(), 190000u);
  EXPECT_EQ(Items().size(), static_cast<size_t>(count));
}

TEST_F(ArrayFileTest, CloseTakesTheBlanksAway) {
  const auto file = Make();
  ASSERT_TRUE(file->Append("1"));
  ASSERT_TRUE(file->Close());
  EXPECT_EQ(ReadFile(path_), "[\n0,\n1\n]\n");
  EXPECT_EQ(ReadFile(path_ + ".part"), "");
}

TEST_F(ArrayFileTest, APlaceThatCannotBeWrittenIsAnError) {
  const auto made = ArrayFile::Create("/proc/nowhere/t.json", "0", 0);
  ASSERT_FALSE(made);
  EXPECT_NE(made.error().message.find("/proc/nowhere/t.json"), std::string::npos);
}

// A full disk, as far as a test can have one: files of this process may not grow beyond 100000 bytes.
TEST_F(ArrayFileTest, DevicesAndPipesAreNotReplaced) {
  ASSERT_EQ(::mkfifo(path_.c_str(), 0600), 0);
  const auto made = ArrayFile::Create(path_, "0", 0);
  ASSERT_FALSE(made);
  EXPECT_NE(made.error().message.find("is no regular file"), std::string::npos);
  struct stat there {};
  ASSERT_EQ(::stat(path_.c_str(), &there), 0);
  EXPECT_TRUE(S_ISFIFO(there.st_mode));
}

TEST_F(ArrayFileTest, WhenTheDiskIsFullTheFileStaysAnArray) {
  rlimit before{};
  ::getrlimit(RLIMIT_FSIZE, &before);
  ::signal(SIGXFSZ, SIG_IGN);
  const auto file = Make();
  const rlimit small{100000, before.rlim_max};
  ::setrlimit(RLIMIT_FSIZE, &small);
  size_t count = 1;
  Status added;
  for (; added; ++count) added = file->Append("\"0123456789\"");
  ::setrlimit(RLIMIT_FSIZE, &before);
  EXPECT_EQ(added.error().code, Code::kUnknown);
  EXPECT_EQ(Items().size(), count - 1);
  EXPECT_TRUE(file->Append("1"));  // There is space again.
  EXPECT_TRUE(file->Close());
  EXPECT_EQ(Items().size(), count);
}

TEST_F(ArrayFileTest, IsAnArrayWheneverTheWriterIsKilled) {
  for (int round = 0; round < 40; ++round) {
    int pipe[2];
    ASSERT_EQ(::pipe(pipe), 0);
    const pid_t child = ::fork();
    if (child == 0) {
      auto file = ArrayFile::Create(path_, "0", 0);
      for (int i = 1; i < 10000000; ++i) {
        if (i == 1 + round * 50) [[maybe_unused]]
          const auto told = ::write(pipe[1], "x", 1);
        if (!(*file)->Append("\"" + std::string(static_cast<size_t>(i % 500), 'x') + "\"") || !(*file)->Flush()) break;
      }
      ::_exit(1);
    }
    ::close(pipe[1]);
    char begun = 0;
    ASSERT_EQ(::read(pipe[0], &begun, 1), 1) << "the writer ended by itself";
    ::kill(child, SIGKILL);
    int status = 0;
    ::waitpid(child, &status, 0);
    EXPECT_TRUE(WIFSIGNALED(status));
    ::close(pipe[0]);
    EXPECT_GE(Items().size(), 1u + static_cast<size_t>(round) * 50);
  }
}

}  // namespace
}  // namespace hvd::trace
