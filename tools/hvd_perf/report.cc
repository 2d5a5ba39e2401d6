// SPDX-License-Identifier: Apache-2.0
#include "hvd_perf/report.h"

#include <cerrno>
#include <cinttypes>
#include <cstdio>
#include <cstring>

#include "hvd/hvd.h"
#include "hvd_perf/process.h"

namespace hvd_perf {
namespace {

[[noreturn]] void CannotWrite(const std::string& what) { Die("cannot write " + what + ": " + std::strerror(errno)); }

// Ends the program where something of what was printed got lost.
void FlushTable() {
  if (std::fflush(stdout) != 0 || std::ferror(stdout) != 0) CannotWrite("the table to standard output");
}

// Where --json points, closed again unless it is stdout. All strings printed are this program's own: nothing to escape.
class JsonFile {
 public:
  explicit JsonFile(const std::string& path)
      : what_(path == "-" ? "the JSON to standard output" : "--json " + path),
        file_(path == "-" ? stdout : std::fopen(path.c_str(), "w")) {
    if (file_ == nullptr) CannotWrite(what_);
  }
  ~JsonFile() {
    const bool lost = std::fflush(file_) != 0 || std::ferror(file_) != 0;
    if (lost || (file_ != stdout && std::fclose(file_) != 0)) CannotWrite(what_);
  }
  std::FILE* get() { return file_; }

 private:
  std::string what_;
  std::FILE* file_;
};

const char* Name(bool value, const char* yes, const char* no) { return value ? yes : no; }

void PrintTable(const Options& o, int ranks, const std::vector<Row>& rows) {
  std::printf("# hvd %s, %s", hvd_version(), o.op_name.c_str());
  if (o.op == HVD_ALLREDUCE || o.op == HVD_REDUCESCATTER) std::printf(" %s", o.reduce_op_name.c_str());
  std::printf(" %s, %d ranks, %s data, %s buffers, %s, %s", o.dtype_name.c_str(), ranks,
              Name(o.fresh, "fresh", "back-to-back"), o.buffers_name.c_str(),
              Name(o.in_place, "in place", "out of place"), Name(o.async, "async", "blocking"));
  if (o.offset != kAsMalloc) std::printf(", %d bytes after a page", o.offset);
  if (o.new_pages) std::printf(", new pages");
  if (o.async) std::printf(" window %d", o.window);
  if (o.wire != 0) std::printf(", travels as %s", o.wire_name.c_str());
  std::printf(", %s\n%12s %12s %7s %10s %10s %10s %9s %9s\n", Name(o.check, "checked", "not checked"), "bytes", "count",
              "iters", "min us", "median us", "p90 us", "algbw", "busbw");
  for (const Row& row : rows) {
    std::printf("%12" PRIu64 " %12" PRIu64 " %7d %10.2f %10.2f %10.2f %9.3f %9.3f\n", row.bytes, row.count, row.iters,
                row.min_us, row.median_us, row.p90_us, row.algbw, row.busbw);
  }
  FlushTable();
}

}  // namespace

void ReportRows(const Options& o, int ranks, const std::vector<Row>& rows) {
  if (o.json != "-") PrintTable(o, ranks, rows);
  if (o.json.empty()) return;
  JsonFile json(o.json);
  std::fprintf(json.get(),
               "{\"version\": \"%s\", \"op\": \"%s\", \"dtype\": \"%s\", \"reduce_op\": \"%s\", \"ranks\": %d, "
               "\"data\": \"%s\", \"buffers\": \"%s\", \"offset\": %d, \"new_pages\": %s, \"in_place\": %s, \"mode\": "
               "\"%s\", \"window\": %d, "
               "\"checked\": %s, \"wire\": \"%s\", \"rows\": [",
               hvd_version(), o.op_name.c_str(), o.dtype_name.c_str(), o.reduce_op_name.c_str(), ranks,
               Name(o.fresh, "fresh", "back-to-back"), o.buffers_name.c_str(), o.offset,
               Name(o.new_pages, "true", "false"), Name(o.in_place, "true", "false"),
               Name(o.async, "async", "blocking"), o.async ? o.window : 1, Name(o.check, "true", "false"),
               o.wire_name.c_str());
  for (size_t i = 0; i < rows.size(); ++i) {
    const Row& row = rows[i];
    std::fprintf(json.get(),
                 "%s\n  {\"bytes\": %" PRIu64 ", \"count\": %" PRIu64
                 ", \"iters\": %d, \"min_us\": %.4f, \"median_us\": %.4f, \"p90_us\": %.4f, \"algbw\": %.4f, "
                 "\"busbw\": %.4f}",
                 i == 0 ? "" : ",", row.bytes, row.count, row.iters, row.min_us, row.median_us, row.p90_us, row.algbw,
                 row.busbw);
  }
  std::fprintf(json.get(), "\n]}\n");
}

void ReportTraining(const Options& o, int ranks, const std::vector<TrainRow>& rows) {
  const Model& model = *o.model;
  if (o.json != "-") {
    std::printf("# hvd %s, training %s: %zu gradients, %.1f MB, %d ranks, %s buffers, compute %g times the reduction\n",
                hvd_version(), model.name, model.gradients.size(), model.elements() * 4e-6, ranks,
                o.buffers_name.c_str(), o.ratio);
    std::printf("%8s %7s %12s %14s %10s %8s %11s\n", "compute", "steps", "compute ms", "reduction ms", "step ms",
                "hidden", "efficiency");
    bool noise = false;
    for (const TrainRow& row : rows) {
      std::printf("%8s %7d %12.2f %14.2f %10.2f %7.1f%% %10.1f%%%s\n", row.compute.c_str(), row.steps,
                  row.compute_s * 1e3, row.communication_s * 1e3, row.step_s * 1e3, row.hidden() * 100,
                  row.efficiency() * 100, Name(row.noise(), "  noise", ""));
      noise = noise || row.noise();
    }
    if (noise) {
      std::printf(
          "# noise: steps with reductions took less time than those without, which cannot be: measure more steps "
          "(--iters), or on a machine with less else to do\n");
    }
    FlushTable();
  }
  if (o.json.empty()) return;
  JsonFile json(o.json);
  std::fprintf(
      json.get(),
      "{\"version\": \"%s\", \"train\": \"%s\", \"ranks\": %d, \"buffers\": \"%s\", \"ratio\": %g, \"rows\": [",
      hvd_version(), model.name, ranks, o.buffers_name.c_str(), o.ratio);
  for (const TrainRow& row : rows) {
    std::fprintf(json.get(),
                 "%s\n  {\"compute\": \"%s\", \"steps\": %d, \"compute_s\": %.6f, \"communication_s\": %.6f, "
                 "\"step_s\": %.6f, \"hidden\": %.4f, \"efficiency\": %.4f, \"noise\": %s}",
                 &row == rows.data() ? "" : ",", row.compute.c_str(), row.steps, row.compute_s, row.communication_s,
                 row.step_s, row.hidden(), row.efficiency(), Name(row.noise(), "true", "false"));
  }
  std::fprintf(json.get(), "\n]}\n");
}

void ReportFigures(const Options& o, const std::string& title, const Figures& figures) {
  if (o.json != "-") {
    std::printf("# hvd %s, %s\n", hvd_version(), title.c_str());
    for (const auto& [name, value] : figures) std::printf("%-28s %12.4f\n", name.c_str(), value);
    FlushTable();
  }
  if (o.json.empty()) return;
  JsonFile json(o.json);
  std::fprintf(json.get(), "{\"version\": \"%s\"", hvd_version());
  for (const auto& [name, value] : figures) std::fprintf(json.get(), ", \"%s\": %.6f", name.c_str(), value);
  std::fprintf(json.get(), "}\n");
}

}  // namespace hvd_perf
