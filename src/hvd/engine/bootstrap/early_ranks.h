// SPDX-License-Identifier: Apache-2.0
#pragma once
// Ranks that are started by hand have no name of their run: one that waits from an earlier run looks like this run's
// own. What tells them apart is that it called init before rank 0 was started. So may a rank of this run, which
// somebody started first; but then nobody else claims its place.
//
// Thread safety: any thread.

#include "hvd/base/config.h"
#include "hvd/engine/bootstrap/rank_descriptor.h"

namespace hvd::engine::bootstrap {

// Whether a rank may be one of an earlier run.
bool MayBeLeftOver(const Config& config, const RankDescriptor& rank0, const RankDescriptor& card);

// How long this run's own rank may take to come, if it was started together with rank 0.
Duration PatienceForSuccessors(const RankDescriptor& rank0);

// Nobody else came.
void WarnOfEarlyRank(const RankDescriptor& rank0, Rank rank, const RankDescriptor& card);

}  // namespace hvd::engine::bootstrap
