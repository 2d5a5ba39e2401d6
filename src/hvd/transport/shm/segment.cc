// SPDX-License-Identifier: Apache-2.0
#include "hvd/transport/shm/segment.h"

namespace hvd::transport::shm {

Result<std::unique_ptr<Segment>> Segment::Create(uint64_t bytes) {
  HVD_ASSIGN_OR_RETURN(Fd fd, CreateSealedFile("hvd-control", RoundUp(bytes, kHugePage)));
  return Open(std::move(fd));
}

Result<std::unique_ptr<Segment>> Segment::Open(Fd fd) {
  HVD_ASSIGN_OR_RETURN(const uint64_t bytes, SealedSize(fd.get()));
  HVD_ASSIGN_OR_RETURN(Mapping map, Mapping::Create(fd.get(), bytes));
  return std::unique_ptr<Segment>(new Segment(std::move(fd), std::move(map)));
}

Result<std::byte*> Segment::Carve(size_t bytes) {
  const uint64_t rounded = RoundUp(bytes, kCarveAlign);
  if (rounded < bytes || rounded > map_.bytes() - used_) {
    return Fail(Code::kResourceExhausted, "the control segment of {} bytes has no room for {} more", map_.bytes(),
                bytes);
  }
  // Every rank commits for itself: a range that a peer committed costs nothing, and nobody touches a hole.
  if (rounded > 0) HVD_RETURN_IF_ERROR(Commit(fd_.get(), used_, rounded));
  std::byte* const start = map_.data() + used_;
  used_ += rounded;
  return start;
}

}  // namespace hvd::transport::shm
