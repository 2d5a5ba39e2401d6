// SPDX-License-Identifier: Apache-2.0
#include "hvd/transport/shm/memory.h"

#include <fcntl.h>
#include <linux/falloc.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>

namespace hvd::transport::shm {
namespace {

constexpr int kSeals = F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_SEAL;

}  // namespace

uint64_t PageSize() {
  static const auto size = static_cast<uint64_t>(::sysconf(_SC_PAGESIZE));
  return size;
}

Result<Fd> CreateSealedFile(const char* name, uint64_t bytes) {
  rlimit limit{};
  // Over this limit ftruncate does not fail, it kills the process with SIGXFSZ.
  if (::getrlimit(RLIMIT_FSIZE, &limit) == 0 && bytes > limit.rlim_cur) {
    return Fail(Code::kResourceExhausted, "the file size limit (ulimit -f) of {} bytes is below the {} bytes needed",
                limit.rlim_cur, bytes);
  }
  Fd fd(::memfd_create(name, MFD_CLOEXEC | MFD_ALLOW_SEALING));
  if (!fd) return Fail(Code::kUnimplemented, "memfd_create failed: {}", std::strerror(errno));
  if (::ftruncate(fd.get(), static_cast<off_t>(bytes)) != 0) {
    return Fail(Code::kResourceExhausted, "a shared file of {} bytes cannot be made: {}", bytes, std::strerror(errno));
  }
  if (::fcntl(fd.get(), F_ADD_SEALS, kSeals) != 0) {
    return Fail(Code::kUnimplemented, "a memfd cannot be sealed: {}", std::strerror(errno));
  }
  return fd;
}

Result<uint64_t> SealedSize(int fd) {
  const int seals = ::fcntl(fd, F_GET_SEALS);
  if (seals < 0 || (seals & kSeals) != kSeals) {
    return Fail(Code::kPermissionDenied, "a shared file of a peer is not sealed");
  }
  struct stat info {};
  if (::fstat(fd, &info) != 0) return Fail(Code::kInternal, "fstat failed: {}", std::strerror(errno));
  return static_cast<uint64_t>(info.st_size);
}

Status Commit(int fd, uint64_t offset, uint64_t bytes) {
  int rc = 0;
  do {
    rc = ::fallocate(fd, 0, static_cast<off_t>(offset), static_cast<off_t>(bytes));
  } while (rc != 0 && errno == EINTR);
  if (rc == 0) return {};
  const Code code = errno == ENOSPC || errno == ENOMEM ? Code::kResourceExhausted : Code::kUnimplemented;
  return Fail(code, "no memory for {} bytes of shared memory: {}", bytes, std::strerror(errno));
}

void Decommit(int fd, uint64_t offset, uint64_t bytes) {
  int rc = 0;
  do {
    rc = ::fallocate(fd, FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE, static_cast<off_t>(offset),
                     static_cast<off_t>(bytes));
  } while (rc != 0 && errno == EINTR);
}

Mapping::~Mapping() {
  if (data_ != nullptr) ::munmap(data_, bytes_);
}

Result<Mapping> Mapping::Create(int fd, uint64_t bytes) {
  // A bigger reservation is cut to size, because mmap itself promises no more than page alignment.
  void* const reserved =
      ::mmap(nullptr, bytes + kHugePage, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  if (reserved == MAP_FAILED) {
    return Fail(Code::kResourceExhausted, "no address space for {} bytes: {}", bytes, std::strerror(errno));
  }
  auto* const begin = static_cast<std::byte*>(reserved);
  auto* const aligned = reinterpret_cast<std::byte*>(RoundUp(reinterpret_cast<uint64_t>(begin), kHugePage));
  const int kind = fd >= 0 ? MAP_SHARED : MAP_PRIVATE | MAP_ANONYMOUS;
  void* const mapped = ::mmap(aligned, bytes, PROT_READ | PROT_WRITE, kind | MAP_NORESERVE | MAP_FIXED, fd, 0);
  if (mapped == MAP_FAILED) {
    const int error = errno;
    ::munmap(reserved, bytes + kHugePage);
    return Fail(Code::kResourceExhausted, "{} bytes cannot be mapped: {}", bytes, std::strerror(error));
  }
  // A core dump would fill every hole of a sparse file, which takes memory and minutes.
  ::madvise(aligned, bytes, MADV_DONTDUMP);
  if (aligned > begin) ::munmap(begin, static_cast<size_t>(aligned - begin));
  std::byte* const end = begin + bytes + kHugePage;
  std::byte* const used = aligned + RoundUp(bytes, PageSize());
  if (end > used) ::munmap(used, static_cast<size_t>(end - used));
  return Mapping(aligned, bytes);
}

}  // namespace hvd::transport::shm
