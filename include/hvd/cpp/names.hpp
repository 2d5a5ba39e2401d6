// SPDX-License-Identifier: Apache-2.0
#pragma once
// Names of operations. Ranks agree by name, so equal programs must make equal names; those of Python are made by the
// same rule (python/horovod/common/names.py), so that ranks in both languages can work together.

#include <cstdint>
#include <map>
#include <mutex>
#include <string>
#include <string_view>
#include <utility>

namespace hvd::detail {

// What all parts of a process must share. Visible, so that its shared libraries have the same one, however they are
// compiled. Never destroyed: an object with static lifetime may use it in its destructor.
//
// Thread safety: all functions. But threads that make unnamed operations in different orders on different ranks mix up
// whose is whose.
class [[gnu::visibility("default")]] shared_state {
 public:
  static shared_state& instance() {
    static auto* const self = new shared_state;
    return *self;
  }

  // Unnamed operations are counted per kind and process set: a rank that is in more sets than another stays in step
  // with it.
  std::uint64_t next_number(std::int32_t kind, std::int32_t process_set) {
    const std::lock_guard lock(mutex_);
    return next_[{kind, process_set}]++;
  }
  // The operation was not begun: the other ranks use its number for the next.
  void give_back(std::int32_t kind, std::int32_t process_set, std::uint64_t number) {
    const std::lock_guard lock(mutex_);
    std::uint64_t& next = next_[{kind, process_set}];
    if (next == number + 1) next = number;
  }
  // After init all ranks count alike, also those that have just been started.
  void reset_numbers() {
    const std::lock_guard lock(mutex_);
    next_.clear();
  }

  // Whoever gets this set's id next counts alike on all members.
  void forget_set(std::int32_t process_set) {
    const std::lock_guard lock(mutex_);
    std::erase_if(next_, [process_set](const auto& entry) { return entry.first.second == process_set; });
  }

  // Unnamed barriers of a set have one name, because a known name costs no negotiation. So threads take turns.
  std::mutex& barrier_turn(std::int32_t process_set) {
    const std::lock_guard lock(mutex_);
    return barrier_turns_[process_set];
  }

  std::mutex joining;  // held by whoever joins the job
  std::mutex leaving;  // held by whoever leaves it; not the same, because leaving ends a joining that waits

 private:
  std::mutex mutex_;
  std::map<std::pair<std::int32_t, std::int32_t>, std::uint64_t> next_;
  std::map<std::int32_t, std::mutex> barrier_turns_;
};

// The name that all ranks must give: `kind.name`, or `kind.noname.N` for the N-th unnamed one.
class wire_name {
 public:
  wire_name(std::int32_t kind, std::string_view kind_name, std::string_view name, std::int32_t process_set)
      : kind_(kind), process_set_(process_set), numbered_(name.empty()), text_(kind_name) {
    if (numbered_) {
      number_ = shared_state::instance().next_number(kind, process_set);
      text_.append(".noname.").append(std::to_string(number_));
    } else {
      text_.append(1, '.').append(name);
    }
  }

  [[nodiscard]] const char* c_str() const noexcept { return text_.c_str(); }
  void not_used() const {
    if (numbered_) shared_state::instance().give_back(kind_, process_set_, number_);
  }

 private:
  std::int32_t kind_;
  std::int32_t process_set_;
  bool numbered_;
  std::uint64_t number_ = 0;
  std::string text_;
};

}  // namespace hvd::detail
