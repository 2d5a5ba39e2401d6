// SPDX-License-Identifier: Apache-2.0
#include "hvd/net/token.h"

#include <gtest/gtest.h>
#include <sys/stat.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>
#include <new>

namespace hvd::net {
namespace {

const std::string kHex = "000102030405060708090a0b0c0d0e0f101112131415161718191A1B1C1D1E1F";

class TokenFile : public ::testing::Test {
 protected:
  void SetUp() override {
    char name[] = "/tmp/hvd-token-XXXXXX";
    folder_ = mkdtemp(name);
    path_ = folder_ + "/token";
  }
  void TearDown() override { std::filesystem::remove_all(folder_); }
  void Write(const std::string& text, mode_t mode = 0600) {
    std::ofstream(path_) << text;
    chmod(path_.c_str(), mode);
  }
  std::string folder_, path_;
};

TEST_F(TokenFile, SavedTokenLoads) {
  const Token token = *Token::Generate();
  ASSERT_TRUE(token.Save(path_));
  struct stat info {};
  ASSERT_EQ(stat(path_.c_str(), &info), 0);
  EXPECT_EQ(info.st_mode & 07777, 0600u);
  EXPECT_TRUE(*Token::Load(path_) == token);
  EXPECT_EQ(token.Save(path_).error().code, Code::kAlreadyExists);
}

TEST_F(TokenFile, WhiteSpaceAtTheEndIsFine) {
  for (const char* end : {"", "\n", "\r\n", " \n\n"}) {
    Write(kHex + end);
    const auto token = Token::Load(path_);
    ASSERT_TRUE(token) << token.error().message;
    EXPECT_EQ(token->bytes()[31], 0x1f);
  }
}

TEST_F(TokenFile, ReadableByOthersNamesFileModeAndFix) {
  for (const mode_t mode : {0640, 0604, 0660, 0601}) {
    Write(kHex, mode);
    const auto token = Token::Load(path_);
    ASSERT_FALSE(token);
    EXPECT_EQ(token.error().code, Code::kPermissionDenied);
    EXPECT_NE(token.error().message.find(fmt::format("{:04o}", mode)), std::string::npos);
    EXPECT_NE(token.error().message.find("chmod 600 " + path_), std::string::npos);
  }
}

TEST_F(TokenFile, BadContentIsNotRepeated) {
  const std::string secret = "not-a-token-but-maybe-a-password";
  for (const std::string& text :
       {secret, std::string(), kHex + "00", kHex.substr(2), std::string(64, 'g'), kHex + "\nx"}) {
    Write(text);
    const auto token = Token::Load(path_);
    ASSERT_FALSE(token) << text;
    EXPECT_NE(token.error().message.find(path_), std::string::npos);
    EXPECT_EQ(token.error().message.find(secret), std::string::npos);
  }
}

TEST_F(TokenFile, MustBeARegularFile) {
  EXPECT_EQ(Token::Load(path_).error().code, Code::kNotFound);
  EXPECT_FALSE(Token::Load(folder_));
  ASSERT_EQ(mkfifo(path_.c_str(), 0600), 0);
  EXPECT_EQ(Token::Load(path_).error().code, Code::kInvalidArgument);
}

TEST_F(TokenFile, OfAnotherUserIsRefused) {
  if (geteuid() != 0) GTEST_SKIP() << "needs root to give a file away";
  Write(kHex);
  ASSERT_EQ(chown(path_.c_str(), 12345, 12345), 0);
  EXPECT_EQ(Token::Load(path_).error().code, Code::kPermissionDenied);
}

TEST(Token, GeneratedOnesDiffer) { EXPECT_FALSE(*Token::Generate() == *Token::Generate()); }

TEST(Token, MemoryIsZeroedAtDestruction) {
  alignas(Token) unsigned char memory[sizeof(Token)];
  auto* token = new (memory) Token(*Token::FromHex(std::string(64, 'a')));
  const volatile unsigned char* seen = memory;
  ASSERT_EQ(seen[0], 0xaa);
  token->~Token();
  for (size_t i = 0; i < sizeof(Token); ++i) EXPECT_EQ(seen[i], 0);
}

}  // namespace
}  // namespace hvd::net
