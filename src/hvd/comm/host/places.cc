// SPDX-License-Identifier: Apache-2.0
#include "hvd/comm/host/places.h"

namespace hvd::comm::host {
namespace {

using algorithms::Algorithm;
using collective::window::Place;

static_assert(algorithms::kTinyBytes == collective::window::kTinyBytes);

Place PlaceFor(Algorithm algorithm) {
  switch (algorithm) {
    case Algorithm::kTiny:
      return Place::kTiny;
    case Algorithm::kInline:
      return Place::kInline;
    case Algorithm::kDirect:
      return Place::kDirect;
    case Algorithm::kCopied:
      return Place::kCopied;
    default:
      return Place::kStaged;
  }
}

}  // namespace

Places::Places(const algorithms::Table& table, int members, bool beside_marks) {
  for (const OpKind op : algorithms::Operations()) {
    Rules& rules = rules_[static_cast<size_t>(op)];
    size_t count = 0;
    for (const algorithms::Choice& choice : table.For(op, algorithms::Scope::kHost, members)) {
      if (choice.algorithm == Algorithm::kFetched) {
        rules.fetched = choice.bytes;
        rules.fetched_on_trial = choice.on_trial;
        continue;
      }
      const Place place = PlaceFor(choice.algorithm);
      if (place == Place::kDirect) rules.direct_chunk = choice.parameters.chunk;
      if (place == Place::kCopied) rules.copied_chunk = choice.parameters.chunk;
      if (choice.algorithm == Algorithm::kStaged) staged_chunk_ = choice.parameters.chunk;
      if (IsBesideMark(place) && !beside_marks) continue;
      rules.in_order.at(count++) = {choice.bytes, place};
    }
  }
}

}  // namespace hvd::comm::host
