// SPDX-License-Identifier: Apache-2.0
#pragma once
// A Store that asks a server.
//
// Thread safety: as Store.
// Lifetime: the destructor says goodbye; it does not wait.

#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "hvd/net/stream.h"
#include "hvd/rendezvous/factory.h"
#include "hvd/rendezvous/store.h"
#include "hvd/rendezvous/tcp/protocol.h"

namespace hvd::rendezvous::tcp {

class Client final : public rendezvous::Store {
 public:
  // Tries again until a server appears, its name resolves and it answers, for at most options.timeout.
  static Result<std::unique_ptr<rendezvous::Store>> Create(const Options& options);
  ~Client() override;

  Status Set(const std::string& key, const std::string& value) override;
  Result<std::vector<std::string>> Wait(const std::vector<std::string>& keys, Duration timeout) override;
  Result<int64_t> Add(const std::string& key, int64_t delta) override;
  Status Delete(const std::string& key) override;

 private:
  Client(std::string address, Duration timeout, std::unique_ptr<net::Stream> stream)
      : address_(std::move(address)), timeout_(timeout), stream_(std::move(stream)) {}
  Result<Response> Ask(const Request& request, Duration timeout);
  Result<Response> Exchange(const Request& request, Time deadline);

  std::string address_;
  Duration timeout_;
  std::unique_ptr<net::Stream> stream_;
  std::optional<Error> broken_;  // after this the stream's position is unknown
};

}  // namespace hvd::rendezvous::tcp
