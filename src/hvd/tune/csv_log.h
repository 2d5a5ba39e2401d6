// SPDX-License-Identifier: Apache-2.0
#pragma once
// HOROVOD_AUTOTUNE_LOG: a row per sample; the last row is the best one. Horovod's columns come first, in its order, so
// that what reads its files reads these; columns of our own follow.

#include <cstdint>
#include <cstdio>
#include <memory>
#include <string>

#include "hvd/base/result.h"
#include "hvd/tune/search.h"

namespace hvd::tune {

class CsvLog {
 public:
  // Writes nothing.
  CsvLog() = default;
  // An empty path: writes nothing. What was in the file is lost.
  static Result<CsvLog> Open(const std::string& path);

  // What this engine does not tune, but Horovod's columns tell.
  struct Setting {
    bool hierarchical_allreduce = false;
    bool cache_enabled = true;
  };
  // It is in the file when this returns. The first failure is a warning, and ends the writing.
  void Write(const Setting& setting, const Search::Measured& measured);

 private:
  struct Close {
    void operator()(std::FILE* file) const { std::fclose(file); }
  };
  bool Put(const std::string& line);

  std::string path_;
  std::unique_ptr<std::FILE, Close> file_;
};

}  // namespace hvd::tune
