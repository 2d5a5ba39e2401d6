// SPDX-License-Identifier: Apache-2.0
#include "hvd/collective/pairwise/link.h"

#include <algorithm>

namespace hvd::collective::pairwise {
namespace {

template <typename Address>
std::vector<iovec> Cut(const Payload& payload, size_t offset, size_t bytes, Address address) {
  std::vector<iovec> list;
  size_t begin = 0;
  for (const Piece& piece : payload.pieces()) {
    const size_t from = std::max(offset, begin);
    const size_t to = std::min(offset + bytes, begin + piece.bytes);
    if (from < to) list.push_back({address(piece, from - begin, from - offset), to - from});
    begin += piece.bytes;
  }
  return list;
}

}  // namespace

std::vector<iovec> InputBytes(const Payload& payload, size_t offset, size_t bytes) {
  return Cut(payload, offset, bytes,
             [](const Piece& piece, size_t at, size_t) -> void* { return const_cast<std::byte*>(piece.in) + at; });
}

std::vector<iovec> OutputBytes(const Payload& payload, size_t offset, size_t bytes, std::byte* discard) {
  return Cut(payload, offset, bytes, [discard](const Piece& piece, size_t at, size_t in_run) -> void* {
    return piece.out != nullptr ? piece.out + at : discard + in_run;
  });
}

void Link::Send(int member, int phase, std::vector<iovec> data, std::shared_ptr<int> count) {
  ++state_->sending;
  if (count != nullptr) ++*count;
  ++state_->outstanding[member];
  pairs_[member]->Send(lane_ + phase, std::move(data), [state = state_, member, count](Status status) {
    --state->sending;
    if (count != nullptr) --*count;
    --state->outstanding[member];
    if (!status && !state->failed) {
      state->failed = true;
      state->error = std::move(status).error();
    }
  });
}

void Link::Recv(int member, int phase, std::vector<iovec> into, std::shared_ptr<int> count) {
  ++*count;
  ++state_->outstanding[member];
  pairs_[member]->Recv(lane_ + phase, std::move(into), nullptr, [state = state_, member, count](Status status) {
    --state->outstanding[member];
    --*count;
    if (!status && !state->failed) {
      state->failed = true;
      state->error = std::move(status).error();
    }
  });
}

void Link::CollectAwaited(std::vector<int>* members) const {
  for (int m = 0; m < this->members(); ++m) {
    if (state_->outstanding[m] > 0) members->push_back(m);
  }
}

}  // namespace hvd::collective::pairwise
