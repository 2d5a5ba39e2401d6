// SPDX-License-Identifier: Apache-2.0
#include "hvd/rendezvous/file/store.h"

#include <fcntl.h>
#include <sys/stat.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <chrono>
#include <thread>

#include "hvd/net/crypto.h"
#include "hvd/net/deadline.h"
#include "hvd/net/socket.h"
#include "hvd/rendezvous/file/name.h"
#include "hvd/rendezvous/limits.h"

namespace hvd::rendezvous::file {
namespace {

using std::chrono::microseconds;

constexpr Duration kLockTimeout = std::chrono::seconds(10);

// Waits between two looks: short while the others are surely about to come, longer later.
class BackOff {
 public:
  // false: the deadline has passed.
  bool Pause(Time deadline) {
    const Duration left = net::Left(deadline);
    if (left == Duration::zero()) return false;
    std::this_thread::sleep_for(std::min<Duration>(pause_, left));
    pause_ = std::min(pause_ * 3 / 2, microseconds(20000));
    return true;
  }

 private:
  microseconds pause_{200};
};

tl::unexpected<Error> IoError(const std::string& folder, std::string_view what) {
  const Code code = errno == ENOSPC || errno == EDQUOT ? Code::kResourceExhausted : Code::kUnknown;
  return Fail(code, "store folder {}: cannot {}: {}", folder, what, net::ErrnoText(errno));
}

bool WriteAll(int fd, const std::string& text) {
  for (size_t done = 0; done < text.size();) {
    const ssize_t count = ::write(fd, text.data() + done, text.size() - done);
    if (count < 0 && errno != EINTR) return false;
    if (count > 0) done += static_cast<size_t>(count);
  }
  return true;
}

Status CheckFolder(int fd, const std::string& folder) {
  struct stat info {};
  if (::fstat(fd, &info) != 0) return IoError(folder, "look at it");
  if (info.st_uid != ::geteuid()) {
    return Fail(Code::kPermissionDenied, "store folder {} belongs to user {}, not to {}: choose another", folder,
                info.st_uid, ::geteuid());
  }
  if ((info.st_mode & 077) != 0) {
    return Fail(Code::kPermissionDenied, "store folder {} has mode {:04o}, others may enter it: chmod 700 {}", folder,
                info.st_mode & 07777, folder);
  }
  return {};
}

}  // namespace

Result<std::unique_ptr<rendezvous::Store>> Store::Create(const std::string& folder) {
  if (folder.empty() || folder.front() != '/') {
    return Fail(Code::kInvalidArgument, "store folder '{}' is no absolute path: give file:///folder", folder);
  }
  if (::mkdir(folder.c_str(), 0700) != 0 && errno != EEXIST) return IoError(folder, "make it");
  net::Fd fd(::open(folder.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC));
  if (!fd) return IoError(folder, "open it");
  HVD_RETURN_IF_ERROR(CheckFolder(fd.get(), folder));
  return std::unique_ptr<rendezvous::Store>(new Store(folder, std::move(fd)));
}

Result<std::optional<std::string>> Store::Read(const std::string& key) const {
  HVD_ASSIGN_OR_RETURN(const std::string name, FileName(key));
  const net::Fd file(::openat(fd_.get(), name.c_str(), O_RDONLY | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK));
  // ESTALE: a network file system whose file was replaced under our eyes; the next look sees the new one.
  if (!file && (errno == ENOENT || errno == ESTALE)) return std::optional<std::string>();
  if (!file) return IoError(folder_, "read key '" + key + "'");
  std::string value;
  std::array<char, 4096> buffer;
  for (;;) {
    const ssize_t count = ::read(file.get(), buffer.data(), buffer.size());
    if (count < 0 && errno == EINTR) continue;
    if (count < 0) return IoError(folder_, "read key '" + key + "'");
    if (count == 0) return std::optional<std::string>(std::move(value));
    value.append(buffer.data(), static_cast<size_t>(count));
    HVD_RETURN_IF_ERROR(CheckValue(key, value));
  }
}

Status Store::Write(const std::string& key, const std::string& value) const {
  HVD_ASSIGN_OR_RETURN(const std::string name, FileName(key));
  std::array<uint8_t, 12> random;
  HVD_RETURN_IF_ERROR(net::RandomBytes(random));
  const std::string temporary = "tmp-" + net::ToHex(random);
  const net::Fd file(
      ::openat(fd_.get(), temporary.c_str(), O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC | O_NOFOLLOW, 0600));
  if (!file) return IoError(folder_, "make a file");
  if (WriteAll(file.get(), value) && ::renameat(fd_.get(), temporary.c_str(), fd_.get(), name.c_str()) == 0) return {};
  auto error = IoError(folder_, "write key '" + key + "'");
  ::unlinkat(fd_.get(), temporary.c_str(), 0);
  return error;
}

Result<net::Fd> Store::Lock() const {
  net::Fd file(::openat(fd_.get(), "lock", O_RDWR | O_CREAT | O_CLOEXEC | O_NOFOLLOW, 0600));
  if (!file) return IoError(folder_, "open its lock");
  struct flock whole {};
  whole.l_type = F_WRLCK;
  whole.l_whence = SEEK_SET;
  const Time deadline = net::DeadlineAfter(kLockTimeout);
  // A lock of the open file, not of the process: it works between threads, and on network file systems.
  for (BackOff back_off; ::fcntl(file.get(), F_OFD_SETLK, &whole) != 0;) {
    if (errno != EAGAIN && errno != EACCES && errno != EINTR) return IoError(folder_, "lock it");
    if (!back_off.Pause(deadline)) {
      return Fail(Code::kDeadlineExceeded, "store folder {}: another process holds {}/lock since {} s", folder_,
                  folder_, net::InSeconds(kLockTimeout));
    }
  }
  return file;
}

Status Store::Set(const std::string& key, const std::string& value) {
  HVD_RETURN_IF_ERROR(CheckKey(key));
  HVD_RETURN_IF_ERROR(CheckValue(key, value));
  return Write(key, value);
}

Result<std::vector<std::string>> Store::Wait(const std::vector<std::string>& keys, Duration timeout) {
  HVD_RETURN_IF_ERROR(CheckKeys(keys));
  const Time deadline = net::DeadlineAfter(timeout);
  std::vector<std::optional<std::string>> found(keys.size());
  for (BackOff back_off;;) {
    std::vector<std::string> missing;
    for (size_t i = 0; i < keys.size(); ++i) {
      if (!found[i]) {
        HVD_ASSIGN_OR_RETURN(found[i], Read(keys[i]));
      }
      if (!found[i]) missing.push_back(keys[i]);
    }
    if (missing.empty()) break;
    if (!back_off.Pause(deadline)) return Fail(MissingKeys(missing, timeout));
  }
  std::vector<std::string> values;
  values.reserve(keys.size());
  for (auto& value : found) values.push_back(std::move(*value));
  return values;
}

Result<int64_t> Store::Add(const std::string& key, int64_t delta) {
  HVD_RETURN_IF_ERROR(CheckKey(key));
  HVD_ASSIGN_OR_RETURN(const net::Fd lock, Lock());
  HVD_ASSIGN_OR_RETURN(const std::optional<std::string> old, Read(key));
  HVD_ASSIGN_OR_RETURN(const int64_t sum, AddToCounter(key, old.value_or(""), delta));
  HVD_RETURN_IF_ERROR(Write(key, std::to_string(sum)));
  return sum;
}

Status Store::Delete(const std::string& key) {
  HVD_RETURN_IF_ERROR(CheckKey(key));
  HVD_ASSIGN_OR_RETURN(const std::string name, FileName(key));
  if (::unlinkat(fd_.get(), name.c_str(), 0) == 0 || errno == ENOENT) return {};
  return IoError(folder_, "delete key '" + key + "'");
}

}  // namespace hvd::rendezvous::file
