// SPDX-License-Identifier: Apache-2.0
#pragma once
// Operations on several ranges as a whole: all or none of a group is done, and all of it is over at the same time.
//
// Group: a range of contiguous ranges, which may differ in size but not in type: std::vector<std::vector<float>>,
// std::array<std::span<float>, 3>, a view that makes spans. Every rank gives groups of the same length. A group has one
// name, from which its members' names are made as in Python. Nothing is done for an empty one. Other conventions as in
// collectives.hpp.

#include <ranges>
#include <span>
#include <type_traits>
#include <vector>

#include "hvd/cpp/buffer.hpp"
#include "hvd/cpp/element.hpp"
#include "hvd/cpp/future.hpp"
#include "hvd/cpp/request.hpp"

namespace hvd {
namespace detail {

template <readable_group R>
using group_element = std::ranges::range_value_t<std::ranges::range_reference_t<R>>;

template <readable_group R>
using group_results = std::vector<buffer<group_element<R>>>;

template <class T, readable_group R>
std::vector<std::span<T>> members_of(R&& group) {
  std::vector<std::span<T>> members;
  for (auto&& member : group) members.emplace_back(std::ranges::data(member), std::ranges::size(member));
  return members;
}

template <writable_group R>
future<void> submit_allreduces(R&& group, const reduction& how) {
  using T = group_element<R>;
  group_request<T> request(HVD_ALLREDUCE, "grouped_allreduce", members_of<T>(group), plain(how));
  return request.reduce(how).in_place().template submit<void>();
}

template <readable_group R>
future<group_results<R>> submit_allgathers(R&& group, const options& how) {
  using T = const group_element<R>;
  group_request<T> request(HVD_ALLGATHER, "grouped_allgather", members_of<T>(group), how);
  return request.template submit<group_results<R>>();
}

template <readable_group R>
future<group_results<R>> submit_reducescatters(R&& group, const reduction& how) {
  using T = const group_element<R>;
  group_request<T> request(HVD_REDUCESCATTER, "grouped_reducescatter", members_of<T>(group), plain(how));
  return request.reduce(how).template submit<group_results<R>>();
}

}  // namespace detail

// allreduce of every member, in place. Members must not share memory.
//
//     std::vector<std::vector<float>> layers{{1.0f, 2.0f}, {3.0f}};
//     hvd::grouped_allreduce(layers, {.op = hvd::op::sum, .name = "layers"});
//     assert(layers[0][1] == 2.0f * hvd::size() && layers[1][0] == 3.0f * hvd::size());
template <writable_group R>
void grouped_allreduce(R&& group, const reduction& how = {}) {
  detail::submit_allreduces(group, how).get();
}

// The same, later: one future for all.
//
//     std::vector<double> weights(4, hvd::rank()), bias(1, hvd::rank());
//     hvd::future<void> pending = hvd::grouped_allreduce_async(std::array{std::span(weights), std::span(bias)});
//     pending.get();
//     assert(weights[3] == (hvd::size() - 1) / 2.0 && bias[0] == weights[3]);
template <writable_group R>
[[nodiscard]] future<void> grouped_allreduce_async(R&& group, const reduction& how = {}) {
  return detail::submit_allreduces(group, how);
}

// allgather of every member.
//
//     const std::vector<std::vector<int>> mine{{hvd::rank()}, {1, 2, 3}};
//     const std::vector<hvd::buffer<int>> all = hvd::grouped_allgather(mine);
//     assert(all[0][1] == 1 && all[1].size() == 3u * hvd::size());
template <readable_group R>
[[nodiscard]] auto grouped_allgather(R&& group, const options& how = {}) {
  return detail::submit_allgathers(group, how).get();
}

// Later.
//
//     const std::vector<std::vector<int>> mine{{hvd::rank()}, {}};
//     auto pending = hvd::grouped_allgather_async(mine, {.name = "both"});
//     assert(pending.get().at(1).empty());
template <lasting_group R>
[[nodiscard]] auto grouped_allgather_async(R&& group, const options& how = {}) {
  return detail::submit_allgathers(group, how);
}

// reducescatter of every member.
//
//     const std::array<std::vector<float>, 2> mine{std::vector(hvd::size(), 1.0f), std::vector(2 * hvd::size(), 2.0f)};
//     const std::vector<hvd::buffer<float>> parts = hvd::grouped_reducescatter(mine);
//     assert(parts[0].size() == 1 && parts[1].size() == 2 && parts[1][1] == 2.0f);
template <readable_group R>
[[nodiscard]] auto grouped_reducescatter(R&& group, const reduction& how = {}) {
  return detail::submit_reducescatters(group, how).get();
}

// Later.
//
//     const std::vector<float> mine(hvd::size(), 1.0f);
//     auto pending = hvd::grouped_reducescatter_async(std::array{std::span(mine)}, {.op = hvd::op::sum});
//     assert(pending.get().front()[0] == hvd::size());
template <lasting_group R>
[[nodiscard]] auto grouped_reducescatter_async(R&& group, const reduction& how = {}) {
  return detail::submit_reducescatters(group, how);
}

}  // namespace hvd
