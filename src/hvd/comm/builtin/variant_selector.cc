// SPDX-License-Identifier: Apache-2.0
#include "hvd/comm/builtin/variant_selector.h"

#include <algorithm>
#include <bit>

namespace hvd::comm::builtin {
namespace {

// Evenly spread, so that operations that come in a fixed order take turns all the same.
uint64_t Mixed(uint64_t position) {
  uint64_t mixed = (position + 1) * 0x9e3779b97f4a7c15;
  mixed ^= mixed >> 32;
  return mixed * 0xd6e8feb86659fd93 >> 32;
}

}  // namespace

VariantSelector::Key VariantSelector::KeyOf(OpKind op, size_t bytes) { return {op, std::bit_width(bytes)}; }

double VariantSelector::Times::shortest() const { return *std::min_element(last.begin(), last.end()); }

bool VariantSelector::Offers(OpKind op, size_t bytes, uint64_t position) const {
  const uint64_t mixed = Mixed(position);
  const auto known = figures_.find(KeyOf(op, bytes));
  if (known == figures_.end()) return mixed % 2 == 0;
  const auto& [old_variant, new_variant] = known->second;
  if (old_variant.count < kTries || new_variant.count < kTries) return mixed % 2 == 0;
  const double then = old_variant.shortest();
  const double now = new_variant.shortest();
  const auto [less, more] = std::minmax(then, now);
  const bool again = mixed % (more > less * 1.25 ? kHardlyEver : kSeldom) == 0;
  return (now < then) != again;
}

void VariantSelector::Measured(OpKind op, size_t bytes, bool new_variant, Duration took) {
  Figures& figures = figures_[KeyOf(op, bytes)];
  Times& times = new_variant ? figures.new_variant : figures.old_variant;
  times.last[times.count++ % kTries] = static_cast<double>(took.count()) / static_cast<double>(bytes);
}

}  // namespace hvd::comm::builtin
