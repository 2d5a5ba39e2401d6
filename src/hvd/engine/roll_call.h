// SPDX-License-Identifier: Apache-2.0
#pragma once
// Which ranks of this machine have come to init, for those who wait in a call of somebody else's that cannot tell: each
// one that comes holds a socket of an abstract name, which goes with its process. A hint for errors, nothing more.
//
// Thread safety: none.

#include <span>
#include <string>
#include <vector>

#include "hvd/base/launcher.h"
#include "hvd/net/fd.h"

namespace hvd::engine {

class RollCall {
 public:
  // This rank is here. Nothing is known later if the launcher has ranks on other machines, or gives jobs no name.
  explicit RollCall(const Launcher& launcher);

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

}  // namespace hvd::engine
