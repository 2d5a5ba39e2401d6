// SPDX-License-Identifier: Apache-2.0
#pragma once
// What a rank tells the others about itself through the store, before there is any connection.

#include <string>
#include <string_view>

#include "hvd/base/result.h"
#include "hvd/engine/world.h"

namespace hvd::engine {

struct Card {
  std::string version;
  std::string host_id;
  std::string hostname;
  int pid = 0;
  std::string no_shm;        // why this rank cannot share memory; empty if it can
  std::string process_sets;  // equal text, equal sets
  SharedSettings settings;
};

std::string Encode(const Card& card);
// Fails on anything that Encode does not write.
Result<Card> DecodeCard(std::string_view text);

}  // namespace hvd::engine
