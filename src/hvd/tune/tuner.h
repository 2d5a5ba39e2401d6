// SPDX-License-Identifier: Apache-2.0
#pragma once
// Tunes a running job: makes scores of what its first rank sees reduced, has Search decide, logs every sample, and says
// at the end what was found and how to keep it. If asked to it goes on, slowly, with Challenger.
//
// score   bytes that were reduced per microsecond, the program's own computing included
// window  from the end of an operation until some name comes again for the `steps_per_sample`th time: that many steps
// sample  the median of kWindows windows, so that a pause (an evaluation, a checkpoint) does not count
//
// Thread safety: none; call with the progress token. No clock but the times passed in.

#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

#include "hvd/base/clock.h"
#include "hvd/tune/challenger.h"
#include "hvd/tune/csv_log.h"
#include "hvd/tune/parameters.h"

namespace hvd::tune {

struct TunerOptions {
  SearchOptions search;
  int warmup_samples = 3;  // whose scores do not count
  int steps_per_sample = 10;
  bool continues = false;  // after the end of the search
  // So many samples' operations pass between two rounds of Challenger, which has at most 8 samples, 4 of them with
  // another value than the choice: less than 1 %.
  int rest_samples = 500;
  CsvLog::Setting setting;
  std::function<std::string(int64_t percent)> chunk_variables;  // as VariablesFor takes it
};

class Tuner {
 public:
  static constexpr size_t kWindows = 5;

  Tuner(const TunerOptions& options, CsvLog log);
  // Says how far it came, if it is not finished.
  ~Tuner();

  // What the job shall work with from now on.
  const Point& point() const { return challenger_ ? challenger_->point() : search_.point(); }
  const Point& start() const { return search_.start().point; }
  // It has nothing more to do.
  bool finished() const { return search_.finished() && !challenger_; }
  // A reduction succeeded at `now`. `batches`: how many fused ones there were so far in all.
  void OnReduced(std::string_view name, size_t bytes, Time now, uint64_t batches);

 private:
  // With the end of the operation of this name, whose bytes were moved before.
  void BeginWindow(std::string_view name, Time now);
  void EndSample(uint64_t batches);
  void EndSearch();
  // A sample of a round of Challenger.
  void EndChallenge(double score);
  void Tell() const;
  const char* WhyTheStartStays() const;

  const TunerOptions options_;
  CsvLog log_;
  Search search_;
  std::optional<Challenger> challenger_;
  int warmups_left_;
  bool fuses_ = true;  // whether anything was fused while the start was measured

  bool began_ = false;  // the first operation was seen: time runs from its end
  Time since_{};
  double bytes_ = 0;
  std::unordered_map<std::string, int> times_;  // by name, in this window
  std::vector<double> windows_;                 // scores, of this sample
  uint64_t batches_before_ = 0;                 // this sample
  uint64_t operations_ = 0;                     // of this sample
  uint64_t rest_ = 0;                           // operations until the next round
};

}  // namespace hvd::tune
