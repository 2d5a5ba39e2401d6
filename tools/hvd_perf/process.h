// SPDX-License-Identifier: Apache-2.0
#pragma once
// Starting ranks as processes, pinning them, and ending them all when one fails.
#include <functional>
#include <string>

#include "hvd/hvd.h"
#include "hvd_perf/options.h"

namespace hvd_perf {

// Explains on stderr and ends this process with status 1. Other ranks are ended by the parent.
[[noreturn]] void Die(const std::string& message);
// Dies with hvd_last_error() unless status is HVD_OK.
void Require(int status, const std::string& what);

double NowMicros();
// Cores in this process's affinity mask.
int UsableCores();

// A private meeting place for one run: a folder that is removed again, or a port of the loopback.
class Rendezvous {
 public:
  explicit Rendezvous(bool tcp);
  ~Rendezvous();
  Rendezvous(const Rendezvous&) = delete;
  Rendezvous& operator=(const Rendezvous&) = delete;
  const std::string& address() const { return address_; }

 private:
  std::string folder_;
  std::string address_;
};

// hvd_init of the process-wide engine as rank `rank` of `ranks` at `address`.
void InitRank(const std::string& address, int rank, int ranks);

// Runs body(rank) in `options.ranks` children; `meanwhile`, if any, in the parent. Returns 0 when all ended with 0;
// else kills the rest and returns 1. Children end with the parent.
int RunRanks(const Options& options, const std::function<void(int rank)>& body,
             const std::function<void()>& meanwhile = nullptr);

// Pins the calling process to the rank'th usable core if the options ask for it.
void PinRank(const Options& options, int rank, int ranks);

}  // namespace hvd_perf
