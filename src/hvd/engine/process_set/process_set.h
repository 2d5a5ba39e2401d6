// SPDX-License-Identifier: Apache-2.0
#pragma once
// A process set on this rank: takes operations from submission to agreement, runs them, and completes them.
//
// Two methods lead to agreement.
//
// announced  Each member publishes marks for what it wants next in the announcement stream; equal marks at a position
//            are the agreement. Members that share memory read each other's marks there, without a message. Other
//            members send them to each other in messages, for small operations only, with the data: one message each
//            way.
// sequenced  Members send requests to the lowest member (the sequencer), which answers with the log.
//
// A member that wants something that the stream cannot express (a plan that is not known yet) publishes a void mark and
// is sequenced from then on. Void or different marks at a position close the epoch for all members at that position:
// everything announced from there on goes to the sequencer. When nothing is left half-ready the sequencer logs
// "resume", which opens the next epoch. A member whose request at the sequencer was not executed before "resume"
// publishes a void mark first. So an operation never waits for one method on one rank and for the other on another rank
// for ever.
//
// A mark message may come later than what the sequencer did because of it: log entries from "resume" on wait until the
// epoch before it has ended on this member, too. Between members that exchange messages, leaving the stream and coming
// back costs messages, so the sequencer resumes only when that is worth it (resume_policy.h), and a set begins with its
// stream closed.
//
// Thread safety: call with the progress token.

#include <deque>
#include <map>
#include <memory>
#include <optional>
#include <set>
#include <string_view>
#include <unordered_map>
#include <vector>

#include "hvd/comm/builtin/message_announcer.h"
#include "hvd/comm/builtin/window_communicator.h"
#include "hvd/controller/plan_book.h"
#include "hvd/controller/sequencer.h"
#include "hvd/engine/fast_path_cache.h"
#include "hvd/engine/operation.h"
#include "hvd/engine/process_set/operation_stages.h"
#include "hvd/engine/process_set/result_size.h"
#include "hvd/engine/process_set/resume_policy.h"
#include "hvd/engine/recorder.h"

namespace hvd::engine {

// What a process set needs of its engine.
class ProcessSetDelegate {
 public:
  virtual ~ProcessSetDelegate() = default;
  // The operation is over; `error` with kOk means success.
  virtual void Complete(Operation* op, Error error) = 0;
  virtual void SendControl(Rank rank, std::span<const std::byte> message) = 0;
  // Has the operation's alloc function called elsewhere; op->allocated turns kAnswered when it returned.
  virtual void AskForMemory(Operation* op, size_t bytes) = 0;
  // This rank cannot go on (no memory for what all agreed to do).
  virtual void GiveUp(Error error) = 0;
  // An operation that nobody on this rank asked for, and that nobody will hear of.
  virtual Operation* MakeStandIn() = 0;
  // A change of the process sets was agreed on.
  virtual Error ApplySetChange(Operation* op) = 0;
  // Whether the others may not hear of it yet: it removes a process set whose operations are not over here. Once they
  // may, that set is closed.
  virtual bool IsPostponed(const Operation& op) = 0;
  // Applies what is this rank's own of a change that the log of the set says; the sizes by which data moves from there
  // on.
  virtual algorithms::Table OnTuned(int set, const wire::Tuning& tuning) = 0;
};

struct ProcessSetOptions {
  int id = 0;
  int serial = 0;           // as `id`, but never given out again; messages carry it
  std::vector<Rank> ranks;  // sorted
  int me = -1;              // member index; -1: this rank is no member
  // One of the two, or neither: always sequenced.
  std::unique_ptr<comm::builtin::WindowCommunicator> announce;
  std::unique_ptr<comm::builtin::MessageAnnouncer> messages;
  std::unique_ptr<comm::Communicator> log;
  controller::SequencerOptions sequencer;
  ResumePolicy resume_policy;  // the sequencer's, by mark message
  ProcessSetDelegate* host = nullptr;
  Recorder* recorder = nullptr;
};

class ProcessSet {
 public:
  explicit ProcessSet(ProcessSetOptions options);
  ~ProcessSet();

  int id() const { return options_.id; }
  int serial() const { return options_.serial; }
  const std::vector<Rank>& ranks() const { return options_.ranks; }
  int size() const { return static_cast<int>(options_.ranks.size()); }
  bool included() const { return options_.me >= 0; }
  // Whether marks come by way of third members: see MessageAnnouncer::relays_marks.
  bool relays_marks() const { return options_.messages != nullptr && options_.messages->relays_marks(); }
  // Whether its data moves through shared memory.
  bool by_memory() const { return options_.announce != nullptr; }
  // The names of its activities in a timeline; nullptr for a set of one member, which moves no data.
  const comm::ActivityNames* activities() const {
    if (by_memory()) return &options_.announce->activities();
    return options_.log != nullptr ? &options_.log->activities() : nullptr;
  }
  // Whether what is submitted now is agreed on by announcement there, if its plan is known.
  bool announces_in_memory() const { return epoch_.announcing && by_memory(); }
  // Whether something runs that must be looked at again and again.
  bool polled() const { return options_.log != nullptr && options_.log->polled(); }
  // Whether a mark in the announcement stream can say all about it.
  static bool Announces(const controller::Signature& signature);
  // Member index of a global rank; -1 if it is no member.
  int MemberOf(Rank rank) const;

  void Begin(Operation* op);
  // Moves what can be moved; false if nothing could.
  bool Step();
  // Of that, agrees on what was announced and ends what is small. `left`: whether anything announced is not agreed on.
  bool StepMarks(bool* left);
  // From any thread.
  bool busy() const { return in_flight_.load(std::memory_order_acquire) > 0; }

  // the fast path, for an operation that is nowhere else; see fast_path_cache.h. Whether it can be taken: nothing is in
  // flight, and the plan is known. Finds its uid.
  bool ReadyFor(FastPathEntry* entry);
  // Puts the mark. False: not now, and nothing happened.
  bool BeginFastPath(const FastPathEntry& entry);
  // Finishes, if all marks are there and agree and the data is beside them. Of larger data this member's slices are
  // reduced then, and it is finished when all peers have done as much.
  enum class FastPathStep { kDone, kReduced, kWaiting, kOrdinary };
  FastPathStep StepFastPath(FastPathEntry* entry);
  // Of the one that was done last: its position, and the member that was waited for.
  uint64_t LastFastPathPosition() const { return epoch_.head - 1; }
  Rank LastOfFastPath() const { return options_.ranks[epoch_.head <= epoch_.late_below ? epoch_.late : options_.me]; }
  // It goes on as an ordinary operation that was announced where the short one was, and is as far as that.
  void AdoptFastPath(Operation* op, const FastPathEntry& entry);

  // Messages.
  void OnRequest(int member, controller::Request request);
  void OnReady(int member, uint64_t uid, int64_t first_dim);
  void OnMarks(int member, const wire::MarkMessage& message);
  void OnStreamEnd(int member, const wire::StreamEnd& end) { stream_ends_[member] = end; }
  // This rank leaves: tells the members how far it has come.
  void SendStreamEnd();
  void OnLog(uint64_t first_position, std::vector<controller::LogEntry> entries);
  // Sequencer: appends what is decided, tells everybody. False if there was nothing.
  bool FlushLog();
  // Sequencer: what it fuses up to. On the other members this does nothing.
  void SetFusionThreshold(int64_t bytes) {
    if (sequencer_ != nullptr) sequencer_->SetFusionThreshold(bytes);
  }

  // Sequencer: logs these values as soon as they can change. On the other members this does nothing. See
  // process_set_tuned.cc.
  void Tune(const wire::Tuning& wanted);
  // Of a set that is new.
  void BeginTuned(const algorithms::Table& table);

  // Gives the user back an operation that is not agreed on yet; it goes on with a copy. False if it runs already.
  bool Detach(Operation* op);
  // Members that the operation waits for, for error texts.
  std::vector<Rank> MissingFor(const Operation& op) const;
  // Operations that are not over, and whom each waits for as far as this rank knows; on the sequencer also those that
  // only others submitted.
  struct Wait {
    const Operation* op = nullptr;  // nullptr: not submitted here; then the next two tell
    std::string name;
    const controller::Signature* signature = nullptr;  // of some member; nullptr: a join. Until the next message
    wire::Waiting::Stage stage = wire::Waiting::Stage::kAsked;
    std::vector<Rank> missing;
  };
  std::vector<Wait> CollectWaits() const;
  // Writes into the flight recorder whom each operation waits for.
  void RecordMissing() const;
  // Ends the generation if this set waits for a mark that is damaged.
  void CheckMarks();
  // Adds the ranks that anything in flight waits for.
  void CollectAwaited(std::set<Rank>* ranks) const;

  // A member said goodbye: what it has not agreed to will never happen; what it agreed to goes on. Only the sequencer
  // knows which is which for operations that were sent to it: it logs the end of those that lack the leaver.
  void OnLeft(int member, const Error& error);
  // While closed, it takes no operations: this rank has told the others that the set may be removed.
  void Close(bool closed) { closed_ = closed; }
  // Ends everything in flight; nothing may write any more.
  void FailAll(const Error& error);
  // Name and kind of something in flight, for reports; empty if idle.
  std::string DescribeInFlight() const;

 private:
  using Running = RunningOperations;

  void PrepareWork(Operation* op);
  // The short operation is over.
  void LeaveFastPathPosition(const FastPathEntry& entry);
  // Whether it goes by announcement, where there is an epoch and its plan is known.
  bool CanAnnounce(const Operation& op) const;
  // By mark message: whether all marks at a position bring as much data as they say. False: gave up.
  bool CheckMessages(const Operation& op, uint64_t position);
  // By mark message, after a member left: how many of the announced operations it has agreed to. They go on.
  size_t AgreedByLeaver(int member) const;
  // Ends announcing for all members: the stream cannot express what comes next.
  void StopAnnouncing();
  // Takes part, for a member that has joined, in what the others agreed on.
  Operation* StandIn(const controller::Plan& plan);
  void BeginJoin(Operation* op);
  void FinishJoin(int last_member);
  void FinishJoinIfIdle();
  void FinishAlone(Operation* op);
  // Starts the agreement by the method that fits.
  void Start(Operation* op);
  // What was held back and need not be any more. False if there was nothing.
  bool StartHeld();
  void Tell(Operation* op);
  // Sequencer: a member wants the operation of this name.
  void HearOf(std::string_view name, Rank rank);
  bool PublishMarks();
  bool DecideMarks();
  void CloseEpoch();
  void Resume(uint64_t epoch);
  // The sequencer logged something for the time before this epoch, having seen the last one's end: sees it, too. False:
  // gave up.
  bool ReachClosed(uint64_t epoch);
  // Whether it resumes announcing and this rank does not know the end of the epoch before it yet.
  bool WaitsForMarks(const controller::LogEntry& entry);
  // The entries that waited, as far as they need not any more. False: none.
  bool ApplyKept();
  // Sequencer: whether to log "resume" behind these entries.
  bool ShallResume(const std::vector<controller::LogEntry>& entries);
  // Sequencer: whether what is ready waits for more, because small ones are on their way.
  bool ShouldBatch() const;
  void AppendLog(std::vector<controller::LogEntry> entries);
  // Sequencer, after a member left: the end of everything that is not complete.
  std::vector<controller::LogEntry> LostEntries() const;
  void ApplyEntry(const controller::LogEntry& entry);
  void Execute(const controller::LogEntry& entry);
  void ApplyTuning(const controller::LogEntry& entry);
  // Sequencer: whether the values that are wanted can be logged now.
  bool CanTune() const;
  void Forget(const controller::LogEntry& entry);
  // What one member does alone, when its result has its memory.
  void MoveAlone(Operation* op);
  // Sizes the result and finds memory for it. False: it was asked for, and the operation cannot start yet.
  bool PrepareResult(Operation* op, const std::vector<int64_t>& rows);
  // What the marks say, as Execution::first_dims.
  std::vector<int64_t> AnnouncedRows(OpKind op, uint64_t position) const;
  // Gives up, and returns false, if the members cannot bring these `rows`, which are as Execution::first_dims.
  bool CheckRows(std::string_view name, const controller::Signature& own, const std::vector<int64_t>& rows);
  void StartAnnounced(Operation* op, const std::vector<int64_t>& rows, uint64_t position);
  static Running Announced(Operation* op, uint64_t position, std::unique_ptr<collective::Machine> machine);
  bool StartQueued();
  bool StepAllocating();
  bool StepRunning();
  void Finish(Operation* op, Error error);
  void GiveUp(Error error);
  void GiveUpDamaged(int member);
  bool sequencer_here() const { return options_.me == 0; }

  ProcessSetOptions options_;
  comm::Announcer* const announcer_;  // options_.announce or options_.messages
  controller::PlanBook book_;
  std::unique_ptr<controller::Sequencer> sequencer_;  // on the lowest member only
  bool log_dirty_ = false;
  std::optional<wire::Tuning> wanted_;  // on the sequencer: not logged yet
  uint64_t log_length_ = 0;
  std::deque<controller::LogEntry> kept_;  // from a "resume" on that is to wait

  EpochState epoch_;
  OperationStages stages_;
  uint64_t next_log_start_ = 0;  // position of the log's stream
  std::atomic<int> in_flight_{0};
  bool gave_up_ = false;
  bool closed_ = false;
  JoinState join_;
  Error left_{Code::kOk, {}, -1};
  std::map<int, wire::StreamEnd> stream_ends_;  // members that are about to leave, by mark message
};

}  // namespace hvd::engine
