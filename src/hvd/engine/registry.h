// SPDX-License-Identifier: Apache-2.0
#pragma once
// What is in flight on this rank: by name (a name may be in flight once per process set, and a group's name with one
// length, whatever its tensors are called), by buffer (a buffer that one
// operation writes may not be used by another), by handle.
//
// One operation may be under way on the fast path (fast_path.h), in none of these tables, while nothing else is in
// flight: whoever enters meanwhile waits until it is over or has entered, too. That is short.
//
// Thread safety: all functions; one mutex, held for a few lookups only. Never calls out.

#include <atomic>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <string_view>
#include <unordered_map>
#include <utility>
#include <vector>

#include "hvd/base/result.h"
#include "hvd/engine/buffers_in_use.h"
#include "hvd/engine/operation.h"

namespace hvd::engine {

struct NameEntry {
  std::string name;
  Operation* in_flight = nullptr;
  uint64_t flight = ~uint64_t{0};  // what it is in the flight recorder; with the token
};

class Registry {
 public:
  // `stamp` goes into the upper bits of handles, so that those of another engine are recognised.
  explicit Registry(uint32_t stamp) : stamp_(stamp) {}
  ~Registry();

  // A blank operation; recycled where possible.
  Operation* Make();

  // Puts the operation in flight and gives it a handle (owners: engine and handle). Fails, leaving no trace, when its
  // name or one of its buffers is in use.
  Status Enter(Operation* op);
  // With the progress token. Whether nothing is in flight; then nothing will be until LeaveFastPath or
  // EnterFromFastPath.
  bool EnterFastPath() {
    short_.store(true, std::memory_order_seq_cst);
    if (in_flight_.load(std::memory_order_seq_cst) == 0) return true;
    LeaveFastPath();
    return false;
  }
  void LeaveFastPath() { short_.store(false, std::memory_order_release); }
  // As Enter, for the one that is under way on the fast path.
  void EnterFromFastPath(Operation* op);
  // Whether anything is in flight, or waits to enter.
  bool in_use() const { return in_flight_.load(std::memory_order_relaxed) > 0; }
  // Takes name and buffers back. The handle stays.
  void Leave(Operation* op);
  // As Leave for the buffers alone: a detached operation keeps its name.
  void LeaveBuffers(Operation* op);

  // No operation of this set will come any more.
  void ForgetSet(const ProcessSet* set);

  // The operation of a handle with one more owner; nullptr if the handle is not of this engine or was released.
  Operation* Acquire(Handle handle);
  // Forgets a handle. False if there is none.
  bool Forget(Handle handle);
  void Drop(Operation* op);

  // Ids for callers that repeat the same request; equal ones get the same id.
  uint64_t Prepare(int process_set, controller::Request request, std::optional<DType> wire);
  // nullptr: no such id. Valid until the registry ends.
  struct Prepared {
    int process_set = 0;
    controller::Request request;
    std::optional<DType> wire;
  };
  const Prepared* FindPrepared(uint64_t id);

 private:
  struct Hash {
    using is_transparent = void;
    size_t operator()(std::string_view text) const { return std::hash<std::string_view>()(text); }
  };
  using Names = std::unordered_map<std::string, std::unique_ptr<NameEntry>, Hash, std::equal_to<>>;

  // With the lock.
  Status Insert(Operation* op);
  void AddInFlight(int change) {
    in_flight_.store(in_flight_.load(std::memory_order_relaxed) + change, std::memory_order_seq_cst);
  }
  Status CheckBuffer(const Operation& op, const void* begin, size_t bytes, bool writes) const;

  const uint32_t stamp_;
  std::mutex mutex_;
  std::vector<std::unique_ptr<Operation>> all_;
  std::vector<Operation*> free_;
  std::unordered_map<const ProcessSet*, Names> names_;
  struct GroupUse {
    int length = 0;
    int in_flight = 0;  // of its tensors
  };
  std::map<std::pair<const ProcessSet*, std::string>, GroupUse> groups_;
  BuffersInUse buffers_;
  using Handles = std::unordered_map<Handle, Operation*>;
  Handles handles_;
  std::vector<Handles::node_type> spare_handles_;  // memory of those that were forgotten
  std::vector<std::unique_ptr<Prepared>> prepared_;
  std::unordered_multimap<std::string, size_t> prepared_by_name_;  // indices into prepared_
  uint32_t next_handle_ = 1;
  // Each side stores its own and then reads the other's. Changed with the lock, and with the token.
  std::atomic<int> in_flight_{0};
  std::atomic<bool> short_{false};
};

}  // namespace hvd::engine
