// SPDX-License-Identifier: Apache-2.0
#include "hvd/launch/output/repeated_traces.h"

#include <fmt/format.h>

namespace hvd::launch {
namespace {

constexpr size_t kMostBytes = 64 << 10;  // of a traceback
constexpr size_t kMostTraces = 256;

}  // namespace

void RepeatedTraces::Take(int rank, std::string_view line, std::string* held, const Emit& emit) {
  if (held->empty() && !line.starts_with("Traceback (most recent call last)")) return emit(line);
  const bool complete = !held->empty() && !line.starts_with(' ');
  held->append(line).push_back('\n');
  if (!complete) {
    if (held->size() > kMostBytes) End(held, emit);
    return;
  }
  if (seen_.size() >= kMostTraces) seen_.clear();
  const auto [first, is_new] = seen_.emplace(*held, rank);
  // A rank that repeats itself has its reasons.
  if (is_new || first->second == rank) return End(held, emit);
  emit(fmt::format("{} (with the traceback of rank {})", line, first->second));
  held->clear();
}

void RepeatedTraces::End(std::string* held, const Emit& emit) {
  for (std::string_view rest = *held; !rest.empty();) {
    const size_t end = rest.find('\n');
    emit(rest.substr(0, end));
    rest.remove_prefix(end + 1);
  }
  held->clear();
}

}  // namespace hvd::launch
