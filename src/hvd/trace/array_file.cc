// SPDX-License-Identifier: Apache-2.0
#include "hvd/trace/array_file.h"

#include <fcntl.h>
#include <stdio.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <utility>

namespace hvd::trace {
namespace {

constexpr uint64_t kPage = 4096;
constexpr uint64_t kFirstSize = 64 << 10;
constexpr std::string_view kEnd = "\n]\n";

Status FailedToWrite(const std::string& path) {
  return Fail(Code::kUnknown, "cannot write {}: {}", path, std::strerror(errno));
}

Status FailedToCreate(const std::string& path) {
  const int error = errno;
  const bool forbidden = error == EACCES || error == EPERM || error == EROFS;
  return Fail(forbidden ? Code::kPermissionDenied : Code::kInvalidArgument,
              "cannot create {}: {}; give the name of a file in a folder that exists and that you may write to", path,
              std::strerror(error));
}

bool WriteAt(int fd, std::string_view data, uint64_t offset) {
  while (!data.empty()) {
    const ssize_t written = ::pwrite(fd, data.data(), data.size(), static_cast<off_t>(offset));
    if (written > 0) {
      data.remove_prefix(static_cast<size_t>(written));
      offset += static_cast<uint64_t>(written);
    } else if (written == 0 || errno != EINTR) {
      return false;
    }
  }
  return true;
}

bool Copy(int from, int to, uint64_t bytes, char* buffer, size_t capacity) {
  for (uint64_t done = 0; done < bytes;) {
    const ssize_t got = ::pread(from, buffer, std::min<uint64_t>(capacity, bytes - done), static_cast<off_t>(done));
    if (got < 0 && errno == EINTR) continue;
    if (got <= 0 || !WriteAt(to, {buffer, static_cast<size_t>(got)}, done)) return false;
    done += static_cast<uint64_t>(got);
  }
  return true;
}

}  // namespace

ArrayFile::ArrayFile(std::string path, uint64_t limit)
    : path_(std::move(path)), unfinished_("", path_), limit_(limit == 0 ? 0 : std::max(limit, kFirstSize)) {}

ArrayFile::~ArrayFile() {
  if (fd_ >= 0) ::close(fd_);
}

Result<std::unique_ptr<ArrayFile>> ArrayFile::Create(std::string path, std::string_view head, uint64_t limit) {
  // It would be replaced as a whole: not a thing to do to a device or a pipe.
  struct stat there {};
  const bool replaces = ::lstat(path.c_str(), &there) == 0;
  if (replaces && !S_ISREG(there.st_mode)) {
    return Fail(Code::kInvalidArgument, "{} is no regular file: give the name of a new file, or of one to replace",
                path);
  }
  std::unique_ptr<ArrayFile> file(new ArrayFile(std::move(path), limit));
  if (replaces) file->mode_ = there.st_mode & 0777;
  HVD_RETURN_IF_ERROR(file->Replace(kFirstSize, head));
  return file;
}

Status ArrayFile::Replace(uint64_t size, std::string_view head) {
  constexpr size_t kBuffer = 64 << 10;
  const auto buffer = std::make_unique<char[]>(kBuffer);
  const int fd = unfinished_.Begin(mode_);
  if (fd < 0) return FailedToCreate(path_);
  uint64_t used = at_;
  bool good = fd_ < 0 || Copy(fd_, fd, used, buffer.get(), kBuffer);
  if (fd_ < 0) {
    const std::string opening = fmt::format("[\n{}", head);
    good = good && WriteAt(fd, opening, 0);
    used = opening.size();
  }
  size = std::max(size, used + kEnd.size());
  std::memset(buffer.get(), ' ', kBuffer);
  for (uint64_t at = used; good && at < size;) {
    const uint64_t part = std::min<uint64_t>(kBuffer, size - at);
    good = WriteAt(fd, {buffer.get(), part}, at);
    at += part;
  }
  good = good && WriteAt(fd, kEnd, size - kEnd.size());
  if (!unfinished_.Publish(good)) {
    Status failed = FailedToWrite(path_);
    ::close(fd);
    return failed;
  }
  if (fd_ >= 0) ::close(fd_);
  fd_ = fd;
  size_ = size;
  at_ = used;
  return {};
}

Status ArrayFile::Grow() {
  uint64_t wanted = size_ * 2;
  if (limit_ != 0) wanted = std::min(wanted, limit_);
  if (wanted < size_ + kPage) return Fail(Code::kResourceExhausted, "{} has reached its limit", path_);
  return Replace(wanted, {});
}

Status ArrayFile::Append(std::string_view unit) {
  const size_t bytes = unit.size() + 2;  // and ",\n"
  if (unit.size() > kMaxUnit) return Fail(Code::kInvalidArgument, "an element of {} bytes", unit.size());
  const uint64_t used = at_ % kPage;
  const uint64_t begin = used + bytes <= kPage ? at_ : at_ + kPage - used;
  // One write is one page's.
  if (begin % kPage == 0 || begin + bytes > size_ - kEnd.size()) HVD_RETURN_IF_ERROR(Flush());
  while (begin + bytes > size_ - kEnd.size()) {
    HVD_RETURN_IF_ERROR(Grow());
  }
  at_ = begin;
  std::memcpy(page_.data() + pending_, ",\n", 2);
  std::memcpy(page_.data() + pending_ + 2, unit.data(), unit.size());
  pending_ += bytes;
  at_ += bytes;
  return {};
}

Status ArrayFile::Flush() {
  if (pending_ == 0) return {};
  const size_t bytes = std::exchange(pending_, 0);
  if (WriteAt(fd_, {page_.data(), bytes}, at_ - bytes)) return {};
  return FailedToWrite(path_);
}

Status ArrayFile::Close() {
  HVD_RETURN_IF_ERROR(Flush());
  return Replace(at_ + kEnd.size(), {});
}

}  // namespace hvd::trace
