// SPDX-License-Identifier: Apache-2.0
#pragma once
// The engine of one rank: takes submissions from any thread, moves data when somebody turns it, and completes
// operations.
//
// token    the right to turn the engine and to store into peers' memory; the waiting caller takes it, else the engine's
// own
//          thread. `OnLoop` in a comment means "holds the token".
// Thread safety: all public functions, any thread, unless said otherwise. A function called after Shutdown fails.
// Lifetime: destroy after the last call returned; completion callbacks have run when the destructor returns.

#include <atomic>
#include <condition_variable>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <set>
#include <string>
#include <thread>
#include <vector>

#include "hvd/base/config.h"
#include "hvd/engine/clock_offset.h"
#include "hvd/engine/completer.h"
#include "hvd/engine/liveness.h"
#include "hvd/engine/memory.h"
#include "hvd/engine/process_set.h"
#include "hvd/engine/recorder.h"
#include "hvd/engine/registry.h"
#include "hvd/engine/set_table.h"
#include "hvd/engine/shortcut.h"
#include "hvd/engine/stall_inspector.h"
#include "hvd/engine/stream_memory.h"
#include "hvd/engine/world.h"
#include "hvd/wire/control.h"

namespace hvd::comm::host {
struct PairOptions;
}
namespace hvd::tune {
class Tuner;
}

namespace hvd::engine {

struct Submission {
  controller::Request request;
  // Allreduce: the type as which the request's travels and is reduced, if it can be narrowed to it.
  std::optional<DType> wire;
  int process_set = 0;
  const void* input = nullptr;
  size_t input_bytes = 0;
  void* output = nullptr;
  size_t output_bytes = 0;
  AllocFunction alloc;
  DoneFunction done;
  double timeout_s = 0;
  uint64_t prepared = 0;  // id of the request, if it has one
};

class Engine final : public SetHost {
 public:
  struct Options {
    Config config;
    std::vector<std::vector<Rank>> process_sets;  // sets 1, 2, ...
    bool dynamic_sets = false;                    // sets may be added and removed
    bool own_thread = true;                       // false: only callers turn it (simulation, tests)
    bool signals = false;                         // may take signals, for the flight recorder
    ResumePolicy resume_policy{};                 // how eager this rank's sequencers are to have operations announced
  };
  // Wires an engine into a world. Fails on process sets that are not valid.
  static Result<std::unique_ptr<Engine>> Create(World world, Options options);
  ~Engine() override;

  const Layout& layout() const { return world_.layout; }
  int generation() const { return world_.generation; }
  // Whether MPI brought the ranks together or carries operations.
  bool uses_mpi() const { return world_.mpi != nullptr; }
  // Whether it can be called from several threads.
  bool mpi_threads() const { return uses_mpi() && world_.mpi->ThreadLevel() == mpi::Threads::kMultiple; }
  // Whether a peer was lost, so that nothing can succeed any more.
  bool revoked() const { return phase_.load(std::memory_order_acquire) != Phase::kWorking; }
  bool uses_shm() const { return world_.window != nullptr; }
  // Id and sorted ranks of every process set, by id.
  std::vector<std::pair<int, std::vector<Rank>>> ProcessSets() const { return sets_.Describe(); }
  // Both are called on all ranks, in the same order, and return when all have called. The new set's id.
  Result<int> AddSet(std::vector<Rank> ranks);
  Status RemoveSet(int id);

  // Starts an operation. The handle is the caller's until Forget.
  Result<Handle> Submit(Submission submission);
  // All or none: if one cannot be started, none is. They are over together, and fail together, with the first error.
  Result<std::vector<Handle>> SubmitGroup(std::vector<Submission> submissions);
  // Submits and turns the engine until it is over or the time has come. If it is over the caller owns it, and gives it
  // back by Forget(handle). If not, `op` is nullptr, since a callback may have given it back already.
  struct Ran {
    Operation* op = nullptr;
    Handle handle = 0;
  };
  Result<Ran> Run(Submission submission, Time until = Time::max());
  // As Run, for at most `wait_s` seconds (negative: without limit), where a shortcut is known. See short_way.cc.
  enum class Short {
    kNone,  // nothing happened: Run it
    kDone,  // it succeeded, and there is nothing to forget; `shape`, if not nullptr, is the result's
    kRan,   // `ran` is what Run returns
  };
  Short RunShort(const Order& order, double wait_s, Ran* ran, Shape* shape);
  // Turns or waits until the operation is over or the time has come. Whether it is over.
  bool Wait(Operation* op, Time until);
  // nullptr: no such handle. Give back with Release.
  Operation* Find(Handle handle) { return registry_.Acquire(handle); }
  void Release(Operation* op) { registry_.Drop(op); }
  bool Forget(Handle handle) { return registry_.Forget(handle); }
  // Equal requests have equal ids.
  Result<uint64_t> Prepare(int process_set, controller::Request request, std::optional<DType> wire = {});
  const Registry::Prepared* FindPrepared(uint64_t id) { return registry_.FindPrepared(id); }

  // kOk while operations can succeed; else the first cause.
  Error Health() const;
  const trace::Counters& counters() const { return recorder_.counters(); }
  // With the bytes of all ways to the peers.
  trace::Readings ReadCounters() const;

  // Says goodbye and fails what is in flight. Idempotent.
  void Shutdown();

  // For engines without a thread: moves what can be moved. True if anything did.
  bool Poll();

  Recorder& recorder() { return recorder_; }

  // What autotuning does, for tests: has the process sets that this rank sequences log these values.
  void Retune(const wire::Tuning& tuning);

 private:
  Engine(World world, Options options);
  Status CreateSets();
  // Sorts the ranks. `title` names the set in errors.
  Status CheckRanks(std::string_view title, std::vector<Rank>* ranks) const;
  Status CheckNew(std::string_view title, const std::vector<Rank>& ranks) const;
  std::unique_ptr<ProcessSet> MakeSet(std::vector<Rank> ranks);
  void ConnectByMemory(ProcessSetOptions* set);
  void ConnectByPairs(ProcessSetOptions* set);
  void ConnectByHosts(ProcessSetOptions* set, comm::host::PairOptions pairs);
  // For those that are connected by pairs: small operations are announced.
  void ConnectByMail(ProcessSetOptions* set, const comm::host::PairOptions& pairs);
  // Frees removed process sets that nobody knows any more.
  void ReclaimSets();
  void ConnectByMpi(ProcessSetOptions* set);
  bool OperatesByMpi() const { return uses_mpi() && options_.config.cpu_operations == "mpi"; }
  Result<int> ChangeSets(controller::Request request);
  // What a caller may leave out, and the spellings that mean the same.
  void FillIn(const ProcessSet* set, Submission* submission) const;
  // `set`: what there is of that id, or nullptr.
  Status Validate(const ProcessSet* set, const Submission& submission) const;
  Status ValidateRequest(const ProcessSet* set, int process_set, const controller::Request& request) const;
  Result<Operation*> Enter(Submission submission);
  // An operation with all that was asked for, in no table yet.
  Operation* MakeOperation(ProcessSet* set, Submission submission);
  // After it entered the registry.
  void PinBuffers(Operation* op);
  // Waits for one that was begun.
  Ran Await(Operation* op, Time until);
  class ShortPins;
  // With the token, for RunShort. nullptr: it cannot be done the short way.
  Shortcut* BeginShort(const Order& order, ProcessSet** set, ShortPins* pins);
  // Whether somebody else needs what it holds.
  bool MustHurry() const;
  Operation* MakeOrdinary(const Shortcut& shortcut, const Order& order, ProcessSet* set);
  // Undoes Enter.
  void Abandon(Operation* op);
  // For whoever holds the token.
  void LeaveInInbox(Operation* op);
  // Whether so many are being submitted one upon the other that this one, too, shall travel with those that follow.
  bool Gathers(const ProcessSet& set);
  // Those that were gathered go now.
  void EndGathering();
  // One more of a group is over; the last one concludes those that wait.
  void FinishInGroup(Group* group, const Error& error);
  // Tells whoever waits, now that the error, if any, is known.
  void Conclude(Operation* op, Error error);

  // SetHost.
  void Complete(Operation* op, Error error) override;
  void SendControl(Rank rank, std::span<const std::byte> message) override;
  void AskForMemory(Operation* op, size_t bytes) override;
  void GiveUp(Error error) override;
  Operation* MakeStandIn() override;
  Error ApplySetChange(Operation* op) override;
  bool HoldsBack(const Operation& op) override;
  algorithms::Table OnTuned(int set, const wire::Tuning& tuning) override;
  // The set that the operation removes; nullptr: it removes none that exists.
  ProcessSet* RemovedBy(const Operation& op) const;
  // Whether the caller's alloc function is running: then the operation is over when that has returned.
  bool LeaveToAlloc(Operation* op);
  // Tells whoever waits that the operation is over.
  // Whether its function is to be called: not if the caller of Run still waits. Before `over` is set.
  bool CallsBack(Operation* op);
  void Announce(Operation* op);

  // Turning; all OnLoop.
  bool Progress();
  bool DrainInbox();
  void BeginOnLoop(Operation* op);
  // What that sends travels together, in the loop's next turn.
  void BeginManyOnLoop(std::span<Operation* const> ops);
  void OnControl(Rank from, std::span<const std::byte> bytes);
  // Asks rank 0 for its clock, if that is worth knowing and not known yet.
  void AskForClock();
  void OnPong(Rank from, const wire::Pong& pong);
  // A message for a set that this rank is about to make.
  void KeepEarly(Rank from, std::span<const std::byte> bytes);
  void SleepUntil(Time until);
  // When to look again at operations that are polled; max: there is none.
  Time NextLook(Time now);
  // Whether there is a reason to go on turning.
  bool unfinished() const { return pending_.load(std::memory_order_relaxed) > 0 || stalls_.active(); }
  void TurnUntilOver(Operation* op, Time until);
  // After that, with others of its set in flight.
  void EndMore(ProcessSet* set);
  bool ThreadMayTurn();
  bool NapForToken();
  bool ExpireOperations(Time now);
  Error DescribeTimeout(const Operation& op, const std::vector<Rank>& missing) const;

  // The token.
  bool TryToken();
  // For whom waits for the token or for an operation; false if the time came.
  bool WaitForChange(std::unique_lock<std::mutex>& lock, Time until);
  bool TakeToken(const Operation* op, Time until);
  void GiveToken();
  void ThreadMain();

  // Whether this rank is reached by a ring in shared memory, which no descriptor announces.
  bool ReachedByRing(Rank rank) const;

  // HOROVOD_AUTOTUNE; OnLoop, on rank 0. See tuning.cc.
  void StartTuning();
  void Tune(const Operation& op, const Error& error);
  void TuneShort(const Shortcut& shortcut);
  void ApplyTuner();
  void AskFor(const wire::Tuning& tuning);
  algorithms::Scope GlobalScope() const;

  // The end of a generation; all OnLoop. See end.cc.
  void NoticeChanges();
  void OnPairClosed(Rank rank, const Error& error);
  // `reason`: what is known beyond the cause; goes to all peers, cut to a bounded length.
  void Revoke(const transport::Cause& cause, std::string reason);
  bool FinishRevocation();
  Error DescribeCause() const;
  int32_t PidOf(Rank rank) const { return world_.ranks.empty() ? 0 : world_.ranks[rank].pid; }
  // What this rank's leaving does to what is in flight, and the last error of an operation, in words.
  std::string DescribeLeaving() const;
  Error LeftError(Rank rank, const std::string& reason) const;
  // `blamed`: for whose sake it left; itself if nobody's. `reason`: what that one had to say.
  void MarkLeft(Rank rank, Rank blamed, const std::string& reason);
  friend class Liveness;
  friend class StallInspector;

  World world_;
  const Options options_;
  ArenaMemory arena_;
  Registry registry_;
  SetTable sets_;
  Shortcuts shortcuts_;
  int sets_made_ = 0;
  algorithms::Table table_;
  // A rank agrees to a change of the sets only when its last one is over: see StreamMemory.
  std::mutex change_mutex_;
  StreamMemory stream_memory_;
  struct Streams {
    std::byte* announce = nullptr;
    std::byte* log = nullptr;
    size_t bytes = 0;     // of each
    bool clears = false;  // this rank, when they are given back
  };
  std::map<int, Streams> streams_;  // by the set's id
  struct EarlyMessage {
    Rank from;
    std::vector<std::byte> bytes;
  };
  std::vector<EarlyMessage> early_;
  wire::Bytes mail_buffer_;  // of a mark that is being sent
  Recorder recorder_;
  Completer completer_;
  Liveness liveness_;
  StallInspector stalls_;
  ClockOffset clock_offset_;
  std::atomic<int64_t> fusion_threshold_;  // what this rank's sequencers fuse up to
  std::unique_ptr<tune::Tuner> tuner_;     // nullptr: nothing is tuned, or not any more
  wire::Tuning tuning_;                    // as the global set's log says
  std::optional<wire::Tuning> asked_;      // what this rank asked for last

  std::mutex inbox_mutex_;
  std::vector<Operation*> inbox_;
  std::atomic<bool> inbox_full_{false};
  std::atomic<Time> submitted_last_{};
  std::atomic<int> submitted_in_a_row_{0};  // and nobody waited in between
  int gathered_ = 0;                        // begun and not sent yet. OnLoop
  bool begins_many_ = false;                // OnLoop
  std::vector<Operation*> timed_;
  std::atomic<int> pending_{0};

  std::mutex local_token_;  // where there is no window, or this rank is fenced
  std::mutex wait_mutex_;
  std::condition_variable wait_changed_;
  std::atomic<int> callers_waiting_{0};
  std::atomic<bool> thread_waiting_{false};
  std::atomic<bool> thread_naps_{false};
  std::atomic<int> op_waiters_{0};
  const Operation* turned_for_ = nullptr;  // whose caller turns the engine. OnLoop
  Time still_since_{};                     // when what is polled was last seen to move, or was not asked yet. OnLoop
  Time turned_{};                          // when a caller last looked at its time. OnLoop
  std::atomic<bool> stopping_{false};
  std::thread thread_;
  std::atomic<bool> thread_done_{false};
  int spin_limit_ = 0;
  int most_spins_ = 0;    // what it began with
  bool crowded_ = false;  // more ranks than cores: yield instead of spinning

  enum class Phase { kWorking, kRevoking, kRevoked };
  std::atomic<Phase> phase_{Phase::kWorking};
  Time revoking_since_{};
  std::string in_flight_at_end_;
  mutable std::mutex cause_mutex_;
  transport::Cause cause_;
  std::string reason_;
  std::set<Rank> left_;
  std::atomic<Rank> first_left_{-1};
  std::string first_left_reason_;
  std::string last_error_;  // of this rank's last operation; empty if that went well. OnLoop
  std::set<Rank> killed_;
  std::atomic<bool> shut_down_{false};
};

}  // namespace hvd::engine
