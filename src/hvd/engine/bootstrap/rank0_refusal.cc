// SPDX-License-Identifier: Apache-2.0
#include "hvd/engine/bootstrap/rank0_refusal.h"

#include <algorithm>
#include <thread>

#include "hvd/engine/bootstrap/rendezvous_point.h"
#include "hvd/net/deadline.h"
#include "hvd/topology/process.h"

namespace hvd::engine::bootstrap {
namespace {

// A waiting rank reads at least once a second (rendezvous_protocol.cc).
constexpr Duration kTimeToRead = std::chrono::seconds(2);

}  // namespace

std::string RefusalKey(const Config& config) {
  return fmt::format("hvd/{}/refusal{}", config.generation, config.group);
}

std::string EncodeRefusal(const Start& who, const Error& why) {
  return fmt::format("{}\n{}", EncodeStart(who), EncodeError(why));
}

Rank0Refusal::Rank0Refusal(rendezvous::Store* store, const Config& config, const Error& why)
    : store_(store),
      key_(RefusalKey(config)),
      written_(store->Set(key_, EncodeRefusal({config.generation, topology::ThisProcess()}, why)).has_value()) {}

Rank0Refusal::~Rank0Refusal() {
  if (written_) (void)store_->Delete(key_);
}

void PublishRefusal(rendezvous::Store* store, const Config& config, const Error& why, Time deadline) {
  const Rank0Refusal refusal(store, config, why);
  if (refusal.written()) std::this_thread::sleep_for(std::min(kTimeToRead, net::Left(deadline)));
}

std::optional<Error> ReadRefusal(const Config& config, std::string_view note) {
  const size_t line = note.find('\n');
  const auto who = line == std::string_view::npos ? std::nullopt : DecodeStart(note.substr(0, line));
  if (!who) return std::nullopt;
  const topology::Life life = topology::LifeOf(who->process);
  if (life == topology::Life::kEnded) return std::nullopt;
  if (life != topology::Life::kRuns && IsFolder(config.rendezvous_addr)) return std::nullopt;
  Error why = DecodeError(note.substr(line + 1));
  why.message = fmt::format("rank 0 (pid {}) of {} cannot come to {}: {}", who->process.pid, config.size,
                            config.rendezvous_addr, why.message);
  why.rank = 0;
  return why;
}

}  // namespace hvd::engine::bootstrap
