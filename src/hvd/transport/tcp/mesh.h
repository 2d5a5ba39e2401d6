// SPDX-License-Identifier: Apache-2.0
#pragma once
// The work of ConnectAll: all openings of one rank, moved on by one poll loop.
//
// Thread safety: one thread.

#include <memory>
#include <string>
#include <vector>

#include "hvd/base/clock.h"
#include "hvd/base/result.h"
#include "hvd/net/strangers.h"
#include "hvd/transport/tcp/factory.h"
#include "hvd/transport/tcp/opening.h"

namespace hvd::transport::tcp {

class Mesh {
 public:
  explicit Mesh(const ConnectOptions& options) : options_(options) {}
  Status Prepare();
  Result<std::vector<std::unique_ptr<Pair>>> Run();

 private:
  // What is known of a wanted connection.
  struct Peer {
    bool wanted = false;
    std::unique_ptr<ByteStream> stream;  // once open
    std::unique_ptr<Seal> seal;
    bool opening = false;  // we connect, and are at it
    Time retry_at{};
    std::string last_error;
  };
  struct Entry {
    net::Strangers::Id id;
    std::unique_ptr<Opening> opening;
    net::Want want;
    Time give_up;
  };

  bool Complete() const;
  // Begins the connections whose time has come.
  Status Begin();
  Status AcceptWaiting();
  // There is no descriptor for a connection that waits: makes room, or waits a little. An error if that cannot help.
  Status OnNoDescriptor(const Error& error);
  // Waits until something can be done, then does it.
  Status TurnOnce();
  Status StepEntry(Entry& entry);
  Status OnFailed(const Opening& opening, const Error& error);
  Status OnOpen(Opening& opening);
  Time NextTime() const;
  Error Missing() const;

  const ConnectOptions& options_;
  OpeningContext context_;
  std::vector<Peer> peers_;
  std::vector<Entry> entries_;
  net::Strangers strangers_;  // of entries_, those that were accepted
  net::Strangers::Id last_id_ = 0;
  Time accept_at_{};
  int without_descriptor_ = 0;  // accepts that failed, one after the other
  int turned_away_ = 0;
};

}  // namespace hvd::transport::tcp
