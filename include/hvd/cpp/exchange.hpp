// SPDX-License-Identifier: Apache-2.0
#pragma once
// Operations that give every rank something else: alltoall and reducescatter. Conventions as in collectives.hpp.

#include <concepts>
#include <cstdint>
#include <ranges>
#include <vector>

#include "hvd/cpp/buffer.hpp"
#include "hvd/cpp/element.hpp"
#include "hvd/cpp/future.hpp"
#include "hvd/cpp/request.hpp"

namespace hvd {

// What an alltoall with splits gives: all elements received, in rank order, and how many came from each rank of the
// set.
template <element T>
struct received {
  buffer<T> values;
  std::vector<int> splits;
};

namespace detail {

template <element T>
struct from_output<received<T>> {
  static received<T> make(const hvd_output& output) {
    received<T> result{from_output<buffer<T>>::make(output), {}};
    result.splits.assign(output.received_splits, output.received_splits + output.nsplits);
    return result;
  }
};

template <class R>
concept split_range = std::ranges::input_range<R> && std::convertible_to<std::ranges::range_reference_t<R>, int>;

struct alltoall_request : request {
  explicit alltoall_request(const options& how) : request(HVD_ALLTOALL, "alltoall", how) {}

  template <split_range S>
  request& divided_by(S&& counts) {
    std::vector<std::int32_t> list;
    for (auto&& count : counts) list.push_back(static_cast<std::int32_t>(count));
    return splits(std::move(list));
  }
};
struct reducescatter_request : request {
  explicit reducescatter_request(const reduction& how) : request(HVD_REDUCESCATTER, "reducescatter", plain(how)) {
    reduce(how);
  }
};

}  // namespace detail

// ---- alltoall: every rank has a part for every rank. What is received is in rank order.

// Equal parts; the size must be a multiple of the number of ranks.
//
//     std::vector<int> mine;
//     for (int to = 0; to < hvd::size(); ++to) mine.push_back(10 * hvd::rank() + to);
//     const hvd::buffer<int> all = hvd::alltoall(mine);
//     assert(all[1] == 10 + hvd::rank());          // from rank 1
template <readable R>
[[nodiscard]] buffer<std::ranges::range_value_t<R>> alltoall(R&& values, const options& how = {}) {
  return detail::alltoall_request(how).input(values).template run_for<buffer<std::ranges::range_value_t<R>>>();
}

// Parts of `splits[r]` elements for each rank r of the set. Elements after their sum are not sent.
//
//     const std::vector<float> mine(3, hvd::rank());
//     const std::array splits = hvd::rank() == 0 ? std::array{1, 2} : std::array{2, 0};   // to ranks 0 and 1
//     const auto [values, from] = hvd::alltoall(mine, splits, {.name = "shuffle"});
//     assert((from == (hvd::rank() == 0 ? std::vector{1, 2} : std::vector{2, 0})));
//     assert(values.size() == static_cast<std::size_t>(from[0] + from[1]));
template <readable R, detail::split_range S>
[[nodiscard]] received<std::ranges::range_value_t<R>> alltoall(R&& values, S&& splits, const options& how = {}) {
  detail::alltoall_request request(how);
  request.divided_by(splits).input(values);
  return request.template run_for<received<std::ranges::range_value_t<R>>>();
}

// Equal parts, later.
//
//     const std::vector<double> mine(4 * hvd::size(), hvd::rank());
//     hvd::future<hvd::buffer<double>> pending = hvd::alltoall_async(mine);
//     assert(pending.get()[4] == 1.0);
template <lasting R>
[[nodiscard]] future<buffer<std::ranges::range_value_t<R>>> alltoall_async(R&& values, const options& how = {}) {
  return detail::alltoall_request(how).input(values).template submit<buffer<std::ranges::range_value_t<R>>>();
}

// Parts by splits, later. The splits are copied.
//
//     const std::vector<int> mine(hvd::size(), hvd::rank());
//     auto pending = hvd::alltoall_async(mine, std::vector(hvd::size(), 1), {.name = "one each"});
//     assert(pending.get().splits[0] == 1);
template <lasting R, detail::split_range S>
[[nodiscard]] future<received<std::ranges::range_value_t<R>>> alltoall_async(R&& values, S&& splits,
                                                                             const options& how = {}) {
  detail::alltoall_request request(how);
  request.divided_by(splits).input(values);
  return request.template submit<received<std::ranges::range_value_t<R>>>();
}

// ---- reducescatter: an allreduce of which every rank gets its own part, in rank order. Where the size is no multiple
// of the number of ranks, the first ranks get one element more. `op` is average or sum.

//     const std::vector<float> mine{1.0f, 2.0f, 3.0f};
//     const hvd::buffer<float> part = hvd::reducescatter(mine, {.op = hvd::op::sum});
//     assert(part.size() == (hvd::rank() == 0 ? 2 : 1));
//     assert(part[0] == hvd::size() * (hvd::rank() == 0 ? 1.0f : 3.0f));
template <readable R>
[[nodiscard]] buffer<std::ranges::range_value_t<R>> reducescatter(R&& values, const reduction& how = {}) {
  return detail::reducescatter_request(how).input(values).template run_for<buffer<std::ranges::range_value_t<R>>>();
}

// Later.
//
//     const std::vector<double> mine(2 * hvd::size(), 1.0);
//     auto pending = hvd::reducescatter_async(mine, {.name = "part"});
//     assert(pending.get().size() == 2);
template <lasting R>
[[nodiscard]] future<buffer<std::ranges::range_value_t<R>>> reducescatter_async(R&& values, const reduction& how = {}) {
  return detail::reducescatter_request(how).input(values).template submit<buffer<std::ranges::range_value_t<R>>>();
}

}  // namespace hvd
