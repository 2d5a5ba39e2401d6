// SPDX-License-Identifier: Apache-2.0
#include "hvd/tune/challenger.h"

#include <utility>

namespace hvd::tune {

Challenger::Challenger(std::vector<Axis> axes, Point choice)
    : axes_(std::move(axes)), choice_(std::move(choice)), rival_(choice_), point_(choice_) {}

bool Challenger::Begin() {
  for (size_t tries = 0; tries < 2 * axes_.size(); ++tries) {
    const size_t axis = turn_ / 2 % axes_.size();
    const bool larger = turn_++ % 2 == 1;
    if (axes_[axis].fixed()) continue;
    const auto value = axes_[axis].Neighbour(choice_[axis], larger);
    if (!value) continue;
    rival_ = choice_;
    rival_[axis] = *value;
    fighting_ = true;
    duels_won_ = 0;
    duel_ = {};
    return true;
  }
  return false;
}

void Challenger::Report(double score) {
  if (!fighting_) return;
  if (duel_.over()) duel_ = {};  // the second one
  duel_.Report(score);
  point_ = duel_.challenges() ? rival_ : choice_;
  if (!duel_.over()) return;
  if (duel_.won() && ++duels_won_ < kDuels) return;
  fighting_ = false;
  if (won()) choice_ = rival_;
  point_ = choice_;
}

}  // namespace hvd::tune
