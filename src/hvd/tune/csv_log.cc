// SPDX-License-Identifier: Apache-2.0
#include "hvd/tune/csv_log.h"

#include <cerrno>
#include <cstring>

#include "hvd/base/log.h"
#include "hvd/tune/parameters.h"

namespace hvd::tune {
namespace {

constexpr const char* kHeader =
    "hierarchical_allreduce,hierarchical_allgather,torus_allreduce,cache_enabled,cycle_time_ms,"
    "tensor_fusion_threshold,score,chunk_percent,eager_limit,spin_us\n";

}  // namespace

Result<CsvLog> CsvLog::Open(const std::string& path) {
  CsvLog log;
  if (path.empty()) return log;
  log.path_ = path;
  log.file_.reset(std::fopen(path.c_str(), "we"));
  if (log.file_ == nullptr || !log.Put(kHeader)) {
    return Fail(Code::kInvalidArgument, "HOROVOD_AUTOTUNE_LOG={} cannot be written: {}", path, std::strerror(errno));
  }
  return log;
}

bool CsvLog::Put(const std::string& line) {
  return std::fwrite(line.data(), 1, line.size(), file_.get()) == line.size() && std::fflush(file_.get()) == 0;
}

void CsvLog::Write(const Setting& setting, const Search::Measured& measured) {
  if (file_ == nullptr) return;
  // The engine acts when something happens, not in cycles. Horovod writes the threshold in MiB.
  const Point& point = measured.point;
  const std::string line = fmt::format("{:d},0,0,{:d},0,{:g},{:g},{},{},{}\n", setting.hierarchical_allreduce,
                                       setting.cache_enabled, static_cast<double>(point[kFusion]) / (1 << 20),
                                       measured.score, point[kChunk], point[kEager], point[kSpin]);
  if (Put(line)) return;
  log::Warning("HOROVOD_AUTOTUNE_LOG={} cannot be written any more: {}. Tuning goes on.", path_, std::strerror(errno));
  file_.reset();
}

}  // namespace hvd::tune
