// SPDX-License-Identifier: Apache-2.0
#pragma once
// An operation as a caller asks for it, and the checks of one rank's arguments before another rank learns of it.
//
// Thread safety: all functions, any thread; the caller pins the process set.

#include <optional>

#include "hvd/base/result.h"
#include "hvd/controller/plan.h"
#include "hvd/engine/bootstrap/world.h"
#include "hvd/engine/operation.h"
#include "hvd/engine/process_set/set_table.h"

namespace hvd::engine {

struct Submission {
  controller::Request request;
  // Allreduce: the type as which the request's travels and is reduced, if it can be narrowed to it.
  std::optional<DType> wire;
  int process_set = 0;
  const void* input = nullptr;
  size_t input_bytes = 0;
  void* output = nullptr;
  size_t output_bytes = 0;
  AllocFunction alloc;
  DoneFunction done;
  double timeout_s = 0;
  uint64_t prepared = 0;  // id of the request, if it has one
};

// Fills in what a caller may leave out, and replaces spellings that mean the same.
void ApplyDefaults(const ProcessSet* set, Submission* submission);

// Checks what a caller asks of rank `rank`. Call ApplyDefaults before. `set`: the submission's; nullptr: there is none.
Status Validate(const SetTable& sets, Rank rank, const ProcessSet* set, const Submission& submission);
// As Validate, for the description alone.
Status ValidateRequest(const SetTable& sets, Rank rank, int process_set, const controller::Request& request);

}  // namespace hvd::engine
