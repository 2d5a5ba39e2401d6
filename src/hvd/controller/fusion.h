// SPDX-License-Identifier: Apache-2.0
#pragma once
// Which of the operations that are ready together run as one.
//
// Rule: allreduces of equal dtype, reduction, factors and device share a group while their inputs together have at most
// `threshold` bytes. Operations that do not fit the group are looked past; each kind of allreduce keeps its own order,
// and a group stands where its first operation stood. Anything else, and an allreduce larger than the threshold, is
// alone. Cost: O(n log kinds).

#include <cstdint>
#include <span>
#include <vector>

#include "hvd/controller/plan.h"

namespace hvd::controller {

// Whether it would share a group with others of its kind.
bool IsFused(const Signature& signature, int64_t threshold);

// Indices into `plans`, grouped; every index appears once. A null plan is alone (something that is no execution).
std::vector<std::vector<size_t>> Fuse(std::span<const PlanPtr> plans, int64_t threshold);

}  // namespace hvd::controller
