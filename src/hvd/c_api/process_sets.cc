// SPDX-License-Identifier: Apache-2.0
// Process sets: which there are, and adding and removing them while the job runs.
#include <algorithm>

#include "hvd/c_api/context.h"

using hvd::Code;
using hvd::c_api::Call;
using hvd::c_api::Report;

extern "C" {

HVD_API int hvd_process_set_count(hvd_context* ctx, int32_t* count) {
  return hvd_process_set_ids(ctx, nullptr, 0, count);
}

HVD_API int hvd_process_set_ids(hvd_context* ctx, int32_t* ids, int32_t capacity, int32_t* count) {
  if (count == nullptr || (ids == nullptr && capacity > 0))
    return Report(Code::kInvalidArgument, "hvd_process_set_ids: ids or count is NULL");
  const Call engine(ctx);
  if (!engine) return engine.Refuse();
  const auto sets = engine->ProcessSets();
  *count = static_cast<int32_t>(sets.size());
  for (int32_t i = 0; i < std::min(*count, capacity); ++i) ids[i] = sets[i].first;
  return HVD_OK;
}

HVD_API int hvd_process_set_ranks(hvd_context* ctx, int32_t id, int32_t* ranks, int32_t capacity, int32_t* size) {
  if (size == nullptr || (ranks == nullptr && capacity > 0))
    return Report(Code::kInvalidArgument, "hvd_process_set_ranks: ranks or size is NULL");
  const Call engine(ctx);
  if (!engine) return engine.Refuse();
  for (const auto& [known, members] : engine->ProcessSets()) {
    if (known != id) continue;
    *size = static_cast<int32_t>(members.size());
    for (int32_t i = 0; i < std::min(*size, capacity); ++i) ranks[i] = members[i];
    return HVD_OK;
  }
  return Report(Code::kInvalidArgument, fmt::format("there is no process set {}", id));
}

HVD_API int hvd_process_set_add(hvd_context* ctx, const int32_t* ranks, int32_t count, int32_t* id) {
  if (id == nullptr || count < 0 || (ranks == nullptr && count > 0))
    return Report(Code::kInvalidArgument, "hvd_process_set_add: ranks or id is NULL, or count negative");
  const Call engine(ctx);
  if (!engine) return engine.Refuse();
  const auto added = engine->AddSet({ranks, ranks + count});
  if (!added) return Report(added.error());
  *id = *added;
  return HVD_OK;
}

HVD_API int hvd_process_set_remove(hvd_context* ctx, int32_t id) {
  const Call engine(ctx);
  if (!engine) return engine.Refuse();
  const auto removed = engine->RemoveSet(id);
  return removed ? HVD_OK : Report(removed.error());
}

}  // extern "C"
