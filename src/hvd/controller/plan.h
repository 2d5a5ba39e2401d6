// SPDX-License-Identifier: Apache-2.0
#pragma once
// The words of agreement.
//
// request   Full description ("cold") of an operation that one rank wants done under one name.
// plan      Description that all members of a process set agreed on. It has a uid that is never used again.
// ready     A rank's statement ("hot") that it wants a known plan done once more: a uid and its first dimension.
// log       The one ordered list of entries per process set. Every member applies it in order; plans, their cache,
//           fusion and errors change at a log position and nowhere else.
// member    Index into the sorted ranks of the process set.
//
// The structs are those that travel; wire/messages.h defines them.

#include <cstdint>
#include <memory>
#include <string_view>

#include "hvd/base/result.h"
#include "hvd/base/types.h"
#include "hvd/wire/messages.h"

namespace hvd::controller {

using wire::Device;
using wire::Execution;
using wire::LogEntry;
using wire::Plan;
using wire::Request;
using wire::Signature;

// A join has no name of its own: there is one at a time.
inline constexpr std::string_view kJoinName = "join.noname";

using PlanPtr = std::shared_ptr<const Plan>;

// Whether members may come with different first dimensions.
bool FirstDimIsFree(OpKind op);
// Whether a ready mark can say all about it, so that a plan is worth keeping: not if members bring more of their own
// than a first dimension. An alltoall does if its splits are equal; the signature is a member's, not a plan's.
bool Repeats(const Signature& signature);
// Who sends how many rows to whom in such an alltoall, as Execution::first_dims.
std::vector<int64_t> EvenRows(const std::vector<int64_t>& first_dims);
// The member's own part of a request: shape[0] where that is free, else 0. Travels with ready.
int64_t FirstDim(const Signature& signature);
// The signature as a plan keeps it: fields that the operation does not use have one fixed value, a free first dimension
// is 0. Two requests of which all checks hold have equal canonical signatures.
Signature Canonical(Signature signature);
// Whether a request is for this plan, so that a ready mark says all. Factors are compared bit by bit (NaN equals
// itself).
bool Fits(const Plan& plan, const Signature& signature);
// Bytes of one member's input; saturates at INT64_MAX.
int64_t InputBytes(const Signature& signature);

}  // namespace hvd::controller
