// SPDX-License-Identifier: Apache-2.0
#include "hvd/engine/bootstrap/rendezvous_protocol.h"

#include <algorithm>
#include <array>

#include "hvd/engine/bootstrap/early_ranks.h"
#include "hvd/engine/bootstrap/rank0_refusal.h"
#include "hvd/engine/bootstrap/rendezvous_errors.h"
#include "hvd/net/crypto.h"
#include "hvd/net/deadline.h"

namespace hvd::engine::bootstrap {
namespace {

using topology::Life;

constexpr size_t kKeysPerWait = 256;
// For a rank that cannot join: how long it waits for the meeting to which it says so.
constexpr Duration kInvitation = std::chrono::seconds(3);

// How long to wait between two looks around.
class Slices {
 public:
  explicit Slices(Time deadline) : deadline_(deadline) {}
  Duration Next() {
    const Duration slice = std::min(next_, net::Left(deadline_));
    next_ = std::min<Duration>(next_ * 3 / 2, std::chrono::seconds(1));
    return slice;
  }
  bool over() const { return net::Now() >= deadline_; }

 private:
  const Time deadline_;
  Duration next_ = std::chrono::milliseconds(20);
};

Result<std::string> RandomName() {
  std::array<uint8_t, 8> random;
  HVD_RETURN_IF_ERROR(net::RandomBytes(random));
  return net::ToHex(random);
}

bool TimedOut(const Error& error) { return error.code == Code::kDeadlineExceeded; }

}  // namespace

RendezvousProtocol::RendezvousProtocol(const Config& config, rendezvous::Store* store, Time deadline,
                                       std::function<std::string()> hint)
    : config_(config), store_(store), deadline_(deadline), hint_(std::move(hint)) {}

RendezvousProtocol::~RendezvousProtocol() {
  if (invited_) (void)store_->Delete(JobKey());
}

Result<std::vector<RankDescriptor>> RendezvousProtocol::Meet(RankDescriptor mine) {
  mine_ = std::move(mine);
  begun_ = net::Now();
  HVD_ASSIGN_OR_RETURN(mine_.nonce, RandomName());
  cards_.assign(static_cast<size_t>(config_.size), std::nullopt);
  cards_[config_.rank] = mine_;
  Status met = store_->Set(AtKey(config_.rank), EncodeStart({config_.generation, mine_.process}));
  if (met) met = config_.rank == 0 ? Host() : Join();
  if (!met) {
    came_too_early_ = config_.rank != 0 && prefix_.empty() && !refused_ && met.error().code == Code::kUnknown;
    GiveUp(met.error());
    return Fail(std::move(met).error());
  }
  std::vector<RankDescriptor> cards;
  for (auto& card : cards_) cards.push_back(*card);
  return cards;
}

Status RendezvousProtocol::Host() {
  HVD_RETURN_IF_ERROR(CheckPlaceIsFree());
  prefix_ = PrefixOf(mine_);
  HVD_RETURN_IF_ERROR(store_->Set(Key("card", 0), Encode(mine_)));
  HVD_RETURN_IF_ERROR(store_->Set(JobKey(), Encode(mine_)));
  invited_ = true;
  for (Slices slices(deadline_);;) {
    HVD_ASSIGN_OR_RETURN(const bool complete, ReadCards(slices.Next()));
    if (complete) break;
    HVD_RETURN_IF_ERROR(CheckTrouble());
    HVD_RETURN_IF_ERROR(CheckStillHost());
    std::vector<Rank> here;
    for (Rank rank = 1; rank < config_.size; ++rank) {
      if (cards_[rank]) here.push_back(rank);
    }
    HVD_RETURN_IF_ERROR(CheckDeaths(here));
    HVD_RETURN_IF_ERROR(CheckLeft(Missing()));
    HVD_RETURN_IF_ERROR(CheckGenerations(Missing()));
    if (slices.over()) return Fail(TooLate());
  }
  HVD_RETURN_IF_ERROR(CheckEarlyRanks());
  HVD_RETURN_IF_ERROR(store_->Set(Key("verdict"), "ok"));
  invited_ = false;
  return store_->Delete(JobKey());
}

Status RendezvousProtocol::CheckPlaceIsFree() {
  HVD_ASSIGN_OR_RETURN(const auto text, Look(JobKey()));
  if (!text) return {};
  const auto other = DecodeRankDescriptor(*text);
  if (!other) return {};  // whoever wrote it cannot be met
  const std::string prefix = PrefixOf(*other);
  const Life life = topology::LifeOf(other->process);
  if (life == Life::kEnded) RemoveKeys(prefix, other->size);
  // Of one on another machine nothing is known: it may be left over. If it lives it notices that we came.
  if (life != Life::kRuns) return {};
  const Error twice = DuplicateRankZero(config_, *other, mine_);
  (void)store_->Set(prefix + "/trouble", EncodeError(twice));
  return Fail(twice);
}

Status RendezvousProtocol::CheckStillHost() {
  HVD_ASSIGN_OR_RETURN(const auto text, Look(JobKey()));
  const auto other = text ? DecodeRankDescriptor(*text) : Result<RankDescriptor>(RankDescriptor{});
  if (other && other->nonce == mine_.nonce) return {};
  invited_ = false;
  const Error twice = DuplicateRankZero(config_, mine_, other ? *other : RankDescriptor{});
  if (other) (void)store_->Set(PrefixOf(*other) + "/trouble", EncodeError(twice));
  return Fail(twice);
}

Status RendezvousProtocol::CheckEarlyRanks() {
  if (early_.empty()) return {};
  if (store_->Wait({Key("trouble")}, std::min(PatienceForSuccessors(mine_), net::Left(deadline_)))) {
    return CheckTrouble();
  }
  for (const Rank rank : early_) WarnOfEarlyRank(mine_, rank, *cards_[rank]);
  return {};
}

Result<bool> RendezvousProtocol::ReadCards(Duration patience) {
  const std::vector<Rank> missing = Missing();
  std::vector<std::string> keys;
  for (Rank rank : missing) keys.push_back(Key("card", rank));
  const auto texts = store_->Wait(keys, patience);
  if (!texts && !TimedOut(texts.error())) return Fail(texts.error());
  for (size_t i = 0; i < missing.size(); ++i) {
    std::optional<std::string> text;
    if (texts) {
      text = (*texts)[i];
    } else {
      HVD_ASSIGN_OR_RETURN(text, Look(keys[i]));
    }
    if (!text) continue;
    HVD_ASSIGN_OR_RETURN(RankDescriptor card, DecodeRankDescriptor(*text));
    if (config_.rank == 0) {
      HVD_RETURN_IF_ERROR(Compare(0, mine_, missing[i], card));
      if (MayBeLeftOver(config_, mine_, card)) early_.push_back(missing[i]);
    }
    cards_[missing[i]] = std::move(card);
  }
  return texts.has_value();
}

Status RendezvousProtocol::Join() {
  std::string followed;
  for (Slices slices(deadline_);;) {
    HVD_ASSIGN_OR_RETURN(const auto invitation, Look(JobKey()));
    if (invitation && *invitation != followed) {
      followed = *invitation;
      HVD_RETURN_IF_ERROR(Follow(*invitation));
    }
    const bool follows = !prefix_.empty();
    const auto waited = store_->Wait({follows ? Key("verdict") : JobKey()}, slices.Next());
    if (!waited && !TimedOut(waited.error())) return Fail(waited.error());
    if (waited && follows) return OnVerdict((*waited)[0]);
    if (follows) {
      // Rank 0 may have given its verdict with its last breath.
      if (auto alive = CheckDeaths({0}); !alive) {
        HVD_ASSIGN_OR_RETURN(const auto verdict, Look(Key("verdict")));
        if (verdict) return OnVerdict(*verdict);
        return alive;
      }
      HVD_RETURN_IF_ERROR(CheckStillMine());
    } else {
      if (!waited) HVD_RETURN_IF_ERROR(CheckRefusal());
      HVD_RETURN_IF_ERROR(CheckLeft(Missing()));
      HVD_RETURN_IF_ERROR(CheckGenerations({0}));
    }
    if (slices.over()) return Fail(differs_ ? *differs_ : TooLate());
  }
}

Status RendezvousProtocol::Follow(const std::string& invitation) {
  HVD_ASSIGN_OR_RETURN(RankDescriptor host, DecodeRankDescriptor(invitation));
  stale_ = topology::LifeOf(host.process) == Life::kEnded;
  if (stale_) return {};
  prefix_ = PrefixOf(host);
  differs_.reset();
  HVD_ASSIGN_OR_RETURN(const auto taken, Look(Key("card", config_.rank)));
  if (taken) {
    const auto other = DecodeRankDescriptor(*taken);
    differs_ = DuplicateRank(config_.rank, other ? *other : RankDescriptor{}, mine_);
  } else {
    if (auto same = Compare(0, host, config_.rank, mine_); !same) differs_ = same.error();
    RankDescriptor card = mine_;
    card.waited_ms += Milliseconds(net::Now() - begun_);
    HVD_RETURN_IF_ERROR(store_->Set(Key("card", config_.rank), Encode(card)));
  }
  cards_[0] = std::move(host);
  // Rank 0 hears of it even where it does not expect this rank, and says so in its verdict.
  if (differs_) HVD_RETURN_IF_ERROR(store_->Set(Key("trouble"), EncodeError(*differs_)));
  return {};
}

Status RendezvousProtocol::CheckStillMine() {
  if (differs_) return {};
  HVD_ASSIGN_OR_RETURN(const auto text, Look(Key("card", config_.rank)));
  const auto other = text ? DecodeRankDescriptor(*text) : Result<RankDescriptor>(mine_);
  if (other && other->nonce == mine_.nonce) return {};
  return Fail(DuplicateRank(config_.rank, mine_, other ? *other : RankDescriptor{}));
}

Status RendezvousProtocol::OnVerdict(const std::string& text) {
  if (text != "ok") return Fail(DecodeError(text));
  cards_.assign(cards_.size(), std::nullopt);
  HVD_ASSIGN_OR_RETURN(const bool complete, ReadCards(Duration(0)));
  if (!complete) return Fail(Code::kInternal, "the cards of ranks that came are gone from {}", config_.rendezvous_addr);
  const RankDescriptor& winner = *cards_[config_.rank];
  if (winner.nonce != mine_.nonce) return Fail(DuplicateRank(config_.rank, winner, mine_));
  return {};
}

Status RendezvousProtocol::Put(std::string_view what, const std::string& value) {
  return store_->Set(Key(what, config_.rank), value);
}

Result<std::vector<std::string>> RendezvousProtocol::Gather(std::string_view what, const std::vector<Rank>& ranks) {
  std::vector<std::string> values;
  for (size_t first = 0; first < ranks.size(); first += kKeysPerWait) {
    const size_t count = std::min(kKeysPerWait, ranks.size() - first);
    std::vector<std::string> keys;
    for (size_t i = 0; i < count; ++i) keys.push_back(Key(what, ranks[first + i]));
    for (Slices slices(deadline_);;) {
      auto found = store_->Wait(keys, slices.Next());
      if (found) {
        std::move(found->begin(), found->end(), std::back_inserter(values));
        break;
      }
      if (!TimedOut(found.error())) return Fail(std::move(found).error());
      HVD_RETURN_IF_ERROR(CheckTrouble());
      std::vector<Rank> missing;
      for (size_t i = 0; i < count; ++i) {
        HVD_ASSIGN_OR_RETURN(const auto there, Look(keys[i]));
        if (!there) missing.push_back(ranks[first + i]);
      }
      HVD_RETURN_IF_ERROR(CheckDeaths(missing));
      if (slices.over() && !missing.empty()) return Fail(RanksNotReady(config_, what, missing, cards_));
    }
  }
  return values;
}

void RendezvousProtocol::GiveUp(const Error& error) {
  if (mine_.nonce.empty()) {
    if (config_.rank == 0) return PublishRefusal(store_, config_, error, deadline_);
    FindMeeting();
  }
  if (prefix_.empty()) return;
  // An error that blames no rank is this rank's own. The others have what this rank lacks.
  Error told_to_others = error;
  if (error.code == Code::kResourceExhausted) told_to_others.code = Code::kInternal;
  if (error.rank < 0) {
    told_to_others.message = fmt::format("rank {} gave up in hvd.init(): {}", config_.rank, error.message);
    told_to_others.rank = config_.rank;
  }
  const std::string text = EncodeError(told_to_others);
  if (const auto told = Look(Key("trouble")); told && !*told) (void)store_->Set(Key("trouble"), text);
  if (config_.rank != 0) return;
  if (const auto given = Look(Key("verdict")); given && !*given) (void)store_->Set(Key("verdict"), text);
}

void RendezvousProtocol::FindMeeting() {
  const auto invitation = store_->Wait({JobKey()}, std::min(net::Left(deadline_), kInvitation));
  if (!invitation) return;
  if (const auto host = DecodeRankDescriptor((*invitation)[0]); host) prefix_ = PrefixOf(*host);
}

void RendezvousProtocol::Finish(Duration patience, bool remove_keys) {
  (void)store_->Delete(AtKey(config_.rank));
  // Whoever closes a store that it serves may do so before it has answered us.
  (void)Put("done", "");
  if (config_.rank != 0) return;
  const Time until = std::min(deadline_, net::DeadlineAfter(patience));
  for (Rank rank = 1; rank < config_.size; ++rank) {
    for (Slices slices(until);;) {
      if (store_->Wait({Key("done", rank)}, slices.Next())) break;
      // That it ended or gave up is the engine's to notice, which runs from now on.
      if (slices.over() || !CheckDeaths({rank}) || !CheckTrouble()) return;
    }
  }
  if (!remove_keys) return;
  RemoveKeys(prefix_, config_.size);
  (void)store_->Delete(RefusalKey(config_));
}

void RendezvousProtocol::RemoveKeys(const std::string& prefix, int size) {
  for (const char* what : {"verdict", "trouble"}) (void)store_->Delete(fmt::format("{}/{}", prefix, what));
  for (Rank rank = 0; rank < size; ++rank) {
    for (const char* what : {"card", "key", "shm", "tcp", "done"}) {
      (void)store_->Delete(fmt::format("{}/{}/{}", prefix, what, rank));
    }
  }
}

Status RendezvousProtocol::CheckTrouble() {
  HVD_ASSIGN_OR_RETURN(const auto text, Look(Key("trouble")));
  if (text) return Fail(WithHint(DecodeError(*text), hint_ ? hint_() : ""));
  return {};
}

Status RendezvousProtocol::CheckRefusal() {
  HVD_ASSIGN_OR_RETURN(const auto note, Look(RefusalKey(config_)));
  auto refusal = note ? ReadRefusal(config_, *note) : std::nullopt;
  if (!refusal) return {};
  refused_ = true;
  return Fail(std::move(*refusal));
}

Status RendezvousProtocol::CheckDeaths(const std::vector<Rank>& ranks) {
  for (Rank rank : ranks) {
    if (!cards_[rank] || topology::LifeOf(cards_[rank]->process) != Life::kEnded) continue;
    // It may have told why before it ended.
    HVD_RETURN_IF_ERROR(CheckTrouble());
    return Fail(Ended(config_, rank, *cards_[rank]));
  }
  return {};
}

Status RendezvousProtocol::CheckLeft(const std::vector<Rank>& ranks) {
  HVD_ASSIGN_OR_RETURN(const auto lost, Look(rendezvous::LostKey(config_.generation)));
  for (const Rank rank : Numbers(lost.value_or(""), ' ')) {
    if (std::ranges::count(ranks, rank) > 0) return Fail(RankLostBeforeInit(config_, rank));
  }
  HVD_ASSIGN_OR_RETURN(const auto text, Look(rendezvous::kLeftKey));
  const std::vector<Rank> left = Numbers(text.value_or(""), ' ');
  // The launcher's numbers; those of a job of some ranks are places in its list.
  const std::vector<Rank> listed = Numbers(config_.group, '-');
  for (const Rank rank : ranks) {
    const Rank theirs = listed.empty() ? rank : listed[static_cast<size_t>(rank)];
    if (std::ranges::count(left, theirs) > 0) return Fail(RankLeftBeforeInit(config_, rank));
  }
  return {};
}

Status RendezvousProtocol::CheckGenerations(const std::vector<Rank>& ranks) {
  for (size_t i = 0; i < std::min(ranks.size(), kMostNamed); ++i) {
    HVD_ASSIGN_OR_RETURN(const auto text, Look(AtKey(ranks[i])));
    const auto start = text ? DecodeStart(*text) : std::nullopt;
    // An earlier one may be about to come again; a later one never comes back to ours.
    if (!start || start->generation <= config_.generation) continue;
    if (topology::LifeOf(start->process) != Life::kRuns) continue;
    return Fail(OtherGeneration(config_, mine_.process.pid, ranks[i], *start));
  }
  return {};
}

std::vector<Rank> RendezvousProtocol::Missing() const {
  std::vector<Rank> missing;
  for (Rank rank = 0; rank < config_.size; ++rank) {
    if (!cards_[rank]) missing.push_back(rank);
  }
  return missing;
}

Error RendezvousProtocol::TooLate() {
  if (!prefix_.empty()) (void)ReadCards(Duration(0));
  const std::vector<Rank> missing = Missing();
  if (!prefix_.empty() && missing.empty()) return NoVerdict(config_, *cards_[0]);
  // Without an invitation nothing is known of anybody but rank 0.
  return prefix_.empty()
             ? RanksMissing(config_, {0}, 0, WhatToCheck({0}))
             : RanksMissing(config_, missing, config_.size - static_cast<int>(missing.size()), WhatToCheck(missing));
}

std::string RendezvousProtocol::WhatToCheck(const std::vector<Rank>& missing) {
  std::string text;
  for (size_t i = 0; i < std::min(missing.size(), kMostNamed); ++i) {
    const auto at = Look(AtKey(missing[i]));
    const auto start = at && *at ? DecodeStart(**at) : std::nullopt;
    if (!start || start->generation == config_.generation) continue;
    text += fmt::format("; rank {} (pid {}) came with HOROVOD_GENERATION={}, rank {} has {}", missing[i],
                        start->process.pid, start->generation, config_.rank, config_.generation);
  }
  if (stale_) text += "; keys that a killed job left there are not used";
  if (const std::string hint = hint_ ? hint_() : ""; !hint.empty()) text += "; " + hint;
  return text;
}

Result<std::optional<std::string>> RendezvousProtocol::Look(const std::string& key) {
  auto values = store_->Wait({key}, Duration(0));
  if (values) return std::optional<std::string>(std::move((*values)[0]));
  if (TimedOut(values.error())) return std::optional<std::string>();
  return Fail(std::move(values).error());
}

}  // namespace hvd::engine::bootstrap
