// SPDX-License-Identifier: Apache-2.0
#pragma once
// Operations that all ranks of a process set do together.
//
// Forms: a function returns when its operation is over on this rank; with `_async` it returns at once, with a future.
// Data: ranges are one-dimensional, whatever they stand for. A single number goes as a value and comes back as one.
// Names: ranks are matched by name, so they may submit in different orders. Use the same name for the same thing in
// every step: a known name costs no negotiation. Two operations in flight must not have the same name. Without a name
// operations are numbered by kind and process set; all ranks must then call them in the same order. Python makes names
// by the same rule, so ranks written in either language work together.

#include <concepts>
#include <cstddef>
#include <cstdint>
#include <mutex>
#include <ranges>
#include <string_view>

#include "hvd/cpp/buffer.hpp"
#include "hvd/cpp/element.hpp"
#include "hvd/cpp/error.hpp"
#include "hvd/cpp/future.hpp"
#include "hvd/cpp/job.hpp"
#include "hvd/cpp/names.hpp"
#include "hvd/cpp/process_set.hpp"

namespace hvd {

// What every operation takes, each with a default.
//
//     hvd::barrier({.timeout = 10s});
struct options {
  std::string_view name = {};
  process_set set = {};
  seconds timeout{0};  // for all ranks to submit; 0: HOROVOD_OP_TIMEOUT_SECONDS
};

// What reductions take. The factors multiply before and after; integers are multiplied in double precision and cut off
// toward zero.
//
//     assert(hvd::allreduce(3, {.op = hvd::op::max, .name = "most", .postscale = 2.0}) == 6);
struct reduction {
  hvd::op op = hvd::op::average;
  std::string_view name = {};
  process_set set = {};
  seconds timeout{0};
  double prescale = 1.0;
  double postscale = 1.0;
};

namespace detail {

// A request with the memory that it points to.
class request {
 public:
  request(std::int32_t kind, std::string_view kind_name, const options& how)
      : name_(kind, kind_name, how.name, how.set.id()) {
    hvd_request_default(&c_);
    c_.op = kind;
    c_.name = name_.c_str();
    c_.process_set = how.set.id();
    c_.timeout_s = how.timeout.count();
    // What Python sends where these mean nothing, in case that ranks compare them.
    c_.dtype = HVD_UINT8;
    c_.reduce_op = HVD_SUM;
    c_.shape = &count_;
    c_.ndim = 1;
  }
  request(const request&) = delete;
  request& operator=(const request&) = delete;

  template <element T>
  request& input(const T* data, std::size_t count) {
    count_ = static_cast<std::int64_t>(count);
    c_.dtype = element_type<T>;
    c_.input.data = const_cast<T*>(data);  // the C interface does not write to inputs
    c_.input.bytes = count * sizeof(T);
    return *this;
  }
  template <readable R>
  request& input(R&& range) {
    return input(std::ranges::data(range), std::ranges::size(range));
  }
  template <element T>
  request& output(T* data, std::size_t count) {
    c_.output.data = data;
    c_.output.bytes = count * sizeof(T);
    return *this;
  }
  template <readable R>
  request& output(R&& range) {
    return output(std::ranges::data(range), std::ranges::size(range));
  }
  request& scalar() {
    c_.ndim = 0;
    return *this;
  }
  request& root(int rank) {
    c_.root_rank = rank;
    return *this;
  }
  request& reduce(const reduction& how) {
    c_.reduce_op = static_cast<std::int32_t>(how.op);
    c_.prescale = how.prescale;
    c_.postscale = how.postscale;
    return *this;
  }

  void run() const { check_begun(hvd_run(nullptr, &c_, nullptr)); }

  // For outputs whose size only the operation knows.
  template <element T>
  [[nodiscard]] buffer<T> run_for_output() const {
    hvd_output output{};
    output.struct_size = sizeof output;
    check_begun(hvd_run(nullptr, &c_, &output));
    return buffer<T>::adopt(static_cast<T*>(output.data), output.bytes / sizeof(T));
  }

  template <class T>
  [[nodiscard]] future<T> submit() const {
    hvd_handle handle = 0;
    check_begun(hvd_submit(nullptr, &c_, &handle));
    return future<T>(handle);
  }

 private:
  void check_begun(int status) const {
    if (status == HVD_INVALID_ARGUMENT) name_.not_used();
    check(status);
  }

  const wire_name name_;
  std::int64_t count_ = 0;
  hvd_request c_;
};

// Plain classes, because each kind of request is made in two forms.
struct allreduce_request : request {
  explicit allreduce_request(const reduction& how)
      : request(HVD_ALLREDUCE, "allreduce", {how.name, how.set, how.timeout}) {
    reduce(how);
  }
};
struct broadcast_request : request {
  broadcast_request(int root_rank, const options& how) : request(HVD_BROADCAST, "broadcast", how) { root(root_rank); }
};
struct allgather_request : request {
  explicit allgather_request(const options& how) : request(HVD_ALLGATHER, "allgather", how) {}
};

}  // namespace detail

// ---- allreduce: combines all ranks' data, element by element, on every rank; by default to the average. Sums are made
// in rank order, so every rank and every run gets the same bits.

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
  return detail::allgather_request(how).input(values).template run_for_output<std::ranges::range_value_t<R>>();
}

// One number of each rank.
//
//     const hvd::buffer<int> ranks = hvd::allgather(hvd::rank());
//     assert(ranks[hvd::rank()] == hvd::rank());
template <element T>
[[nodiscard]] buffer<T> allgather(T value, const options& how = {}) {
  return detail::allgather_request(how).input(&value, 1).template run_for_output<T>();
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

// ---- barrier

// Returns when every rank of the set has called it.
//
//     hvd::barrier();
inline void barrier(const options& how = {}) {
  if (!how.name.empty()) return detail::request(HVD_BARRIER, "barrier", how).run();
  const std::lock_guard turn(detail::shared_state::instance().barrier_turn(how.set.id()));
  detail::request(HVD_BARRIER, "barrier", {"noname", how.set, how.timeout}).run();
}

}  // namespace hvd
