// SPDX-License-Identifier: Apache-2.0
#pragma once
// The reason for which rank 0 cannot start, left for the other ranks, which would wait for its invitation until their
// time is up.
//
//   hvd/GENERATION/refusal   who it is and why it does not come
//
// (With the job's group behind it, where there are several.) It lies there for a moment only. A folder outlives the
// job, so there a note counts only while its writer is seen to run: one that a killed process left is of no value, and
// neither is one of another machine, of which that cannot be known.

#include <optional>
#include <string>
#include <string_view>

#include "hvd/base/config.h"
#include "hvd/base/result.h"
#include "hvd/engine/bootstrap/rendezvous_errors.h"
#include "hvd/rendezvous/store.h"

namespace hvd::engine::bootstrap {

// Where the note lies, and what it is.
std::string RefusalKey(const Config& config);
std::string EncodeRefusal(const Start& who, const Error& why);

// The note, as long as this exists. The store outlives it.
class Rank0Refusal {
 public:
  Rank0Refusal(rendezvous::Store* store, const Config& config, const Error& why);
  ~Rank0Refusal();
  Rank0Refusal(const Rank0Refusal&) = delete;
  Rank0Refusal& operator=(const Rank0Refusal&) = delete;

  bool written() const { return written_; }

 private:
  rendezvous::Store* const store_;
  const std::string key_;
  const bool written_;
};

// Leaves the note for as long as ranks that start together may need to read it, but not beyond the deadline.
void PublishRefusal(rendezvous::Store* store, const Config& config, const Error& why, Time deadline);

// What the others make of a note; none: it is of no value.
std::optional<Error> ReadRefusal(const Config& config, std::string_view note);

}  // namespace hvd::engine::bootstrap
