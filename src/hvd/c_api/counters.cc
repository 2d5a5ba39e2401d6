// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <cstring>
#include <string>

#include "hvd/c_api/argument_check.h"
#include "hvd/c_api/context.h"

using hvd::Code;
using hvd::c_api::Call;
using hvd::c_api::Report;

extern "C" {

HVD_API int hvd_get_counters(hvd_context* ctx, hvd_counters* counters) {
  if (counters == nullptr) return Report(Code::kInvalidArgument, "hvd_get_counters: counters is NULL");
  if (auto good = hvd::c_api::Check(*counters); !good) return Report(good.error());
  const Call engine(ctx);
  if (!engine) return engine.Refuse();
  const auto& now = engine->counters();
  hvd_counters full{};
  full.struct_size = counters->struct_size;
  for (const auto& kind : now.kinds) {
    full.operations += kind.completed.load() + kind.failed.load();
    full.bytes += kind.bytes.load();
  }
  full.cache_hits = now.cache_hits.load();
  full.requests = now.requests.load();
  full.fused = now.fusion_tensors.load();
  full.sleeps = now.sleeps.load();
  std::memcpy(counters, &full, std::min(counters->struct_size, sizeof full));
  return HVD_OK;
}

HVD_API int hvd_counters_text(hvd_context* ctx, int32_t format, char* text, uint64_t capacity, uint64_t* bytes) {
  if (bytes == nullptr || (text == nullptr && capacity > 0)) {
    return Report(Code::kInvalidArgument, "hvd_counters_text: text or bytes is NULL");
  }
  if (format != HVD_COUNTERS_JSON && format != HVD_COUNTERS_PROMETHEUS) {
    return Report(Code::kInvalidArgument, fmt::format("hvd_counters_text: {} is no format", format));
  }
  const Call engine(ctx);
  if (!engine) return engine.Refuse();
  const auto snapshot = engine->ReadCounters();
  const std::string full = format == HVD_COUNTERS_JSON ? ToJson(snapshot) : ToPrometheus(snapshot);
  *bytes = full.size() + 1;
  if (capacity == 0) return HVD_OK;
  const size_t kept = std::min<uint64_t>(full.size(), capacity - 1);
  std::memcpy(text, full.data(), kept);
  text[kept] = '\0';
  return HVD_OK;
}

}  // extern "C"
