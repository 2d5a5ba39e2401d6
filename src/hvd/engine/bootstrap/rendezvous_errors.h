// SPDX-License-Identifier: Apache-2.0
#pragma once
// Errors of the rendezvous, and the texts that ranks write into the store besides their descriptors.

#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "hvd/base/config.h"
#include "hvd/base/result.h"
#include "hvd/engine/bootstrap/rank_descriptor.h"

namespace hvd::engine::bootstrap {

// Errors name at most so many ranks.
inline constexpr size_t kMostNamed = 16;

std::string EncodeError(const Error& error);
// Text that EncodeError did not write becomes an error with that text.
Error DecodeError(std::string_view text);

// A rank that is starting.
struct Start {
  int generation = 0;
  topology::Process process;
};
std::string EncodeStart(const Start& start);
std::optional<Start> DecodeStart(std::string_view text);

// "0-2-5" with '-' is 0, 2, 5; what is no number is left out.
std::vector<Rank> Numbers(std::string_view text, char between);

// "rank 2", "ranks 2, 3", "ranks 1, 2, ... and 80 more".
std::string NameOf(const std::vector<Rank>& ranks);

// `more` is appended.
Error RanksMissing(const Config& config, const std::vector<Rank>& missing, int came, std::string_view more);
// They came, and then nothing more was heard of them.
Error RanksNotReady(const Config& config, std::string_view what, const std::vector<Rank>& ranks,
                    const std::vector<std::optional<RankDescriptor>>& cards);
Error Ended(const Config& config, Rank rank, const RankDescriptor& card);
// It ended well, and never came.
Error RankLeftBeforeInit(const Config& config, Rank rank);
// It was killed, or failed, before the others saw it.
Error RankLostBeforeInit(const Config& config, Rank rank);
// All ranks are here, and rank 0 does not say so.
Error NoVerdict(const Config& config, const RankDescriptor& host);
// `start` is what `rank` has said about itself; `pid` is this process.
Error OtherGeneration(const Config& config, int pid, Rank rank, const Start& start);
Error DuplicateRankZero(const Config& config, const RankDescriptor& first, const RankDescriptor& second);
Error DuplicateRank(Rank rank, const RankDescriptor& first, const RankDescriptor& second);

// The error of a rank whose time was over first, with what the store knows: why it took nobody in.
Error WithHint(Error told, const std::string& hint);

}  // namespace hvd::engine::bootstrap
