// SPDX-License-Identifier: Apache-2.0
#include "hvd/rendezvous/factory.h"

#include <string_view>

#include "hvd/rendezvous/file/store.h"
#include "hvd/rendezvous/memory/store.h"
#include "hvd/rendezvous/tcp/client.h"
#include "hvd/rendezvous/tcp/server.h"

namespace hvd::rendezvous {
namespace {

constexpr std::string_view kFile = "file://";
constexpr std::string_view kMemory = "memory:";

}  // namespace

Result<std::unique_ptr<Store>> OpenStore(const Options& options) {
  const std::string_view address = options.address;
  if (address.starts_with(kMemory)) return memory::Store::Named(std::string(address.substr(kMemory.size())));
  if (address.starts_with(kFile)) return file::Store::Create(std::string(address.substr(kFile.size())));
  return tcp::Client::Create(options);
}

Result<std::unique_ptr<Server>> Serve(const Options& options) {
  const std::string_view address = options.address;
  if (address.starts_with(kMemory) || address.starts_with(kFile)) {
    return Fail(Code::kInvalidArgument, "the store {} needs no server", address);
  }
  return tcp::Server::Create(options);
}

}  // namespace hvd::rendezvous
