// SPDX-License-Identifier: Apache-2.0
#pragma once
// Joining and leaving the job, and this process's place in it.

#include <chrono>
#include <cstdint>
#include <mutex>
#include <string>
#include <string_view>
#include <vector>

#include "hvd/cpp/error.hpp"
#include "hvd/cpp/names.hpp"

namespace hvd {

// A time in seconds; takes every std::chrono duration.
using seconds = std::chrono::duration<double>;

// How to join. What is left out comes from the environment (HOROVOD_RANK, HOROVOD_SIZE, HOROVOD_RENDEZVOUS_ADDR ...,
// see docs/reference/environment.md), which launchers set; with nothing set, the process is a job of size 1.
struct init_options {
  int rank = -1;
  int size = -1;
  std::string rendezvous = {};  // "host:port" or "file:///folder"
  std::string host_id = {};     // ranks with equal host_id share memory
  std::string token_file = {};
  int generation = -1;
  seconds timeout{0};                               // for all ranks to join
  std::vector<std::vector<int>> process_sets = {};  // global ranks of each; the same on every rank
  bool dynamic_process_sets = false;                // whether sets can come and go, see add_process_set()
  bool crash_handlers = true;                       // false: leave SIGSEGV and the like alone
};

// Whether init() was called and shutdown() was not.
//
//     assert(hvd::is_initialized());
[[nodiscard]] inline bool is_initialized() noexcept { return hvd_is_initialized(nullptr) != 0; }

// Version of the library, "0.30.0".
//
//     assert(hvd::version().find('.') != std::string_view::npos);
[[nodiscard]] inline std::string_view version() noexcept { return hvd_version(); }

namespace detail {

// Whether this call joined; false if that had happened before.
inline bool join_job(const init_options& options) {
  if (hvd_abi_version() != HVD_ABI_VERSION) {
    throw error(errc::failed_precondition,
                "this program was compiled for another version of libhvd than the one that is loaded: compile it again "
                "or set LD_LIBRARY_PATH to the right one");
  }
  const std::lock_guard lock(shared_state::instance().joining);
  if (is_initialized()) return false;
  std::vector<std::int32_t> sizes;
  std::vector<std::int32_t> ranks;
  ranks.reserve(1);  // not NULL, so that an empty set is what gets reported
  for (const std::vector<int>& set : options.process_sets) {
    sizes.push_back(static_cast<std::int32_t>(set.size()));
    ranks.insert(ranks.end(), set.begin(), set.end());
  }
  const auto given = [](const std::string& text) { return text.empty() ? nullptr : text.c_str(); };
  hvd_init_options c;
  hvd_init_options_default(&c);
  c.rank = options.rank;
  c.size = options.size;
  c.rendezvous = given(options.rendezvous);
  c.host_id = given(options.host_id);
  c.token_file = given(options.token_file);
  c.generation = options.generation;
  c.timeout_s = options.timeout.count();
  c.process_set_count = static_cast<std::int32_t>(sizes.size());
  c.process_set_sizes = sizes.data();
  c.process_set_ranks = ranks.data();
  c.flags = (options.crash_handlers ? 0 : HVD_INIT_NO_SIGNAL_HANDLERS) |
            (options.dynamic_process_sets ? HVD_INIT_DYNAMIC_PROCESS_SETS : 0);
  check(hvd_init(&c, nullptr));
  shared_state::instance().reset_numbers();
  return true;
}

inline int leave_job() noexcept {
  const std::lock_guard lock(shared_state::instance().leaving);
  return hvd_shutdown(nullptr);
}

inline std::int32_t query(std::int32_t what) {
  std::int32_t value = 0;
  check(hvd_query(nullptr, what, &value));
  return value;
}

}  // namespace detail

// Joins the job; returns when every rank has. Does nothing if this process has joined already, whoever did it.
//
//     hvd::init({.timeout = 20s});
//     assert(hvd::is_initialized());
inline void init(const init_options& options = {}) { detail::join_job(options); }

// Leaves the job. Operations in flight fail with shutdown_error; init() may follow. Does nothing when not initialised.
// An init() that another thread is in is given up. A process that ends leaves by itself.
//
//     hvd::shutdown();
//     assert(!hvd::is_initialized());
inline void shutdown() { detail::check(detail::leave_job()); }

// Membership in the job for the length of a scope: init(), and shutdown() at the end, also when an exception leaves it.
// If this process had joined before, the session changes nothing, neither now nor at its end.
//
//     {
//       hvd::session job({.timeout = 20s});
//       hvd::barrier();
//     }
//     assert(!hvd::is_initialized());
class session {
 public:
  explicit session(const init_options& options = {}) : joined_(detail::join_job(options)) {}
  ~session() {
    if (joined_) detail::leave_job();
  }
  session(const session&) = delete;
  session& operator=(const session&) = delete;

 private:
  bool joined_;
};

// This process's number in the job, from 0.
//
//     assert(hvd::rank() >= 0);
[[nodiscard]] inline int rank() { return detail::query(HVD_RANK); }

// Number of processes in the job.
//
//     assert(hvd::rank() < hvd::size());
[[nodiscard]] inline int size() { return detail::query(HVD_SIZE); }

// This process's number among those of its host.
//
//     assert(hvd::local_rank() < hvd::local_size());
[[nodiscard]] inline int local_rank() { return detail::query(HVD_LOCAL_RANK); }

// Number of processes on this host.
//
//     assert(hvd::local_size() <= hvd::size());
[[nodiscard]] inline int local_size() { return detail::query(HVD_LOCAL_SIZE); }

// Index of this host among the hosts that have this local rank.
//
//     assert(hvd::cross_rank() < hvd::cross_size());
[[nodiscard]] inline int cross_rank() { return detail::query(HVD_CROSS_RANK); }

// Number of hosts that have this local rank.
//
//     assert(hvd::cross_size() >= 1);
[[nodiscard]] inline int cross_size() { return detail::query(HVD_CROSS_SIZE); }

// Whether every host has the same number of processes.
//
//     assert(!hvd::is_homogeneous() || hvd::size() % hvd::local_size() == 0);
[[nodiscard]] inline bool is_homogeneous() { return detail::query(HVD_IS_HOMOGENEOUS) != 0; }

}  // namespace hvd
