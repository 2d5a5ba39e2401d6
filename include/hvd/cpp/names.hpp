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

// Held while the process joins or leaves the job.
// Visible, so that all shared libraries of a process have the same one, however they are compiled. Never destroyed: an
// object with static lifetime may use it in its destructor.
[[gnu::visibility("default")]] inline std::mutex& life_mutex() {
  static auto* const mutex = new std::mutex;
  return *mutex;
}

// Counts unnamed operations per kind and process set: a rank that is in more sets than another stays in step with it.
//
// Thread safety: all functions. But threads that make unnamed operations in different orders on different ranks mix up
// whose is whose.
class [[gnu::visibility("default")]] numbering {
 public:
  static std::uint64_t next(std::int32_t kind, std::int32_t process_set) {
    numbering& self = instance();
    const std::lock_guard lock(self.mutex_);
    return self.next_[{kind, process_set}]++;
  }
  // After init all ranks count alike, also those that have just been started.
  static void reset() {
    numbering& self = instance();
    const std::lock_guard lock(self.mutex_);
    self.next_.clear();
  }

 private:
  static numbering& instance() {
    static auto* const self = new numbering;
    return *self;
  }
  std::mutex mutex_;
  std::map<std::pair<std::int32_t, std::int32_t>, std::uint64_t> next_;
};

inline std::string wire_name(std::int32_t kind, std::string_view kind_name, std::string_view name,
                             std::int32_t process_set) {
  std::string result(kind_name);
  if (name.empty()) return result.append(".noname.").append(std::to_string(numbering::next(kind, process_set)));
  return result.append(1, '.').append(name);
}

}  // namespace hvd::detail
