// SPDX-License-Identifier: Apache-2.0
#pragma once
// What ranks that meet write into the store besides their cards, and what they tell their users.

#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "hvd/base/config.h"
#include "hvd/base/result.h"
#include "hvd/engine/card.h"

namespace hvd::engine {

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
Error DidNotCome(const Config& config, const std::vector<Rank>& missing, int came, std::string_view more);
// They came, and then nothing more was heard of them.
Error Stuck(const Config& config, std::string_view what, const std::vector<Rank>& ranks,
            const std::vector<std::optional<Card>>& cards);
Error Ended(const Config& config, Rank rank, const Card& card);
// It ended well, and never came.
Error LeftBefore(const Config& config, Rank rank);
Error TwoHosts(const Config& config, const Card& first, const Card& second);
Error TwoRanks(Rank rank, const Card& first, const Card& second);

}  // namespace hvd::engine
