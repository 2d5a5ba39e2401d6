// SPDX-License-Identifier: Apache-2.0
#pragma once
// Counters for people and programs: plain numbers in seconds and bytes, JSON, and Prometheus' text exposition format.
//
// Thread safety: pure functions.

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "hvd/base/types.h"
#include "hvd/trace/counters.h"
#include "hvd/trace/ticks.h"

namespace hvd::trace {

struct CounterSnapshot {
  // Who.
  Rank rank = 0;
  int size = 1;
  int generation = 0;
  std::string host;
  std::string version;
  double uptime_s = 0;

  struct Kind {
    std::string_view name;
    uint64_t completed = 0;
    uint64_t failed = 0;
    uint64_t timed_out = 0;
    uint64_t bytes = 0;
    double wait_s = 0;
    double run_s = 0;
  };
  std::vector<Kind> kinds;

  // Bytes between this rank and a peer by one transport.
  struct TransportBytes {
    std::string_view transport;
    uint64_t sent = 0;
    uint64_t received = 0;
  };
  struct Peer {
    Rank rank = 0;
    uint64_t last = 0;
    double wait_s = 0;
    std::vector<TransportBytes> transports;  // none to this rank itself
  };
  std::vector<Peer> peers;

  uint64_t cache_hits = 0;
  uint64_t cache_misses = 0;
  uint64_t fusion_batches = 0;
  uint64_t fusion_tensors = 0;
  uint64_t fusion_bytes = 0;
  uint64_t fusion_threshold = 0;
  uint64_t chunk_percent = 0;
  uint64_t chunk_bytes = 0;
  uint64_t eager_bytes = 0;
  uint64_t spin_us = 0;
  uint64_t stalls = 0;
  uint64_t sleeps = 0;
};

// What the counters say now; who, the threshold and the transports are the caller's to fill in.
CounterSnapshot Read(const Counters& counters, const TickScale& ticks);

// One object; its keys are those of docs/operate/monitoring.md.
std::string ToJson(const CounterSnapshot& snapshot);
// Version 0.0.4 of the format: text/plain; version=0.0.4.
std::string ToPrometheus(const CounterSnapshot& snapshot);

}  // namespace hvd::trace
