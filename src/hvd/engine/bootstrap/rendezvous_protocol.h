// SPDX-License-Identifier: Apache-2.0
#pragma once
// How the ranks of one job find each other in a store, and learn of each other's failures while they start.
//
// Rank 0 invites: it draws a random name for the meeting and writes it, with its card, to `hvd/GENERATION/job`. The
// others read that and put their cards under the meeting's name; when all cards are there and fit, rank 0 gives its
// verdict and takes the invitation away. Everything else of this start (Put, Gather) is kept under the meeting's name,
// too. So keys that another job left in the store, such as a folder of files, are never mistaken for this one's: who
// follows an invitation of a rank 0 that was killed gets no verdict from it, and follows the next one that appears.
//
//   hvd/at/RANK              who is starting now, in which generation; for the words of errors
//   hvd/GENERATION/job       the invitation: card of rank 0, whose nonce is the meeting's name
//   hvd/GENERATION/refusal   instead of an invitation: why rank 0 does not come (rank0_refusal.h)
//   hvd/GENERATION/NAME/...  card/RANK, verdict ("ok" or an error), trouble (an error), what Put writes, done/RANK
//
// A rank that cannot go on writes `trouble`; those who wait look at it now and then, and at whether the ranks that they
// wait for still run, where they are on the same machine. So a failure is known to all within about a second, and at
// the deadline at the latest.
//
// Thread safety: one thread at a time.

#include <functional>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "hvd/base/config.h"
#include "hvd/base/result.h"
#include "hvd/engine/bootstrap/rank_descriptor.h"
#include "hvd/rendezvous/store.h"

namespace hvd::engine::bootstrap {

class RendezvousProtocol {
 public:
  // `hint`, which may be empty, tells what else is known when ranks are missing. Config and store outlive the meeting.
  RendezvousProtocol(const Config& config, rendezvous::Store* store, Time deadline,
                     std::function<std::string()> hint = {});
  // Rank 0 takes its invitation away.
  ~RendezvousProtocol();
  RendezvousProtocol(const RendezvousProtocol&) = delete;
  RendezvousProtocol& operator=(const RendezvousProtocol&) = delete;

  // The cards of all ranks, by rank, when all have come and fit. `mine` without its nonce. An error is told to the
  // others, and names ranks.
  Result<std::vector<RankDescriptor>> Meet(RankDescriptor mine);

  // Meet failed because the store went away before this rank had found anybody there: it was the store of an earlier
  // start, and the next one may be about to come.
  bool came_too_early() const { return came_too_early_; }

  // The rest is for ranks that have met.
  // Prefix of store keys that belong to this meeting.
  const std::string& prefix() const { return prefix_; }
  Status Put(std::string_view what, const std::string& value);
  // What those ranks put, in their order.
  Result<std::vector<std::string>> Gather(std::string_view what, const std::vector<Rank>& ranks);
  // Tells the others that this rank cannot go on. A rank that cannot even Meet says so, too, if rank 0 has invited or
  // does so within a few seconds. An error without a rank is this rank's own, and is told with its name.
  void GiveUp(const Error& error);
  // This rank needs the store no more. Rank 0 waits until that is so for all, but at most `patience`, and, where the
  // store outlives the job, removes the keys.
  void Finish(Duration patience, bool remove_keys);

 private:
  Status Host();
  Status CheckPlaceIsFree();
  Status CheckStillHost();
  // Gives this run's own ranks time to find their place taken by one of an earlier run, which is an error. Warns of
  // ranks that may be left over if none comes. See early_ranks.h.
  Status CheckEarlyRanks();
  // Reads the cards that have come. True: all have.
  Result<bool> ReadCards(Duration patience);
  Status Join();
  Status Follow(const std::string& invitation);
  // Two that come at the same moment do not see each other's card; the one that was overwritten finds out later.
  Status CheckStillMine();
  Status OnVerdict(const std::string& text);

  // Waits a little for an invitation, without following it.
  void FindMeeting();
  Status CheckTrouble();
  // Fails if rank 0 says that it does not come.
  Status CheckRefusal();
  // Of ranks whose card is known.
  Status CheckDeaths(const std::vector<Rank>& ranks);
  // Fails if the launcher says that one of these ranks, whose card is not known, has ended.
  Status CheckLeft(const std::vector<Rank>& ranks);
  // Fails if one of these ranks is starting in a later generation than this one.
  Status CheckGenerations(const std::vector<Rank>& ranks);
  std::vector<Rank> Missing() const;
  // The deadline has passed.
  Error TooLate();
  std::string WhatToCheck(const std::vector<Rank>& missing);
  void RemoveKeys(const std::string& prefix, int size);

  // The value, if there is one now.
  Result<std::optional<std::string>> Look(const std::string& key);
  std::string JobKey() const { return fmt::format("hvd/{}/job{}", config_.generation, config_.group); }
  std::string PrefixOf(const RankDescriptor& host) const {
    return fmt::format("hvd/{}/{}", config_.generation, host.nonce);
  }
  std::string AtKey(Rank rank) const { return fmt::format("hvd/at{}/{}", config_.group, rank); }
  std::string Key(std::string_view what, Rank rank) const { return fmt::format("{}/{}/{}", prefix_, what, rank); }
  std::string Key(std::string_view what) const { return fmt::format("{}/{}", prefix_, what); }

  const Config& config_;
  rendezvous::Store* const store_;
  const Time deadline_;
  const std::function<std::string()> hint_;
  RankDescriptor mine_;
  std::string prefix_;                                // empty: no invitation followed
  std::vector<std::optional<RankDescriptor>> cards_;  // by rank; others than rank 0 know them all after the verdict
  std::vector<Rank> early_;                           // that may be left over; rank 0 knows them
  std::optional<Error> differs_;                      // why rank 0, whose invitation we follow, will not take us
  Time begun_{};                                      // of Meet
  bool invited_ = false;                              // rank 0's invitation lies in the store
  bool refused_ = false;                              // rank 0 does not come, and has said so
  bool came_too_early_ = false;
  bool stale_ = false;  // there was an invitation of a process that has ended
};

}  // namespace hvd::engine::bootstrap
