// SPDX-License-Identifier: Apache-2.0
#include "hvd/tune/csv_log.h"

#include <sys/stat.h>

#include <cerrno>
#include <cstring>

#include "hvd/base/log.h"
#include "hvd/tune/parameters.h"

namespace hvd::tune {
namespace {

constexpr const char* kHeader =
    "hierarchical_allreduce,hierarchical_allgather,torus_allreduce,cache_enabled,cycle_time_ms,"
    "tensor_fusion_threshold,score\n";
constexpr const char* kValuesHeader = "tensor_fusion_threshold,chunk_percent,eager_limit,spin_us,score\n";

bool IsFile(std::FILE* file) {
  struct stat about {};
  return ::fstat(::fileno(file), &about) == 0 && S_ISREG(about.st_mode);
}

}  // namespace

bool CsvLog::Put(const std::string& line, const File& file) {
  return std::fwrite(line.data(), 1, line.size(), file.get()) == line.size() && std::fflush(file.get()) == 0;
}

Result<CsvLog::File> CsvLog::Begin(const std::string& path, const char* header) {
  File file(std::fopen(path.c_str(), "we"));
  if (file == nullptr || !Put(header, file)) {
    return Fail(Code::kInvalidArgument, "HOROVOD_AUTOTUNE_LOG={} cannot be written: {}", path, std::strerror(errno));
  }
  return file;
}

Result<CsvLog> CsvLog::Open(const std::string& path) {
  CsvLog log;
  if (path.empty()) return log;
  log.path_ = path;
  HVD_ASSIGN_OR_RETURN(log.file_, Begin(path, kHeader));
  if (IsFile(log.file_.get())) {
    HVD_ASSIGN_OR_RETURN(log.values_, Begin(path + kValues, kValuesHeader));
  }
  return log;
}

void CsvLog::Write(const Setting& setting, const Search::Measured& measured) {
  if (file_ == nullptr) return;
  const Point& point = measured.point;
  // The engine acts when something happens, not in cycles. Horovod writes the threshold in MiB.
  const double threshold = static_cast<double>(point[kFusion]) / (1 << 20);
  const std::string row = fmt::format("{:d},0,0,{:d},0,{:g},{:g}\n", setting.hierarchical_allreduce,
                                      setting.cache_enabled, threshold, measured.score);
  const std::string values =
      fmt::format("{:g},{},{},{},{:g}\n", threshold, point[kChunk], point[kEager], point[kSpin], measured.score);
  if (Put(row, file_) && (values_ == nullptr || Put(values, values_))) return;
  log::Warning("HOROVOD_AUTOTUNE_LOG={} cannot be written any more: {}. Tuning goes on.", path_, std::strerror(errno));
  file_.reset();
  values_.reset();
}

}  // namespace hvd::tune
