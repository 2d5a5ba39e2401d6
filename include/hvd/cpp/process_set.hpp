// SPDX-License-Identifier: Apache-2.0
#pragma once
// Process sets: operations among some of the ranks.

#include <algorithm>
#include <cstdint>
#include <string>
#include <vector>

#include "hvd/cpp/error.hpp"
#include "hvd/cpp/job.hpp"

namespace hvd {

// Names a set of ranks. The default is the set of all; others are given to init(), the same on every rank, or made by
// add_process_set().
//
//     hvd::init({.process_sets = {{0}, {1}}});
//     const auto first = hvd::process_set::of({0});
//     if (first.included()) assert(hvd::allreduce(1.0, {.op = hvd::op::sum, .set = first}) == 1.0);
//
// Lifetime: a value. It means something until remove_process_set() or shutdown(); an operation on a set that is gone
// throws argument_error. Ids of sets that were removed are used again.
class process_set {
 public:
  // All ranks.
  constexpr process_set() noexcept = default;

  // The set with this number: 0 for all ranks, then 1, 2, ... in the order given to init().
  [[nodiscard]] static constexpr process_set with_id(int id) noexcept {
    process_set set;
    set.id_ = id;
    return set;
  }

  // The set with exactly these ranks, in any order. Throws argument_error if there is none.
  [[nodiscard]] static process_set of(std::vector<int> ranks);

  [[nodiscard]] constexpr int id() const noexcept { return id_; }

  // Global ranks of the members, ascending.
  [[nodiscard]] std::vector<int> ranks() const {
    std::vector<std::int32_t> ranks(16);
    while (true) {
      std::int32_t size = 0;
      const auto capacity = static_cast<std::int32_t>(ranks.size());
      detail::check(hvd_process_set_ranks(nullptr, id_, ranks.data(), capacity, &size));
      ranks.resize(static_cast<std::size_t>(size));
      if (size <= capacity) return {ranks.begin(), ranks.end()};
    }
  }

  // Number of members.
  [[nodiscard]] int size() const {
    std::int32_t size = 0;
    detail::check(hvd_process_set_ranks(nullptr, id_, nullptr, 0, &size));
    return size;
  }

  // Whether this process is a member.
  [[nodiscard]] bool included() const { return index_of(hvd::rank()) >= 0; }

  // This process's number in the set, from 0. Throws argument_error if it is no member.
  [[nodiscard]] int rank() const {
    const int index = index_of(hvd::rank());
    if (index >= 0) return index;
    throw argument_error(errc::invalid_argument, "rank " + std::to_string(hvd::rank()) +
                                                     " is not a member of process set " + std::to_string(id_));
  }

  friend constexpr bool operator==(process_set, process_set) noexcept = default;

 private:
  [[nodiscard]] int index_of(int global_rank) const {
    const std::vector<int> members = ranks();
    const auto at = std::ranges::find(members, global_rank);
    return at == members.end() ? -1 : static_cast<int>(at - members.begin());
  }

  int id_ = 0;
};

// All process sets, that of all ranks first.
//
//     assert(hvd::process_sets().front() == hvd::process_set());
//     assert(hvd::process_sets().front().size() == hvd::size());
[[nodiscard]] inline std::vector<process_set> process_sets() {
  std::int32_t count = 0;
  detail::check(hvd_process_set_count(nullptr, &count));
  std::vector<std::int32_t> ids(static_cast<std::size_t>(count));
  detail::check(hvd_process_set_ids(nullptr, ids.data(), count, &count));
  // Another thread may have changed their number in between.
  ids.resize(std::min(ids.size(), static_cast<std::size_t>(count)));
  std::vector<process_set> sets;
  for (const std::int32_t id : ids) sets.push_back(process_set::with_id(id));
  return sets;
}

inline process_set process_set::of(std::vector<int> ranks) {
  std::ranges::sort(ranks);
  std::string text;
  for (const int rank : ranks) text.append(text.empty() ? "" : ", ").append(std::to_string(rank));
  for (const process_set set : process_sets()) {
    if (set.ranks() == ranks) return set;
  }
  throw argument_error(errc::invalid_argument, "there is no process set of ranks " + text +
                                                   ": give it to hvd::init or add it by hvd::add_process_set");
}

// Makes a set of these global ranks, in a job with init_options::dynamic_process_sets or
// HOROVOD_DYNAMIC_PROCESS_SETS=1. All ranks of the job call it, members or not, with the same ranks and in the same
// order as other changes of sets; it returns when all have. Throws argument_error if there is a set with these ranks
// already.
//
//     hvd::init({.dynamic_process_sets = true});
//     const hvd::process_set last = hvd::add_process_set({hvd::size() - 1});
//     if (last.included()) assert(hvd::allgather(hvd::rank(), {.set = last})[0] == hvd::size() - 1);
//     hvd::remove_process_set(last);
inline process_set add_process_set(const std::vector<int>& ranks) {
  const std::vector<std::int32_t> list(ranks.begin(), ranks.end());
  std::int32_t id = 0;
  detail::check(hvd_process_set_add(nullptr, list.data(), static_cast<std::int32_t>(list.size()), &id));
  detail::shared_state::instance().forget_set(id);
  return process_set::with_id(id);
}

// Removes a set, when its operations on this rank are over. All ranks of the job call it; it returns when all have.
// Throws argument_error for the set of all ranks and for one that does not exist.
//
//     hvd::init({.dynamic_process_sets = true});
//     hvd::remove_process_set(hvd::add_process_set({0}));
//     assert(hvd::process_sets().size() == 1);
inline void remove_process_set(process_set set) { detail::check(hvd_process_set_remove(nullptr, set.id())); }

}  // namespace hvd
