// SPDX-License-Identifier: Apache-2.0
#include "hvd/engine/fast_path_cache.h"

#include <algorithm>
#include <bit>
#include <cstring>

#include "hvd/engine/process_set/process_set.h"

namespace hvd::engine {
namespace {

uint64_t WordAt(const char* text) {
  uint64_t word;
  std::memcpy(&word, text, sizeof word);
  return word;
}

// Names of a job differ at one end or the other, most of them; a collision costs time only.
uint64_t Hash(std::string_view name) {
  constexpr uint64_t kMix = 0x9e3779b97f4a7c15;
  uint64_t first = 0;
  uint64_t last = 0;
  if (name.size() >= 8) {
    first = WordAt(name.data());
    last = WordAt(name.data() + name.size() - 8);
  } else {
    std::memcpy(&first, name.data(), name.size());
  }
  uint64_t middle = 0;
  for (size_t at = 8; at + 16 <= name.size(); at += 8) middle = (middle + WordAt(name.data() + at)) * kMix;
  return ((first ^ std::rotl(last, 29) ^ middle) + name.size()) * kMix;
}

bool SameBits(double a, double b) { return std::bit_cast<uint64_t>(a) == std::bit_cast<uint64_t>(b); }

}  // namespace

std::unique_ptr<FastPathEntry>& FastPathCache::Slot(uint64_t prepared, std::string_view name) {
  const uint64_t hash = prepared != 0 ? prepared << 54 : Hash(name);
  return table_[hash >> 54];
}

bool FastPathCache::Matches(const FastPathEntry& known, const RequestView& view) {
  if (known.prepared != view.prepared) return false;
  if (view.prepared != 0) return true;
  const controller::Signature& signature = known.request.signature;
  const bool same_types = known.memory_type ? view.wire == signature.dtype && view.dtype == *known.memory_type
                                            : !view.wire && view.dtype == signature.dtype;
  return same_types && known.request.name == view.name && known.process_set == view.process_set &&
         signature.op == view.op && signature.reduce_op == view.reduce_op &&
         SameBits(signature.prescale, view.prescale) && SameBits(signature.postscale, view.postscale) &&
         std::equal(signature.shape.begin(), signature.shape.end(), view.shape.begin(), view.shape.end());
}

void FastPathCache::Learn(uint64_t prepared, int process_set, const Operation& op) {
  static_assert(kKept == 1 << (64 - 54));
  const bool scatters = op.work.op == OpKind::kReducescatter;
  if (!(scatters && op.output_given) && op.work.op != OpKind::kAllreduce) return;
  const bool in_arena = op.pinned_input && (op.pinned_output || op.output == op.input || scatters) && !op.memory_type;
  const size_t bytes = op.work.payload.bytes();
  const bool fits = op.uid != 0 && op.error.code == Code::kOk && bytes > 0 &&
                    bytes <= (in_arena ? kMostArenaBytes : kMostBytes) && op.set->by_memory() && !op.detached;
  if (!fits || !ProcessSet::Announces(op.request.signature)) return;
  if (table_.empty()) table_.resize(kKept);
  std::unique_ptr<FastPathEntry>& slot = Slot(prepared, op.request.name);
  const bool known = slot != nullptr && slot->prepared == prepared && slot->process_set == process_set &&
                     slot->serial == op.set->serial() && slot->request == op.request &&
                     slot->memory_type == op.memory_type;
  if (known) return;
  slot = std::make_unique<FastPathEntry>();
  slot->prepared = prepared;
  slot->process_set = process_set;
  slot->serial = op.set->serial();
  slot->request = op.request;
  slot->memory_type = op.memory_type;
  slot->input_bytes = op.input_bytes;
  slot->work = op.work;
  slot->output_shape = op.output_shape;
  slot->output_bytes = op.output_bytes;
}

}  // namespace hvd::engine
