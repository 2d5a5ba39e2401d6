// SPDX-License-Identifier: Apache-2.0
#pragma once
// What a rank tells the others about itself through the store, before there is any connection.

#include <string>
#include <string_view>

#include "hvd/base/config.h"
#include "hvd/base/result.h"
#include "hvd/engine/world.h"
#include "hvd/topology/process.h"

namespace hvd::engine {

struct Card {
  // These two come first in every version of the library, so that each understands who differs.
  std::string version;
  std::string nonce;  // random, new for every init: tells this card from one that an earlier job left behind
  int size = 0;
  topology::Process process;
  std::string host_id;
  std::string hostname;
  std::string no_shm;        // why this rank cannot share memory; empty if it can
  std::string process_sets;  // equal text, equal sets
  std::string trust;         // equal text, equal job token and settings of trust; tells nothing of the token
  bool encrypt = false;
  SharedSettings settings;
};

std::string Encode(const Card& card);
// Fails on anything that Encode does not write. Of another version's card only version and nonce are set.
Result<Card> DecodeCard(std::string_view text);

// "rank 3 (pid 4711 on host b)".
std::string NameOf(Rank rank, const Card& card);

// Success if two ranks may be of one job; else what differs, with both values: the same words on all ranks.
Status Compare(Rank a_rank, const Card& a, Rank b_rank, const Card& b);

}  // namespace hvd::engine
