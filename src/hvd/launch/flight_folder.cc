// SPDX-License-Identifier: Apache-2.0
#include "hvd/launch/flight_folder.h"

#include <stdlib.h>

#include <filesystem>
#include <system_error>

namespace hvd::launch {

FlightFolder::FlightFolder(const std::string& logs, const Environment& environment)
    : given_(environment.Get("HOROVOD_FLIGHT_DIR").value_or("")) {
  if (!given_.empty()) return;
  std::error_code error;
  if (!logs.empty()) {
    path_ = std::filesystem::absolute(logs, error).string() + "/flight";
    std::filesystem::remove_all(path_, error);  // of an earlier job with the same --output-filename
    std::filesystem::create_directory(path_, error);
  } else {
    path_ = environment.Get("TMPDIR").value_or("/tmp") + "/hvd-flight-XXXXXX";
    temporary_ = ::mkdtemp(path_.data()) != nullptr;
    if (!temporary_) path_.clear();
  }
  if (error) path_.clear();
}

FlightFolder::~FlightFolder() {
  std::error_code error;
  if (!path_.empty()) std::filesystem::remove_all(path_, error);
}

std::string FlightFolder::Keep(bool failed) {
  const std::string folder = given_.empty() ? path_ : given_;
  std::error_code error;
  if (!failed || folder.empty() || std::filesystem::is_empty(folder, error) || error) return {};
  path_.clear();
  return folder;
}

}  // namespace hvd::launch
