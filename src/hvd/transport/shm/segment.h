// SPDX-License-Identifier: Apache-2.0
#pragma once
// The control segment: one sealed, sparse file that all local ranks of a generation map, cut up in the same order by
// all.
//
// Thread safety: Carve by one thread at a time; the memory by anybody.

#include <cstddef>
#include <cstdint>
#include <memory>

#include "hvd/base/result.h"
#include "hvd/transport/shm/memory.h"

namespace hvd::transport::shm {

inline constexpr uint64_t kSegmentBytes = uint64_t{1} << 30;
inline constexpr uint64_t kCarveAlign = 128;  // two lines: adjacent-line prefetch must not couple two writers

class Segment {
 public:
  static Result<std::unique_ptr<Segment>> Create(uint64_t bytes = kSegmentBytes);
  static Result<std::unique_ptr<Segment>> Open(Fd fd);

  // The next `bytes`, zeroed unless a peer wrote there already, at the same offset for every rank.
  Result<std::byte*> Carve(size_t bytes);
  int fd() const { return fd_.get(); }

 private:
  Segment(Fd fd, Mapping map) : fd_(std::move(fd)), map_(std::move(map)) {}

  Fd fd_;
  Mapping map_;
  uint64_t used_ = 0;
};

}  // namespace hvd::transport::shm
