// SPDX-License-Identifier: Apache-2.0
#pragma once
// HOROVOD_AUTOTUNE_LOG: a row per sample; the last row is the best one. The file has Horovod's columns and no others,
// so that what reads its files reads this one. What else is tuned is in a second file beside it, row by row the same.

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
  static constexpr const char* kValues = ".values";  // added to the path: the second file

  // An empty path: writes nothing. What was in the files is lost. A path that is no file, such as /dev/stderr, has no
  // second one.
  static Result<CsvLog> Open(const std::string& path);

  // What this engine does not tune, but Horovod's columns tell.
  struct Setting {
    bool hierarchical_allreduce = false;
    bool cache_enabled = true;
  };
  // It is in the files when this returns. The first failure is a warning, and ends the writing.
  void Write(const Setting& setting, const Search::Measured& measured);

 private:
  struct Close {
    void operator()(std::FILE* file) const { std::fclose(file); }
  };
  using File = std::unique_ptr<std::FILE, Close>;
  static bool Put(const std::string& line, const File& file);
  static Result<File> Begin(const std::string& path, const char* header);

  std::string path_;
  File file_;
  File values_;
};

}  // namespace hvd::tune
