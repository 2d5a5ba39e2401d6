// SPDX-License-Identifier: Apache-2.0
#pragma once
// Exchanges the address of the rendezvous point through MPI, PMIx or PMI: rank 0 serves a store and sends the others
// its address and, if they are on several machines, a token that is made for this start. So the token is in no file,
// variable or argument.

#include "hvd/engine/bootstrap/rendezvous_method.h"
#include "hvd/engine/bootstrap/rendezvous_point.h"

namespace hvd::engine::bootstrap {

Result<RendezvousPoint> ExchangeByLauncher(const Config& config, const RendezvousMethod& method, Time deadline);

}  // namespace hvd::engine::bootstrap
