// SPDX-License-Identifier: Apache-2.0
#include "hvd/launch/run/flight_folder.h"

#include <stdlib.h>

#include <filesystem>
#include <system_error>

namespace hvd::launch {
namespace {

namespace fs = std::filesystem;

// "flight.3.json" and what was to become one (trace/dump_file.h).
bool IsDump(const fs::path& path) { return path.filename().string().starts_with("flight."); }

// What else is in the folder is the user's.
void RemoveDumps(const std::string& folder) {
  std::error_code error;
  for (const fs::directory_entry& entry : fs::directory_iterator(folder, error)) {
    if (IsDump(entry.path()) && entry.is_regular_file(error)) fs::remove(entry.path(), error);
  }
}

}  // namespace

FlightFolder::FlightFolder(const std::string& logs, const Environment& environment)
    : given_(environment.Get("HOROVOD_FLIGHT_DIR").value_or("")) {
  if (!given_.empty()) return;
  std::error_code error;
  if (!logs.empty()) {
    path_ = fs::absolute(logs, error).string() + "/flight";
    RemoveDumps(path_);  // of an earlier job with the same --output-filename
    made_ = fs::create_directory(path_, error);
  } else {
    path_ = environment.Get("TMPDIR").value_or("/tmp") + "/hvd-flight-XXXXXX";
    made_ = temporary_ = ::mkdtemp(path_.data()) != nullptr;
    if (!temporary_) path_.clear();
  }
  if (error) path_.clear();
}

FlightFolder::~FlightFolder() {
  if (path_.empty()) return;
  RemoveDumps(path_);
  std::error_code error;
  if (made_) fs::remove(path_, error);  // fails if it is not empty
}

bool FlightFolder::HasDumps() const {
  const std::string& folder = given_.empty() ? path_ : given_;
  std::error_code error;
  for (const fs::directory_entry& entry : fs::directory_iterator(folder, error)) {
    if (IsDump(entry.path())) return true;
  }
  return false;
}

std::string FlightFolder::Keep(bool failed) {
  if (!(failed || stalled_) || !HasDumps()) return {};
  const std::string folder = given_.empty() ? path_ : given_;
  path_.clear();
  return folder;
}

}  // namespace hvd::launch
