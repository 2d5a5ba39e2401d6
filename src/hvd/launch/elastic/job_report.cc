// SPDX-License-Identifier: Apache-2.0
// The report of an elastic job. Its ranks are those of the last view, because every error that a rank prints names
// ranks of the view that it was in.
#include <algorithm>

#include "hvd/launch/elastic/job.h"

namespace hvd::launch::elastic {
std::vector<int> ElasticJob::Reported() const {
  std::vector<int> numbers;
  if (membership_.view().generation == 0) {
    // No rank was ready: the last process of each slot that failed.
    std::map<SlotName, int> last;
    for (size_t number = 0; number < processes_.size(); ++number) {
      const Process& process = processes_[number];
      const auto [found, is_new] = last.emplace(process.name, number);
      if (process.ending.failed() && !process.ending.told) found->second = static_cast<int>(number);
    }
    for (const auto& [slot, number] : last) numbers.push_back(number);
    return numbers;
  }
  for (const ViewMember& member : membership_.view().members) numbers.push_back(member.process);
  for (size_t number = 0; number < processes_.size(); ++number) {
    const Process& process = processes_[number];
    if (!process.done || !process.ending.failed() || std::ranges::count(numbers, number) > 0) continue;
    numbers.push_back(static_cast<int>(number));
  }
  return numbers;
}

Report ElasticJob::MakeReport() const {
  Report report;
  std::vector<Ending> endings;
  std::vector<std::string> last_words;
  for (const int number : Reported()) {
    const Process& process = processes_[static_cast<size_t>(number)];
    // A lost rank does no harm once the others have finished; one that fails after its training does.
    if (why_.empty() && interrupted_by_ == 0 && process.ending.failed() && !process.done) continue;
    RankReport one{.slot = process.slot, .pid = process.pid, .ending = process.ending, .last_lines = {}};
    one.slot.rank = static_cast<int>(report.ranks.size());
    one.ended_after_s = Since(process.ended_at == Time{} ? over_ : process.ended_at);
    if (process.pid != 0) {
      one.last_lines = output_->stderr_tail(number).Last(20);
      one.ending.blames = output_->blame(number);
    }
    endings.push_back(one.ending);
    last_words.push_back(one.last_lines.empty() ? std::string() : one.last_lines.back());
    report.ranks.push_back(std::move(one));
  }
  report.diagnosis = Diagnose(endings);
  FindAlike(endings, last_words, &report.diagnosis);
  const int cause = report.diagnosis.cause;
  for (size_t i = 0; i < report.ranks.size(); ++i) {
    if (static_cast<int>(i) != cause) report.ranks[i].last_lines.clear();
  }
  report.exit_code = cause >= 0 ? report.diagnosis.exit_code : why_.empty() ? 0 : 1;
  if (interrupted_by_ != 0 && std::ranges::any_of(endings, &Ending::failed)) {
    report.exit_code = 128 + interrupted_by_;
  }
  report.why = why_;
  report.interrupted_by = interrupted_by_;
  report.started_at = started_at_;
  report.elapsed_s = Since(over_);
  report.logs = output_->logs();
  report.elastic = ElasticReport{membership_.view().generation, totals_.recoveries, totals_.rollbacks, totals_.lost_s};
  return report;
}

}  // namespace hvd::launch::elastic
