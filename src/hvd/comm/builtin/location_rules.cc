// SPDX-License-Identifier: Apache-2.0
#include "hvd/comm/builtin/location_rules.h"

namespace hvd::comm::builtin {
namespace {

using algorithms::Algorithm;
using collective::window::DataLocation;

static_assert(algorithms::kTinyBytes == collective::window::kTinyBytes);

DataLocation PlaceFor(Algorithm algorithm) {
  switch (algorithm) {
    case Algorithm::kTiny:
      return DataLocation::kTiny;
    case Algorithm::kInline:
      return DataLocation::kInline;
    case Algorithm::kDirect:
      return DataLocation::kDirect;
    case Algorithm::kCopied:
      return DataLocation::kCopied;
    default:
      return DataLocation::kStaged;
  }
}

}  // namespace

LocationRules::LocationRules(const algorithms::Table& table, int members, bool beside_marks) {
  for (const OpKind op : algorithms::Operations()) {
    Rules& rules = rules_[static_cast<size_t>(op)];
    size_t count = 0;
    for (const algorithms::Choice& choice : table.For(op, algorithms::Scope::kShm, members)) {
      if (choice.algorithm == Algorithm::kCma) {
        rules.cma = choice.bytes;
        rules.cma_on_trial = choice.on_trial;
        continue;
      }
      const DataLocation location = PlaceFor(choice.algorithm);
      if (location == DataLocation::kDirect) rules.direct_chunk = choice.parameters.chunk;
      if (location == DataLocation::kCopied) rules.copied_chunk = choice.parameters.chunk;
      if (choice.algorithm == Algorithm::kStaged) staged_chunk_ = choice.parameters.chunk;
      if (IsBesideMark(location) && !beside_marks) continue;
      rules.in_order.at(count++) = {choice.bytes, location};
    }
  }
}

}  // namespace hvd::comm::builtin
