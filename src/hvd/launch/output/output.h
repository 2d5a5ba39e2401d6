// SPDX-License-Identifier: Apache-2.0
#pragma once
// Everything that ranks print: shown line by line with a label, written to files, and the end of it kept for the
// report.
//
// Thread safety: none; on the job's loop.

#include <memory>
#include <optional>
#include <string_view>
#include <vector>

#include "hvd/base/clock.h"
#include "hvd/launch/output/label.h"
#include "hvd/launch/output/lines.h"
#include "hvd/launch/output/rank_files.h"
#include "hvd/launch/output/repeated_traces.h"
#include "hvd/launch/output/sink.h"
#include "hvd/launch/output/tail.h"
#include "hvd/launch/report/blame.h"

namespace hvd::launch {

enum class Stream { kOut, kErr };

struct OutputOptions {
  LabelStyle out, err;  // they differ in colour
  std::optional<int> only_rank;
  std::optional<RankFiles> files;
};

class Output {
 public:
  // The sinks outlive it.
  Output(OutputOptions options, int ranks, Sink* out, Sink* err);

  // A rank begins. Before its first Take. Of an elastic job, `rank` is the number of the process here.
  void Begin(const Slot& slot, int pid);
  // A process has another rank from now on, and what it said about others is no longer about this job.
  void Rename(const Slot& slot, int pid);
  void Take(int rank, Stream stream, std::string_view bytes, Time now);
  // Nothing more comes from that rank.
  void End(int rank);

  const Tail& stderr_tail(int rank) const { return ranks_[rank]->tail; }
  // The last that the rank said about who is at fault.
  const std::optional<Blame>& blame(int rank) const { return ranks_[rank]->blame; }
  // Whether what the rank prints is shown, not only kept.
  bool Shows(int rank) const { return !options_.only_rank || *options_.only_rank == ranks_[rank]->rank; }
  std::string logs() const { return options_.files ? options_.files->folder() : std::string(); }

 private:
  struct OneRank {
    int rank = 0;
    std::optional<Label> labels[2];
    std::optional<LineCutter> cutters[2];
    Tail tail;
    std::optional<Blame> blame;
    std::string held_trace;
  };

  void Line(int rank, Stream stream, std::string_view line);
  void Show(const OneRank& one, Stream stream, std::string_view line);

  OutputOptions options_;
  Sink* const out_;
  Sink* const err_;
  std::vector<std::unique_ptr<OneRank>> ranks_;
  RepeatedTraces traces_;
};

}  // namespace hvd::launch
