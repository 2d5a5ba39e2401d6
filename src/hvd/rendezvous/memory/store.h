// SPDX-License-Identifier: Apache-2.0
#pragma once
// A Store for ranks that are threads or engines of one process.
//
// Thread safety: as Store; different Store objects of one name may be used from different threads.
// Lifetime: the content lives as long as any Store of its name.

#include <memory>
#include <string>
#include <vector>

#include "hvd/rendezvous/store.h"

namespace hvd::rendezvous::memory {

struct Content;

class Store final : public rendezvous::Store {
 public:
  static std::unique_ptr<rendezvous::Store> Named(const std::string& name);

  Status Set(const std::string& key, const std::string& value) override;
  Result<std::vector<std::string>> Wait(const std::vector<std::string>& keys, Duration timeout) override;
  Result<int64_t> Add(const std::string& key, int64_t delta) override;
  Status Delete(const std::string& key) override;

 private:
  explicit Store(std::shared_ptr<Content> content) : content_(std::move(content)) {}
  std::shared_ptr<Content> content_;
};

}  // namespace hvd::rendezvous::memory

namespace hvd::rendezvous {
using MemoryStore = memory::Store;
}  // namespace hvd::rendezvous
