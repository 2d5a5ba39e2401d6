// SPDX-License-Identifier: Apache-2.0
#pragma once
// Tunes a running job: makes scores of what its first rank sees reduced, has Search decide, logs every sample, and says
// at the end what was found and how to keep it.
//
// score   bytes that were reduced per microsecond, the program's own computing included
// window  from the end of an operation until some name comes again for the `steps_per_sample`th time: that many steps
// sample  the median of kWindows windows, so that a pause (an evaluation, a checkpoint) does not count
//
// Thread safety: none; call with the progress token. No clock but the times passed in.

#include <cstdint>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

#include "hvd/base/clock.h"
#include "hvd/tune/csv_log.h"
#include "hvd/tune/search.h"

namespace hvd::tune {

struct TunerOptions {
  SearchOptions search;
  int warmup_samples = 3;  // whose scores do not count
  int steps_per_sample = 10;
  CsvLog::Setting setting;
};

class Tuner {
 public:
  static constexpr size_t kWindows = 5;

  Tuner(const TunerOptions& options, CsvLog log);
  // Says how far it came, if it is not finished.
  ~Tuner();

  // What operations are fused up to from now on.
  int64_t threshold() const { return search_.threshold(); }
  bool finished() const { return search_.finished(); }
  // A reduction succeeded at `now`. `batches`: how many fused ones there were so far in all.
  void OnReduced(std::string_view name, size_t bytes, Time now, uint64_t batches);

 private:
  // With the end of the operation of this name, whose bytes were moved before.
  void BeginWindow(std::string_view name, Time now);
  void EndSample(uint64_t batches);
  void LogBest() { log_.Write(options_.setting, search_.best().threshold, search_.best().score); }
  void Tell() const;

  const TunerOptions options_;
  CsvLog log_;
  Search search_;
  int warmups_left_;
  bool fuses_ = true;  // whether anything was fused while the start was measured

  bool began_ = false;  // the first operation was seen: time runs from its end
  Time since_{};
  double bytes_ = 0;
  std::unordered_map<std::string, int> times_;  // by name, in this window
  std::vector<double> windows_;                 // scores, of this sample
  uint64_t batches_before_ = 0;                 // this sample
};

}  // namespace hvd::tune
