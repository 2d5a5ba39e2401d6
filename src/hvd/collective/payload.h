// SPDX-License-Identifier: Apache-2.0
#pragma once
// What one rank brings to an operation: one tensor, or several fused ones, seen as one run of bytes. Packing into a
// fusion buffer is Gather straight into shared memory; there is no other copy.

#include <cstddef>
#include <vector>

namespace hvd::collective {

struct Piece {
  const std::byte* in = nullptr;
  std::byte* out = nullptr;  // nullptr: the result is not wanted here
  size_t bytes = 0;
};

class Payload {
 public:
  Payload() = default;
  explicit Payload(Piece piece) : bytes_(piece.bytes) { pieces_.push_back(piece); }

  void Add(Piece piece);
  void Clear();
  size_t bytes() const { return bytes_; }
  const std::vector<Piece>& pieces() const { return pieces_; }

  // Copies bytes [offset, offset + bytes) of the inputs to `to`.
  void Gather(size_t offset, size_t bytes, std::byte* to) const;
  // Copies `from` to bytes [offset, offset + bytes) of the outputs.
  void Scatter(size_t offset, size_t bytes, const std::byte* from) const;

 private:
  std::vector<Piece> pieces_;
  size_t bytes_ = 0;
};

}  // namespace hvd::collective
