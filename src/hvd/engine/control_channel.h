// SPDX-License-Identifier: Apache-2.0
#pragma once
// Sends control messages to the engines of other ranks.
//
// Thread safety: call with the progress token, but for ByRing, which any thread may call.
// Lifetime: the World outlives it.

#include <algorithm>
#include <span>

#include "hvd/engine/bootstrap/world.h"

namespace hvd::engine {

class ControlChannel {
 public:
  explicit ControlChannel(const World* world) : world_(world) {}

  // Does nothing if this rank has no connection to `rank`.
  void Send(Rank rank, std::span<const std::byte> message) {
    if (world_->pairs.empty() || world_->pairs[rank] == nullptr) return;
    bundles_ ? world_->pairs[rank]->SendMessageSoon(message) : world_->pairs[rank]->SendMessage(message);
  }

  // While one lives, messages wait for the next turn of the loop and travel together.
  class Bundle {
   public:
    explicit Bundle(ControlChannel* channel) : channel_(channel) { channel_->bundles_ = true; }
    ~Bundle() { channel_->bundles_ = false; }
    Bundle(const Bundle&) = delete;
    Bundle& operator=(const Bundle&) = delete;

   private:
    ControlChannel* const channel_;
  };

  // Whether `rank` is reached by a ring in shared memory, which no descriptor announces.
  bool ByRing(Rank rank) const {
    return std::ranges::find(world_->polled, world_->pairs[rank].get()) != world_->polled.end();
  }

  // Ends transfers in flight: what they read or wrote is the callers' again in a moment.
  void CloseAll() {
    for (const auto& pair : world_->pairs) {
      if (pair != nullptr) pair->Close();
    }
  }

 private:
  const World* const world_;
  bool bundles_ = false;
};

}  // namespace hvd::engine
