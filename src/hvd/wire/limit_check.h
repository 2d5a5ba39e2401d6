// SPDX-License-Identifier: Apache-2.0
#pragma once
// Range checks that senders (through Check(Request)) and the decoder share.

#include <cstdint>
#include <string_view>

#include "hvd/base/result.h"
#include "hvd/wire/messages.h"

namespace hvd::wire {

Status CheckName(std::string_view name);
Status CheckSignature(const Signature& signature);
Status CheckTuning(const Tuning& tuning);

}  // namespace hvd::wire
