// SPDX-License-Identifier: Apache-2.0
#include "hvd/comm/host/trial.h"

#include <algorithm>
#include <bit>

namespace hvd::comm::host {
namespace {

// Evenly spread, so that operations that come in a fixed order take turns all the same.
uint64_t Mixed(uint64_t position) {
  uint64_t mixed = (position + 1) * 0x9e3779b97f4a7c15;
  mixed ^= mixed >> 32;
  return mixed * 0xd6e8feb86659fd93 >> 32;
}

}  // namespace

Trial::Key Trial::KeyOf(OpKind op, size_t bytes) { return {op, std::bit_width(bytes)}; }

double Trial::Times::shortest() const { return *std::min_element(last.begin(), last.end()); }

bool Trial::Offers(OpKind op, size_t bytes, uint64_t position) const {
  const uint64_t mixed = Mixed(position);
  const auto known = figures_.find(KeyOf(op, bytes));
  if (known == figures_.end()) return mixed % 2 == 0;
  const auto& [old_way, new_way] = known->second;
  if (old_way.count < kTries || new_way.count < kTries) return mixed % 2 == 0;
  const double then = old_way.shortest();
  const double now = new_way.shortest();
  const auto [less, more] = std::minmax(then, now);
  const bool again = mixed % (more > less * 1.25 ? kHardlyEver : kSeldom) == 0;
  return (now < then) != again;
}

void Trial::Measured(OpKind op, size_t bytes, bool new_way, Duration took) {
  Figures& figures = figures_[KeyOf(op, bytes)];
  Times& times = new_way ? figures.new_way : figures.old_way;
  times.last[times.count++ % kTries] = static_cast<double>(took.count()) / static_cast<double>(bytes);
}

}  // namespace hvd::comm::host
