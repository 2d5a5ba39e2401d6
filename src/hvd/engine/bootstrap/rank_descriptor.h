// SPDX-License-Identifier: Apache-2.0
#pragma once
// What a rank publishes about itself in the store, before there is any connection.

#include <cstdint>
#include <string>
#include <string_view>

#include "hvd/base/config.h"
#include "hvd/base/result.h"
#include "hvd/engine/bootstrap/world.h"
#include "hvd/topology/process.h"

namespace hvd::engine::bootstrap {

struct RankDescriptor {
  // These two come first in every version of the library, so that each version can read them.
  std::string version;
  std::string
      nonce;  // random, new for every init: distinguishes this descriptor from one that an earlier job left behind
  int size = 0;
  topology::Process process;
  int64_t waited_ms = 0;  // from the call of init until rank 0's invitation was read
  std::string host_id;
  std::string hostname;
  std::string no_shm;        // why this rank cannot share memory; empty if it can
  std::string process_sets;  // equal text, equal sets
  std::string trust;         // equal text, equal job token and settings of trust; tells nothing of the token
  bool encrypt = false;
  SharedSettings settings;
};

std::string Encode(const RankDescriptor& card);
// Fails on anything that Encode does not write. Of another version's card only version and nonce are set.
Result<RankDescriptor> DecodeRankDescriptor(std::string_view text);

// "rank 3 (pid 4711 on host b)".
std::string NameOf(Rank rank, const RankDescriptor& card);

// Success if two ranks may be of one job; else what differs, with both values: the same words on all ranks.
Status Compare(Rank a_rank, const RankDescriptor& a, Rank b_rank, const RankDescriptor& b);

}  // namespace hvd::engine::bootstrap
