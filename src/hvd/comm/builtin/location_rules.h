// SPDX-License-Identifier: Apache-2.0
#pragma once
// The lines of the table of algorithms for members of one host, as plain numbers: where data of which size may lie.

#include <array>

#include "hvd/algorithms/table.h"
#include "hvd/collective/window/mark_stream.h"

namespace hvd::comm::builtin {

class LocationRules {
 public:
  struct Rule {
    algorithms::Range bytes;
    collective::window::DataLocation location = collective::window::DataLocation::kStaged;
  };
  struct Rules {
    std::array<Rule, 8> in_order{};  // the first whose bytes fit and that is possible; ends with one that always is
    size_t direct_chunk = 0;         // where all members' data is direct
    size_t copied_chunk = 0;         // or copied
    algorithms::Range cma{1, 0};     // staged data that the others may fetch instead
    bool cma_on_trial = false;
  };

  // Without `beside_marks` all data is in the arena: those who read it do so as long as they like.
  LocationRules(const algorithms::Table& table, int members, bool beside_marks = true);

  size_t staged_chunk() const { return staged_chunk_; }  // of all operations
  const Rules& For(OpKind op) const { return rules_[static_cast<size_t>(op)]; }

 private:
  std::array<Rules, static_cast<size_t>(OpKind::kReducescatter) + 1> rules_;
  size_t staged_chunk_ = 0;
};

}  // namespace hvd::comm::builtin
