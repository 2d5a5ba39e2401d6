// SPDX-License-Identifier: Apache-2.0
#pragma once
// hvd for C++20: the C interface of hvd.h with types, exceptions and owners. Header-only; link libhvd.
//
// A program is run by several processes, the ranks of a job. Each joins, works on its own data, and combines it with
// the others':
//
//     hvd::session job;                            // joins; leaves at the end of the scope
//     std::vector<float> gradient(4, hvd::rank());
//     hvd::allreduce(gradient);                    // now the average over all ranks
//     assert(gradient[0] == (hvd::size() - 1) / 2.0f);
//
// Data: any contiguous range of numbers (std::vector, std::array, std::span, hvd::buffer), or a single number.
// Ranks: every function of hvd/cpp/collectives.hpp, exchange.hpp and grouped.hpp must be called by all ranks of the
// process set, with equal names.
// Errors: exceptions derived from hvd::error. Destructors throw nothing.
// Thread safety: functions may be called from any thread; objects are as safe as those of the standard library, that
// is, one object belongs to one thread at a time.
// Lines in comments that are indented like those above are examples. The tests run all of them, on two ranks.

#include "hvd/cpp/buffer.hpp"
#include "hvd/cpp/collectives.hpp"
#include "hvd/cpp/element.hpp"
#include "hvd/cpp/error.hpp"
#include "hvd/cpp/exchange.hpp"
#include "hvd/cpp/future.hpp"
#include "hvd/cpp/grouped.hpp"
#include "hvd/cpp/job.hpp"
#include "hvd/cpp/process_set.hpp"
#include "hvd/cpp/request.hpp"
