// SPDX-License-Identifier: Apache-2.0
#pragma once
// How error messages list who has what.

#include <functional>
#include <span>
#include <string>
#include <string_view>

#include "hvd/base/types.h"

namespace hvd::controller {

// "rank 3", "ranks [0, 2]", "ranks [0, 1, 2, 3, 4, 5, 6, 7, ...] (64 in all)".
std::string DescribeRanks(std::span<const Rank> ranks);

// Groups ranks by value: "rank 0 has float32, ranks [1, 3] have float64". value(i) belongs to ranks[i].
std::string DescribeValues(std::span<const Rank> ranks, const std::function<std::string(size_t)>& value);

// The name in quotes, cut if it is very long, and its label.
std::string Quote(std::string_view name);

}  // namespace hvd::controller
