// SPDX-License-Identifier: Apache-2.0
#pragma once
// Sparse shared memory: a sealed memfd, its mapping, and the commit that makes touching it safe.
//
// Thread safety: free functions are safe; a Mapping is used by one owner.

#include <cstddef>
#include <cstdint>
#include <utility>

#include "hvd/base/result.h"
#include "hvd/transport/shm/fork.h"

namespace hvd::transport::shm {

inline constexpr size_t kHugePage = 2 << 20;
// MADV_POPULATE_WRITE of the kernel's headers; not all C libraries have it.
inline constexpr int kPopulateWrite = 23;

uint64_t PageSize();

constexpr uint64_t RoundUp(uint64_t value, uint64_t unit) { return (value + unit - 1) / unit * unit; }

// An anonymous file of `bytes`, all of it holes, whose size nobody can change any more: no access to it can end in
// SIGBUS for want of a file behind it.
Result<Fd> CreateSealedFile(const char* name, uint64_t bytes);
// The size of a file received from a peer; an error unless it is sealed as above.
Result<uint64_t> SealedSize(int fd);

// Puts memory behind [offset, offset + bytes) of the file. kResourceExhausted where there is none.
Status Commit(int fd, uint64_t offset, uint64_t bytes);
// Gives it back; the range reads as zeros afterwards.
void Decommit(int fd, uint64_t offset, uint64_t bytes);

// Address space, unmapped with this object. Starts at a multiple of kHugePage.
class Mapping {
 public:
  Mapping() = default;
  Mapping(Mapping&& other) noexcept
      : data_(std::exchange(other.data_, nullptr)), bytes_(std::exchange(other.bytes_, 0)) {}
  Mapping& operator=(Mapping&& other) noexcept {
    std::swap(data_, other.data_);
    std::swap(bytes_, other.bytes_);
    return *this;
  }
  ~Mapping();
  // The whole file, shared; for fd -1 private zeroed memory. Reserves nothing.
  static Result<Mapping> Create(int fd, uint64_t bytes);
  std::byte* data() const { return data_; }
  uint64_t bytes() const { return bytes_; }

 private:
  Mapping(std::byte* data, uint64_t bytes) : data_(data), bytes_(bytes) {}
  std::byte* data_ = nullptr;
  uint64_t bytes_ = 0;
};

}  // namespace hvd::transport::shm
