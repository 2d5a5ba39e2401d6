// SPDX-License-Identifier: Apache-2.0
#pragma once
// Why a job could not begin, or go on, because of a host rather than a rank. A value.

#include <string>

namespace hvd::launch {

struct HostFailure {
  std::string host{};  // several are separated by commas
  int exit_code = 0;   // see exit_codes.h
  std::string what{};
  std::string suggestion{};
};

}  // namespace hvd::launch
