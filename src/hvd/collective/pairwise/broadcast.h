// SPDX-License-Identifier: Apache-2.0
#pragma once
// Broadcast down a tree that enters every host once, chunk by chunk: a chunk is forwarded as soon as it is here.
//
// Cost: for h hosts of g members ceil(log2 h) + ceil(log2 g) steps plus one per further chunk; the root sends at most
// so many times n bytes.

#include "hvd/collective/machine.h"
#include "hvd/collective/pairwise/link.h"
#include "hvd/collective/pattern/tree.h"

namespace hvd::collective::pairwise {

class Broadcast final : public Machine {
 public:
  // The root sends its payload's inputs; the others receive into their outputs.
  Broadcast(Link link, const SumOrder& order, int root, const Payload* payload, size_t chunk_bytes);

  Progress Step() override;
  void CollectAwaited(std::vector<int>* members) const override { link_.CollectAwaited(members); }
  Error error() const override { return link_.error(); }

 private:
  std::vector<iovec> Chunk(size_t index);
  // The root's own output, where it has one besides its input. Broadcasts are never fused: there is one piece.
  void CopyOwn(size_t index);

  Link link_;
  const pattern::TreeNode place_;
  const Payload* payload_;
  const size_t chunk_bytes_;
  const size_t chunks_;
  std::vector<std::byte> kept_;  // for forwarding where the caller wants no output
  std::vector<std::shared_ptr<int>> arrived_;
  size_t posted_ = 0;
  size_t forwarded_ = 0;
};

}  // namespace hvd::collective::pairwise
