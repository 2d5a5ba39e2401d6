// SPDX-License-Identifier: Apache-2.0
#pragma once
// The engine of one rank: takes submissions from any thread, moves data while a thread drives it, and completes
// operations. It composes these parts:
//
// Scheduler          Which thread drives the engine, and how threads wait; with the ProgressToken.
// Membership         Who is in the generation, and why it ended; with Liveness and StallInspector.
// ProcessSetChanges  Creates, adds and removes process sets; with ProcessSetFactory.
// Operations         Every operation from submission to completion.
// FastPath           Small operations that were done before, in one go.
// ControlMessages    What other ranks send.
// Autotuning         Sizes and waits that change while the job runs.
//
// Thread safety: all public functions, any thread, unless said otherwise. A function called after Shutdown fails.
// Lifetime: destroy after the last call returned; completion callbacks have run when the destructor returns.

#include <array>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "hvd/base/config.h"
#include "hvd/engine/autotuning.h"
#include "hvd/engine/bootstrap/world.h"
#include "hvd/engine/completer.h"
#include "hvd/engine/control_channel.h"
#include "hvd/engine/control_messages.h"
#include "hvd/engine/engine_context.h"
#include "hvd/engine/engine_progress.h"
#include "hvd/engine/fast_path.h"
#include "hvd/engine/membership/liveness.h"
#include "hvd/engine/membership/membership.h"
#include "hvd/engine/operations.h"
#include "hvd/engine/process_set/process_set_changes.h"
#include "hvd/engine/process_set/process_set_factory.h"
#include "hvd/engine/process_set/process_set_services.h"
#include "hvd/engine/process_set/set_table.h"
#include "hvd/engine/progress_token.h"
#include "hvd/engine/recorder.h"
#include "hvd/engine/scheduler.h"
#include "hvd/engine/stall/stall_inspector.h"
#include "hvd/engine/submission.h"

namespace hvd::engine {

class Engine {
 public:
  struct Options {
    Config config;
    std::vector<std::vector<Rank>> process_sets;  // sets 1, 2, ...
    bool surviving_sets = false;                  // those of an earlier generation: see ProcessSetChanges::Create
    bool dynamic_sets = false;                    // sets may be added and removed
    bool own_thread = true;                       // false: only callers drive it (simulation, tests)
    bool signals = false;                         // may take signals, for the flight recorder
    ResumePolicy resume_policy{};                 // how eager this rank's sequencers are to have operations announced
  };
  // Wires an engine into a world. Fails on process sets that are not valid.
  static Result<std::unique_ptr<Engine>> Create(World world, Options options);
  ~Engine();

  const Layout& layout() const { return world_.layout; }
  int generation() const { return world_.generation; }
  // Whether MPI brought the ranks together or carries operations.
  bool uses_mpi() const { return world_.mpi != nullptr; }
  // Whether it can be called from several threads.
  bool mpi_threads() const { return uses_mpi() && world_.mpi->ThreadLevel() == mpi::Threads::kMultiple; }
  // Whether a peer was lost, so that nothing can succeed any more.
  bool revoked() const { return membership_.revoked(); }
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
  // Submits an operation and drives the engine until it is over or the time has come. Release it by Forget.
  Result<Ran> Run(Submission submission, Time until = Time::max());
  // As Run, for at most `wait_s` seconds (negative: without limit), if the operation can take the fast path.
  FastPath::Outcome RunFastPath(const RequestView& order, double wait_s, Ran* ran, Shape* shape) {
    return fast_path_.Run(order, wait_s, ran, shape);
  }
  // Drives the engine, or waits, until the operation is over or the time has come. Returns whether it is over.
  bool Wait(Operation* op, Time until);
  // nullptr: no such handle. Give back with Release.
  Operation* Find(Handle handle) { return operations_.registry().Acquire(handle); }
  void Release(Operation* op) { operations_.registry().Drop(op); }
  bool Forget(Handle handle) { return operations_.registry().Forget(handle); }
  // Equal requests have equal ids.
  Result<uint64_t> Prepare(int process_set, controller::Request request, std::optional<DType> wire = {});
  const Registry::Prepared* FindPrepared(uint64_t id) { return operations_.registry().FindPrepared(id); }

  // kOk while operations can succeed; else the first cause.
  Error Health() const { return membership_.Health(); }
  const trace::Counters& counters() const { return recorder_.counters(); }
  // With the bytes of all transports to the peers.
  trace::CounterSnapshot ReadCounters() const;

  // Says goodbye and fails what is in flight. Idempotent.
  void Shutdown();
  // Why this rank will leave: Shutdown hands it on. Any thread.
  void NoteFailure(std::string_view text) { membership_.NoteFailure(text); }
  // Returns a code of data and its purpose that only ranks of this job can make; zeros in a job without a token. Any
  // thread.
  Result<std::array<uint8_t, 32>> Authenticate(std::span<const std::byte> purpose,
                                               std::span<const std::byte> data) const;

  // For engines without a thread: makes progress once. Returns whether anything moved.
  bool Poll() { return scheduler_.Poll(); }

  Recorder& recorder() { return recorder_; }

  // What its process sets call, for tests.
  ProcessSetServices& services() { return services_; }
  // What autotuning does, for tests: has the process sets that this rank sequences log these values.
  void Retune(const wire::Tuning& tuning);

 private:
  Engine(World world, Options options);
  // Has messages and closed connections of all ranks come here, and says to them that this rank answers.
  void ConnectPeers();
  // A set that is found while the pin lives stays in memory.
  SetTable::Pin PinSets() const { return SetTable::Pin(options_.dynamic_sets ? &sets_ : nullptr); }
  // Runs an operation of the global set that changes the process sets. The id of the set.
  Result<int> ChangeSets(controller::Request request);
  // The last steps of Shutdown, with the token; until `limit`.
  void Leave(Time limit);
  void DrainConnections();

  // In this order: a part that is destroyed later may be used by those that are destroyed before it.
  World world_;
  const Options options_;
  Recorder recorder_;
  ControlChannel control_;
  const EngineContext context_;
  ProcessSetFactory factory_;
  Completer completer_;
  Operations operations_;
  SetTable sets_;
  Membership membership_;
  Liveness liveness_;
  ProgressToken token_;
  Scheduler scheduler_;
  StallInspector stalls_;
  Autotuning tuning_;
  ProcessSetChanges changes_;
  ControlMessages messages_;
  EngineProgress progress_;
  ProcessSetServices services_;
  FastPath fast_path_;
};

}  // namespace hvd::engine
