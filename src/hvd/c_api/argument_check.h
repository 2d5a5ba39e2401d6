// SPDX-License-Identifier: Apache-2.0
#pragma once
// What a caller may have got wrong in a struct or a number, found before anything is done. Errors name the field and
// its value.
//
// Thread safety: pure functions.

#include <string_view>

#include "hvd/base/result.h"
#include "hvd/hvd.h"

namespace hvd::c_api {

// Everything but what only an engine knows (process sets, roots, sizes of buffers).
Status Check(const hvd_request* request);
Status Check(const hvd_init_options& options);
Status Check(const hvd_output& output);
Status Check(const hvd_counters& counters);

// `field` of a time-out that may not be negative.
Status CheckSeconds(std::string_view field, double seconds);

}  // namespace hvd::c_api
