// SPDX-License-Identifier: Apache-2.0
#pragma once
// What operations take, and how that becomes requests of the C interface.

#include <cstddef>
#include <cstdint>
#include <ranges>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

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
// toward zero. `wire` is for allreduces but adasum, and equal on all ranks.
//
//     assert(hvd::allreduce(3, {.op = hvd::op::max, .name = "most", .postscale = 2.0}) == 6);
//     assert(hvd::allreduce(1.0 / 3, {.name = "third", .wire = hvd::wire::half}) == 0.333251953125);
struct reduction {
  hvd::op op = hvd::op::average;
  std::string_view name = {};
  process_set set = {};
  seconds timeout{0};
  double prescale = 1.0;
  double postscale = 1.0;
  hvd::wire wire = hvd::wire::same;
};

namespace detail {

inline options plain(const reduction& how) noexcept { return {how.name, how.set, how.timeout}; }

// A request of the C interface, without its name. The shape is the one number that `count` points to.
inline hvd_request blank(std::int32_t kind, const options& how, const std::int64_t* count) {
  hvd_request request;
  hvd_request_default(&request);
  request.op = kind;
  request.process_set = how.set.id();
  request.timeout_s = how.timeout.count();
  // What Python sends where these mean nothing, in case that ranks compare them.
  request.dtype = HVD_UINT8;
  request.reduce_op = HVD_SUM;
  request.shape = count;
  request.ndim = 1;
  return request;
}

inline void set_reduction(hvd_request& request, const reduction& how) noexcept {
  request.reduce_op = static_cast<std::int32_t>(how.op);
  request.prescale = how.prescale;
  request.postscale = how.postscale;
  request.flags = static_cast<std::int32_t>(how.wire);
}

template <element T>
void set_input(hvd_request& request, std::int64_t& shape, const T* data, std::size_t count) noexcept {
  shape = static_cast<std::int64_t>(count);
  request.dtype = element_type<T>;
  request.input.data = const_cast<T*>(data);  // the C interface does not write to inputs
  request.input.bytes = count * sizeof(T);
}

template <element T>
void set_output(hvd_request& request, T* data, std::size_t count) noexcept {
  request.output.data = data;
  request.output.bytes = count * sizeof(T);
}

// Throws the status of a call that begins an operation. These two are answers to this call's arguments, of which the
// other ranks know nothing: they use the number of an unnamed operation for the next one.
inline void check_begun(int status, const wire_name& name) {
  if (status == HVD_INVALID_ARGUMENT || status == HVD_ABORTED) name.not_used();
  check(status);
}

// One operation, with the memory that its request points to.
class request {
 public:
  request(std::int32_t kind, std::string_view kind_name, const options& how)
      : name_(kind, kind_name, how.name, how.set.id()), c_(blank(kind, how, &count_)) {
    c_.name = name_.c_str();
  }
  request(const request&) = delete;
  request& operator=(const request&) = delete;

  template <element T>
  request& input(const T* data, std::size_t count) {
    set_input(c_, count_, data, count);
    return *this;
  }
  template <readable R>
  request& input(R&& range) {
    return input(std::ranges::data(range), std::ranges::size(range));
  }
  template <element T>
  request& output(T* data, std::size_t count) {
    set_output(c_, data, count);
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
    set_reduction(c_, how);
    return *this;
  }
  // Of an alltoall. Not NULL if there are none, so that this is what gets reported.
  request& splits(std::vector<std::int32_t> splits) {
    splits_ = std::move(splits);
    splits_.reserve(1);
    c_.splits = splits_.data();
    c_.nsplits = static_cast<std::int32_t>(splits_.size());
    return *this;
  }

  void run() const { check_begun(hvd_run(nullptr, &c_, nullptr), name_); }

  // For outputs that only the operation knows.
  template <class T>
  [[nodiscard]] T run_for() const {
    hvd_output output{};
    output.struct_size = sizeof output;
    check_begun(hvd_run(nullptr, &c_, &output), name_);
    return from_output<T>::make(output);
  }

  template <class T>
  [[nodiscard]] future<T> submit() const {
    hvd_handle handle = 0;
    check_begun(hvd_submit(nullptr, &c_, &handle), name_);
    return future<T>(handle);
  }

 private:
  const wire_name name_;
  std::int64_t count_ = 0;
  std::vector<std::int32_t> splits_;
  hvd_request c_;
};

// Several operations of one kind that are over together. `T` is const where the members are not written.
template <class T>
class group_request {
 public:
  group_request(std::int32_t kind, std::string_view kind_name, std::vector<std::span<T>> members, const options& how)
      : kind_(kind), kind_name_(kind_name), how_(how), members_(std::move(members)), counts_(members_.size()) {
    for (std::size_t i = 0; i < members_.size(); ++i) {
      requests_.push_back(blank(kind, how, &counts_[i]));
      set_input(requests_[i], counts_[i], members_[i].data(), members_[i].size());
    }
  }
  group_request(const group_request&) = delete;
  group_request& operator=(const group_request&) = delete;

  group_request& in_place() {
    for (std::size_t i = 0; i < members_.size(); ++i) set_output(requests_[i], members_[i].data(), members_[i].size());
    return *this;
  }
  group_request& reduce(const reduction& how) {
    for (hvd_request& request : requests_) set_reduction(request, how);
    return *this;
  }

  // An empty group is over at once, and no other rank hears of it.
  template <class Results>
  [[nodiscard]] future<Results> submit() {
    std::vector<hvd_handle> handles(requests_.size());
    if (handles.empty()) return future<Results>(std::move(handles));
    const wire_name name(kind_ + first_group_kind, kind_name_, how_.name, how_.set.id());
    std::vector<std::string> names;
    for (std::size_t i = 0; i < requests_.size(); ++i) {
      names.push_back(name.c_str() + ("_" + std::to_string(i + 1)) + "of" + std::to_string(requests_.size()));
    }
    for (std::size_t i = 0; i < requests_.size(); ++i) requests_[i].name = names[i].c_str();
    const auto count = static_cast<std::int32_t>(requests_.size());
    check_begun(hvd_submit_group(nullptr, requests_.data(), count, handles.data()), name);
    return future<Results>(std::move(handles));
  }

 private:
  // Groups are counted apart from single operations of their kind.
  static constexpr std::int32_t first_group_kind = 1000;

  const std::int32_t kind_;
  const std::string_view kind_name_;
  const options how_;
  const std::vector<std::span<T>> members_;
  std::vector<std::int64_t> counts_;
  std::vector<hvd_request> requests_;
};

}  // namespace detail
}  // namespace hvd
