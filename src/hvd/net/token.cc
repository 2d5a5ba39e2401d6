// SPDX-License-Identifier: Apache-2.0
#include "hvd/net/token.h"

#include <fcntl.h>
#include <sys/stat.h>

#include <cerrno>

#include "hvd/net/fd.h"
#include "hvd/net/socket.h"

namespace hvd::net {
namespace {

int HexValue(char c) {
  if (c >= '0' && c <= '9') return c - '0';
  if (c >= 'a' && c <= 'f') return c - 'a' + 10;
  if (c >= 'A' && c <= 'F') return c - 'A' + 10;
  return -1;
}

// Zeroes what it is given when the scope ends, on every path.
struct Wiper {
  void* memory;
  size_t bytes;
  ~Wiper() { SecureZero(memory, bytes); }
};

Status CheckFile(int fd, const std::string& path) {
  struct stat info {};
  if (::fstat(fd, &info) != 0) return Fail(Code::kUnknown, "token file {}: {}", path, ErrnoText(errno));
  if (!S_ISREG(info.st_mode)) return Fail(Code::kInvalidArgument, "token file {} is not a regular file", path);
  if (info.st_uid != ::geteuid()) {
    return Fail(Code::kPermissionDenied,
                "token file {} belongs to user {}, not to {}: copy it (cp {} FILE; chmod 600 FILE)", path, info.st_uid,
                ::geteuid(), path);
  }
  const unsigned mode = info.st_mode & 07777;
  if ((mode & 077) != 0) {
    return Fail(Code::kPermissionDenied, "token file {} has mode {:04o}, others may read or change it: chmod 600 {}",
                path, mode, path);
  }
  return {};
}

}  // namespace

Result<Token> Token::Generate() {
  Token token;
  HVD_RETURN_IF_ERROR(RandomBytes(token.secret_.bytes));
  return token;
}

Result<Token> Token::FromHex(std::string_view hex) {
  if (hex.size() != 2 * kBytes) {
    return Fail(Code::kInvalidArgument, "a token has {} hexadecimal digits, this one {} characters", 2 * kBytes,
                hex.size());
  }
  Token token;
  for (size_t i = 0; i < kBytes; ++i) {
    const int high = HexValue(hex[2 * i]);
    const int low = HexValue(hex[2 * i + 1]);
    if (high < 0 || low < 0) {
      return Fail(Code::kInvalidArgument, "the token contains a character that is no hexadecimal digit");
    }
    token.secret_.bytes[i] = static_cast<uint8_t>(high << 4 | low);
  }
  return token;
}

Result<Token> Token::Load(const std::string& path) {
  // O_NONBLOCK: a FIFO must be refused below, not waited for here.
  const Fd fd(::open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK | O_NOCTTY));
  if (!fd) {
    const bool full = errno == EMFILE || errno == ENFILE;
    const Code code = full ? Code::kResourceExhausted : errno == ENOENT ? Code::kNotFound : Code::kPermissionDenied;
    return Fail(code, "token file {} cannot be opened: {}", path, ErrnoText(errno));
  }
  HVD_RETURN_IF_ERROR(CheckFile(fd.get(), path));
  char text[2 * kBytes + 16];
  const Wiper wiper{text, sizeof(text)};
  size_t size = 0;
  while (size < sizeof(text)) {
    const ssize_t count = ::read(fd.get(), text + size, sizeof(text) - size);
    if (count < 0 && errno == EINTR) continue;
    if (count < 0) return Fail(Code::kUnknown, "token file {} cannot be read: {}", path, ErrnoText(errno));
    if (count == 0) break;
    size += static_cast<size_t>(count);
  }
  while (size > 0 && (text[size - 1] == '\n' || text[size - 1] == '\r' || text[size - 1] == ' ')) --size;
  if (size == 0)
    return Fail(Code::kInvalidArgument, "token file {} is empty: it should hold 64 hexadecimal digits", path);
  auto token = FromHex({text, size});
  if (!token) return Fail(Code::kInvalidArgument, "token file {}: {}", path, token.error().message);
  return token;
}

Status Token::Save(const std::string& path) const {
  const Fd fd(::open(path.c_str(), O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0600));
  if (!fd) {
    const Code code = errno == EEXIST ? Code::kAlreadyExists : Code::kPermissionDenied;
    return Fail(code, "token file {} cannot be made: {}", path, ErrnoText(errno));
  }
  std::string hex = ToHex(bytes()) + "\n";
  const Wiper wiper{hex.data(), hex.size()};
  if (::write(fd.get(), hex.data(), hex.size()) != static_cast<ssize_t>(hex.size())) {
    return Fail(Code::kUnknown, "token file {} cannot be written: {}", path, ErrnoText(errno));
  }
  return {};
}

}  // namespace hvd::net
