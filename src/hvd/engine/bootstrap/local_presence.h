// SPDX-License-Identifier: Apache-2.0
#pragma once
// Reports which local ranks have entered init, for the error text of a rank that waits in an MPI call. Each rank
// listens on an abstract unix socket named after its rank; the kernel removes the socket when the process ends.
//
// Thread safety: none.

#include <span>
#include <string>
#include <vector>

#include "hvd/base/launcher.h"
#include "hvd/net/fd.h"

namespace hvd::engine::bootstrap {

class LocalPresence {
 public:
  // Publishes that this rank is here. Nothing is known later if the launcher has ranks on other machines, or gives jobs
  // no name.
  explicit LocalPresence(const Launcher& launcher);

  // Those of `ranks` that have not come; empty: unknown, or none.
  std::vector<int> Absent(std::span<const int> ranks) const;
  // The same for all ranks.
  std::vector<int> Absent() const;
  // Stays here until the process ends: others may still be asking when this rank has given up.
  void Stay();

 private:
  std::string job_;  // empty: nothing can be known
  int size_ = 0;
  net::Fd mine_;
};

}  // namespace hvd::engine::bootstrap
