// SPDX-License-Identifier: Apache-2.0
#pragma once
// The meeting of the local ranks: everyone connects to local rank 0 (the leader) by an abstract unix socket with a
// random name, proves that it holds the key, and gets everybody's descriptors. handshake.h has the protocol; one
// connection per rank, closed when all are ready.
//
// Thread safety: one thread. Every wait ends at the deadline, with an error that names who is missing.

#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "hvd/base/clock.h"
#include "hvd/base/result.h"
#include "hvd/base/types.h"
#include "hvd/rendezvous/store.h"
#include "hvd/transport/shm/handshake.h"

namespace hvd::transport::shm {

struct HubOptions {
  rendezvous::Store* store = nullptr;
  std::string key;  // in the store; equal for all local ranks of this generation and for nobody else
  uint64_t generation = 0;
  int local = 0;
  std::vector<Rank> ranks;  // global ranks of the local ones, in order
  std::string auth_key;     // the generation's secret; empty: user ids alone are checked
  Time deadline{};
};

// What one rank contributes and everybody gets to know.
struct LocalRank {
  Member member;
  Fd doorbell;
  Fd arena;
  Fd pidfd;
};

// A rank that cannot take part says why in the store: the leader in place of its socket's name, members beside it.
std::string RefusalKey(const std::string& key);
std::string Refusal(std::string_view why);
// The reason, if this is one.
std::optional<std::string> ReadRefusal(const std::string& value);

class Hub {
 public:
  virtual ~Hub() = default;
  // Brings `self` in; returns all local ranks in order (own entry without descriptors) and puts the control file into
  // *control: the leader passes it in, members get it.
  virtual Result<std::vector<LocalRank>> Exchange(LocalRank self, Fd* control) = 0;
  // Returns when every local rank has called it.
  virtual Status Ready() = 0;

  static Result<std::unique_ptr<Hub>> Create(HubOptions options);
};

// Descriptors of `rank` in the order in which they travel; sets its flags.
std::vector<int> Descriptors(LocalRank& rank);
// Takes them out of a packet again, from index *at on.
Result<LocalRank> Unpack(const Member& member, Packet& packet, size_t* at);

Result<std::unique_ptr<Hub>> CreateLeader(HubOptions options);
Result<std::unique_ptr<Hub>> CreateMember(HubOptions options);

}  // namespace hvd::transport::shm
