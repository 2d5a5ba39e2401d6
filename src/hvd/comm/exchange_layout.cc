// SPDX-License-Identifier: Apache-2.0
#include "hvd/comm/exchange_layout.h"

namespace hvd::comm {

ExchangeLayout::ExchangeLayout(const Work& work, int me) {
  const bool all_to_all = work.op == OpKind::kAlltoall;
  size_t members = work.member_bytes.size();
  if (all_to_all) {
    for (members = 0; members * members < work.exchange_bytes.size();) ++members;
  }
  size_t result_at = 0;
  for (size_t m = 0; m < members; ++m) {
    collective::pattern::Range incoming;
    size_t brings = 0;
    if (all_to_all) {
      for (size_t to = 0; to < members; ++to) {
        const size_t bytes = work.exchange_bytes[m * members + to];
        if (static_cast<int>(to) == me) incoming = {brings, brings + bytes};
        if (static_cast<int>(m) == me) outgoing_.push_back({brings, brings + bytes});
        brings += bytes;
      }
    } else {
      brings = work.member_bytes[m];
      incoming = {0, brings};
      outgoing_.push_back({0, work.member_bytes[me]});
    }
    brings_.push_back(brings);
    incoming_.push_back(incoming);
    result_at_.push_back(result_at);
    result_at += incoming.size();
  }
}

}  // namespace hvd::comm
