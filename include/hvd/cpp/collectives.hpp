// SPDX-License-Identifier: Apache-2.0
#pragma once
// Operations that all ranks of a process set do together, and that give every rank the same. Those that give every rank
// something else are in exchange.hpp, those on lists in grouped.hpp.
//
// Forms: a function returns when its operation is over on this rank; with `_async` it returns at once, with a future.
// Data: ranges are one-dimensional, whatever they stand for. A single number goes as a value and comes back as one.
// Names: ranks are matched by name, so they may submit in different orders. Use the same name for the same thing in
// every step: a known name costs no negotiation. Two operations in flight must not have the same name. Without a name
// operations are numbered by kind and process set; all ranks must then call them in the same order. Python makes names
// by the same rule, so ranks written in either language work together.

#include <concepts>
#include <mutex>
#include <ranges>

#include "hvd/cpp/buffer.hpp"
#include "hvd/cpp/element.hpp"
#include "hvd/cpp/future.hpp"
#include "hvd/cpp/names.hpp"
#include "hvd/cpp/request.hpp"

namespace hvd {

namespace detail {

// Plain classes, because each kind of request is made in two forms.
struct allreduce_request : request {
  explicit allreduce_request(const reduction& how) : request(HVD_ALLREDUCE, "allreduce", plain(how)) { reduce(how); }
};
struct broadcast_request : request {
  broadcast_request(int root_rank, const options& how) : request(HVD_BROADCAST, "broadcast", how) { root(root_rank); }
};
struct allgather_request : request {
  explicit allgather_request(const options& how) : request(HVD_ALLGATHER, "allgather", how) {}
};

}  // namespace detail

// ---- allreduce: combines all ranks' data, element by element, on every rank; by default to the average. Sums are made
// in rank order, so every rank and every run gets the same bits. With hvd::op::adasum every range is one vector:
// equal ones are averaged, orthogonal ones added.

// In place.
//
//     std::vector<float> gradient(4, hvd::rank() + 1.0f);
//     hvd::allreduce(gradient, {.op = hvd::op::sum, .name = "gradient"});
//     assert(gradient[0] == hvd::size() * (hvd::size() + 1) / 2);
template <writable R>
void allreduce(R&& values, const reduction& how = {}) {
  detail::allreduce_request(how).input(values).output(values).run();
}

// From one range to another of the same size.
//
//     const std::array<int, 2> mine{hvd::rank(), -hvd::rank()};
//     std::array<int, 2> most{};
//     hvd::allreduce(mine, most, {.op = hvd::op::max});
//     assert(most[0] == hvd::size() - 1 && most[1] == 0);
template <readable In, writable Out>
  requires std::same_as<std::ranges::range_value_t<In>, std::ranges::range_value_t<Out>>
void allreduce(In&& in, Out&& out, const reduction& how = {}) {
  detail::allreduce_request(how).input(in).output(out).run();
}

// Of a single number.
//
//     const double loss = hvd::allreduce(2.0 * hvd::rank());
//     assert(loss == hvd::size() - 1);
template <element T>
[[nodiscard]] T allreduce(T value, const reduction& how = {}) {
  detail::allreduce_request(how).input(&value, 1).output(&value, 1).scalar().run();
  return value;
}

// In place, later. Several in flight are combined and overlap with other work.
//
//     std::vector<double> a(3, 1.0), b(5, 2.0);
//     auto first = hvd::allreduce_async(a, {.name = "a"});
//     auto second = hvd::allreduce_async(b, {.name = "b"});
//     first.get();
//     second.get();
//     assert(a[2] == 1.0 && b[4] == 2.0);
template <writable R>
[[nodiscard]] future<void> allreduce_async(R&& values, const reduction& how = {}) {
  return detail::allreduce_request(how).input(values).output(values).template submit<void>();
}

// From one range to another, later.
//
//     const std::vector<double> in(3, 1.0);
//     std::vector<double> out(3);
//     hvd::allreduce_async(in, out).get();
//     assert(out == in);
template <lasting In, writable Out>
  requires std::same_as<std::ranges::range_value_t<In>, std::ranges::range_value_t<Out>>
[[nodiscard]] future<void> allreduce_async(In&& in, Out&& out, const reduction& how = {}) {
  return detail::allreduce_request(how).input(in).output(out).template submit<void>();
}

// ---- allgather: all ranks' data, one after the other in rank order, on every rank. Sizes may differ.

//     const std::vector<int> mine(hvd::rank() + 1, hvd::rank());   // 0 | 1 1 | 2 2 2 | ...
//     const hvd::buffer<int> all = hvd::allgather(mine);
//     assert(all.size() == static_cast<std::size_t>(hvd::size() * (hvd::size() + 1) / 2));
template <readable R>
[[nodiscard]] buffer<std::ranges::range_value_t<R>> allgather(R&& values, const options& how = {}) {
  return detail::allgather_request(how).input(values).template run_for<buffer<std::ranges::range_value_t<R>>>();
}

// One number of each rank.
//
//     const hvd::buffer<int> ranks = hvd::allgather(hvd::rank());
//     assert(ranks[hvd::rank()] == hvd::rank());
template <element T>
[[nodiscard]] buffer<T> allgather(T value, const options& how = {}) {
  return detail::allgather_request(how).input(&value, 1).template run_for<buffer<T>>();
}

// Later.
//
//     const std::vector<float> mine(2, 1.0f);
//     auto pending = hvd::allgather_async(mine);
//     assert(pending.get().size() == 2u * hvd::size());
template <lasting R>
[[nodiscard]] future<buffer<std::ranges::range_value_t<R>>> allgather_async(R&& values, const options& how = {}) {
  return detail::allgather_request(how).input(values).template submit<buffer<std::ranges::range_value_t<R>>>();
}

// ---- broadcast: one rank's data on every rank. `root` is a rank of the whole job, also for a process set.

// In place: read on the root, written on the others.
//
//     std::vector<double> weights(10, hvd::rank());
//     hvd::broadcast(weights, 0);
//     assert(weights[9] == 0.0);
template <writable R>
void broadcast(R&& values, int root, const options& how = {}) {
  detail::broadcast_request(root, how).input(values).output(values).run();
}

// Of a single number.
//
//     const std::int64_t seed = hvd::broadcast(std::int64_t{hvd::rank()} + 7, 0, {.name = "seed"});
//     assert(seed == 7);
template <element T>
[[nodiscard]] T broadcast(T value, int root, const options& how = {}) {
  detail::broadcast_request(root, how).input(&value, 1).output(&value, 1).scalar().run();
  return value;
}

// In place, later.
//
//     std::array<hvd::half, 2> values{hvd::half(1.0f), hvd::half(2.0f)};
//     hvd::future<void> pending = hvd::broadcast_async(values, 0);
//     pending.get();
template <writable R>
[[nodiscard]] future<void> broadcast_async(R&& values, int root, const options& how = {}) {
  return detail::broadcast_request(root, how).input(values).output(values).template submit<void>();
}

// ---- join and barrier

// Says that this rank has no more data; returns the rank that came last, when all have said so. Until then this rank
// takes part in the others' allreduces, with elements that change nothing; other operations of theirs fail, unless
// HOROVOD_JOIN_EXTENDED=1. An average still divides by the number of all ranks.
//
//     for (int step = 0; step < 2 + hvd::rank(); ++step) {   // every rank has one batch more than the one before
//       const int busy = hvd::allreduce(1, {.op = hvd::op::sum, .name = "busy"});
//       assert(busy == hvd::size() - std::max(0, step - 1));
//     }
//     assert(hvd::join() == hvd::size() - 1);
inline int join() { return detail::request(HVD_JOIN, "join", {.name = "join"}).run_for<int>(); }

// Returns when every rank of the set has called it.
//
//     hvd::barrier();
inline void barrier(const options& how = {}) {
  if (!how.name.empty()) return detail::request(HVD_BARRIER, "barrier", how).run();
  const std::lock_guard turn(detail::shared_state::instance().barrier_turn(how.set.id()));
  detail::request(HVD_BARRIER, "barrier", {"noname", how.set, how.timeout}).run();
}

}  // namespace hvd
