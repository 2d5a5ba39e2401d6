// SPDX-License-Identifier: Apache-2.0
#pragma once
#include <string>
#include <utility>
#include <vector>

#include "hvd_perf/collective_bench.h"
#include "hvd_perf/options.h"
#include "hvd_perf/train_bench.h"

namespace hvd_perf {

// Named numbers of one measurement, in the order of printing.
using Figures = std::vector<std::pair<std::string, double>>;

// The table on stdout, or with --json the JSON document.
void ReportRows(const Options& options, int ranks, const std::vector<Row>& rows);
void ReportTraining(const Options& options, int ranks, const std::vector<TrainRow>& rows);
void ReportFigures(const Options& options, const std::string& title, const Figures& figures);

}  // namespace hvd_perf
