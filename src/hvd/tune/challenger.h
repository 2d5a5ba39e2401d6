// SPDX-License-Identifier: Apache-2.0
#pragma once
// Tuning that goes on: now and then one value beside the present choice is tried against it, and takes its place only
// if it wins two duels in a row. One round is one such value; whoever drives it rests between rounds.
//
// Pure: a function of the scores. Thread safety: none.

#include <vector>

#include "hvd/tune/search.h"

namespace hvd::tune {

class Challenger {
 public:
  static constexpr int kDuels = 2;

  Challenger(std::vector<Axis> axes, Point choice);

  // Begins a round: the parameters take turns, upwards and downwards. False: there is nothing to try.
  bool Begin();
  // What the next sample is measured with; the choice between rounds.
  const Point& point() const { return point_; }
  void Report(double score);
  // Between rounds.
  bool resting() const { return !fighting_; }
  const Point& choice() const { return choice_; }
  // Of the last round: what was tried, whether it is the choice now, and the scores of the last duel.
  const Point& tried() const { return rival_; }
  bool won() const { return duels_won_ == kDuels; }
  const Duel& duel() const { return duel_; }

 private:
  const std::vector<Axis> axes_;
  Point choice_;
  Point rival_;
  Point point_;
  size_t turn_ = 0;
  bool fighting_ = false;
  int duels_won_ = 0;
  Duel duel_;
};

}  // namespace hvd::tune
