// SPDX-License-Identifier: Apache-2.0
#pragma once
// What one rank brings to an operation: one tensor, or several fused ones, seen as one run of bytes. Packing into a
// fusion buffer is Gather straight into shared memory; there is no other copy. Where elements travel as a smaller type
// than they have in memory, that copy narrows them, and the one out widens them.

#include <cstddef>
#include <vector>

#include "hvd/base/types.h"

namespace hvd::collective {

struct Piece {
  const std::byte* in = nullptr;
  std::byte* out = nullptr;  // nullptr: the result is not wanted here
  size_t bytes = 0;          // in the run
  // Of the elements in the run and in memory, where these differ (kernel::CanNarrow); else any.
  DType type = DType::kUInt8;
  DType memory_type = DType::kUInt8;

  bool converted() const { return type != memory_type; }
};

class Payload {
 public:
  Payload() = default;
  explicit Payload(Piece piece) { Add(piece); }

  void Add(Piece piece);
  void Clear();
  size_t bytes() const { return bytes_; }
  const std::vector<Piece>& pieces() const { return pieces_; }
  // Whether some of it is in memory as another type, so that it can only be had by Gather and stored by Scatter.
  bool converted() const { return converted_; }

  // Copies bytes [offset, offset + bytes) of the inputs to `to`. Where it is converted, these are whole elements.
  void Gather(size_t offset, size_t bytes, std::byte* to) const;
  // Copies `from` to bytes [offset, offset + bytes) of the outputs, likewise.
  void Scatter(size_t offset, size_t bytes, const std::byte* from) const;

 private:
  std::vector<Piece> pieces_;
  size_t bytes_ = 0;
  bool converted_ = false;
};

}  // namespace hvd::collective
