// SPDX-License-Identifier: Apache-2.0
#include "hvd/engine/meeting_refusal.h"

#include <algorithm>
#include <thread>

#include "hvd/engine/place.h"
#include "hvd/net/deadline.h"
#include "hvd/topology/process.h"

namespace hvd::engine {
namespace {

// Who waits looks once a second (meeting.cc).
constexpr Duration kTimeToRead = std::chrono::seconds(2);

}  // namespace

std::string RefusalKey(const Config& config) {
  return fmt::format("hvd/{}/refusal{}", config.generation, config.group);
}

std::string EncodeRefusal(const Start& who, const Error& why) {
  return fmt::format("{}\n{}", EncodeStart(who), EncodeError(why));
}

Refusal::Refusal(rendezvous::Store* store, const Config& config, const Error& why)
    : store_(store),
      key_(RefusalKey(config)),
      written_(store->Set(key_, EncodeRefusal({config.generation, topology::ThisProcess()}, why)).has_value()) {}

Refusal::~Refusal() {
  if (written_) (void)store_->Delete(key_);
}

void Refuse(rendezvous::Store* store, const Config& config, const Error& why, Time deadline) {
  const Refusal refusal(store, config, why);
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

}  // namespace hvd::engine
