// SPDX-License-Identifier: Apache-2.0
// The store, for drivers.
#include "hvd/engine/bootstrap/store.h"

#include <algorithm>
#include <cstring>

#include "hvd/c_api/argument_check.h"
#include "hvd/c_api/context.h"

struct hvd_store {
  std::unique_ptr<hvd::rendezvous::Store> store;
};
struct hvd_store_server {
  std::unique_ptr<hvd::rendezvous::Server> server;
};

namespace {

using hvd::c_api::Report;

std::string Text(const char* text) { return text == nullptr ? std::string() : text; }

}  // namespace

extern "C" {

HVD_API int hvd_store_serve(const char* address, const char* token_file, hvd_store_server** server, int32_t* port) {
  if (server == nullptr) return Report(hvd::Code::kInvalidArgument, "hvd_store_serve: server is NULL");
  if (hvd::c_api::InForkedChild()) return hvd::c_api::ReportForked();
  auto served = hvd::engine::ServeStore(Text(address), Text(token_file));
  if (!served) return Report(served.error());
  if (port != nullptr) *port = hvd::engine::PortOf(**served);
  *server = new hvd_store_server{std::move(*served)};
  return HVD_OK;
}

HVD_API void hvd_store_server_free(hvd_store_server* server) { delete server; }

HVD_API int hvd_store_connect(const char* address, const char* token_file, double timeout_s, hvd_store** store) {
  if (store == nullptr) return Report(hvd::Code::kInvalidArgument, "hvd_store_connect: store is NULL");
  if (hvd::c_api::InForkedChild()) return hvd::c_api::ReportForked();
  if (auto good = hvd::c_api::CheckSeconds("hvd_store_connect: timeout_s", timeout_s); !good)
    return Report(good.error());
  auto opened =
      hvd::engine::ConnectStore(Text(address), Text(token_file), hvd::Seconds(hvd::c_api::Bounded(timeout_s)));
  if (!opened) return Report(opened.error());
  *store = new hvd_store{std::move(*opened)};
  return HVD_OK;
}

HVD_API void hvd_store_free(hvd_store* store) { delete store; }

HVD_API int hvd_store_set(hvd_store* store, const char* key, const void* value, uint64_t bytes) {
  if (store == nullptr || key == nullptr || (value == nullptr && bytes > 0))
    return Report(hvd::Code::kInvalidArgument, "hvd_store_set: an argument is NULL");
  if (hvd::c_api::InForkedChild()) return hvd::c_api::ReportForked();
  if (bytes > hvd::rendezvous::kMaxValueBytes) {
    return Report(hvd::Code::kInvalidArgument,
                  fmt::format("hvd_store_set: bytes is {}, allowed are {}", bytes, hvd::rendezvous::kMaxValueBytes));
  }
  return Report(store->store->Set(key, std::string(static_cast<const char*>(value), bytes)));
}

HVD_API int hvd_store_get(hvd_store* store, const char* key, double timeout_s, void* value, uint64_t capacity,
                          uint64_t* bytes) {
  if (store == nullptr || key == nullptr || bytes == nullptr || (value == nullptr && capacity > 0))
    return Report(hvd::Code::kInvalidArgument, "hvd_store_get: an argument is NULL");
  if (hvd::c_api::InForkedChild()) return hvd::c_api::ReportForked();
  if (auto good = hvd::c_api::CheckSeconds("hvd_store_get: timeout_s", timeout_s); !good) return Report(good.error());
  auto values = store->store->Wait({key}, hvd::Seconds(hvd::c_api::Bounded(timeout_s)));
  if (!values) return Report(values.error());
  const std::string& found = (*values)[0];
  *bytes = found.size();
  if (capacity > 0) std::memcpy(value, found.data(), std::min<uint64_t>(capacity, found.size()));
  return HVD_OK;
}

HVD_API int hvd_store_add(hvd_store* store, const char* key, int64_t delta, int64_t* value) {
  if (store == nullptr || key == nullptr || value == nullptr)
    return Report(hvd::Code::kInvalidArgument, "hvd_store_add: an argument is NULL");
  if (hvd::c_api::InForkedChild()) return hvd::c_api::ReportForked();
  auto sum = store->store->Add(key, delta);
  if (!sum) return Report(sum.error());
  *value = *sum;
  return HVD_OK;
}

}  // extern "C"
