// SPDX-License-Identifier: Apache-2.0
#pragma once
// Where ranks meet whom MPI, PMIx or PMI introduces: rank 0 serves a store and has the others told its address and, if
// they are on several machines, a token that is made for this start. So the token is in no file, variable or argument.

#include "hvd/engine/place.h"
#include "hvd/engine/way.h"

namespace hvd::engine {

Result<Place> IntroducedPlace(const Config& config, const Way& way, Time deadline);

}  // namespace hvd::engine
