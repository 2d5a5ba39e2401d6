// SPDX-License-Identifier: Apache-2.0
#pragma once
// A process set on this rank: takes operations from submission to agreement, runs them, and hands them back.
//
// Two roads lead to agreement.
//   announcing  each member puts marks for what it wants next into the announcement stream; equal marks at a position
//               are the agreement. Members that share memory read each other's marks there, without a message. Others
//               mail them to each other, for small operations only, with the data: one message each way.
//   sequenced   the lowest member (the sequencer) is told by messages, and answers with the log.
// A member that wants something the stream cannot say (a plan that is not known yet) puts a void mark and is sequenced
// from then on. Void or different marks at a position close the epoch for all members at that position: everything
// announced from there on goes to the sequencer. When nothing is left half-ready the sequencer logs "resume", which
// opens the next epoch. Whoever has told the sequencer something that was not executed before "resume" puts a void mark
// first. So an operation never waits on one road on one rank and on the other road on another rank for ever.
//
// By mail a member's mark may come later than what the sequencer did upon it: log entries from "resume" on wait until
// the epoch before it has ended here, too. Leaving the stream and coming back costs messages there, so the sequencer
// resumes only when that is worth it (resume_policy.h), and a set begins with its stream closed.
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

#include "hvd/comm/host/mail_communicator.h"
#include "hvd/comm/host/window_communicator.h"
#include "hvd/controller/plan_book.h"
#include "hvd/controller/sequencer.h"
#include "hvd/engine/operation.h"
#include "hvd/engine/recorder.h"
#include "hvd/engine/resume_policy.h"
#include "hvd/engine/shortcut.h"

namespace hvd::engine {

// What a process set needs of its engine.
class SetHost {
 public:
  virtual ~SetHost() = default;
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
  virtual bool HoldsBack(const Operation& op) = 0;
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
  std::unique_ptr<comm::host::WindowCommunicator> announce;
  std::unique_ptr<comm::host::MailCommunicator> mail;
  std::unique_ptr<comm::Communicator> log;
  controller::SequencerOptions sequencer;
  ResumePolicy resume_policy;  // the sequencer's, by mail
  SetHost* host = nullptr;
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
  // Whether marks come by way of third members: see MailCommunicator::hands_on.
  bool hands_on() const { return options_.mail != nullptr && options_.mail->hands_on(); }
  // Whether its data moves through shared memory.
  bool by_memory() const { return options_.announce != nullptr; }
  // Whether what is submitted now is agreed on by announcement there, if its plan is known.
  bool announces_in_memory() const { return announcing_ && by_memory(); }
  // Whether something runs that must be looked at again and again.
  bool polled() const { return options_.log != nullptr && options_.log->polled(); }
  // Whether the operation's result has another size than its input.
  static bool SizesResult(OpKind op);
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

  // The short way, for an operation that is nowhere else; see shortcut.h. Whether it can be taken: nothing is in
  // flight, and the plan is known. Finds its uid.
  bool ReadyFor(Shortcut* shortcut);
  // Puts the mark. False: not now, and nothing happened.
  bool BeginShort(const Shortcut& shortcut);
  // Finishes, if all marks are there and agree and the data is beside them. Of larger data this member's slices are
  // reduced then, and it is finished when all peers have done as much.
  enum class ShortStep { kDone, kReduced, kWaiting, kOrdinary };
  ShortStep StepShort(Shortcut* shortcut);
  // Of the one that was done last: its position, and the member that was waited for.
  uint64_t LastShortPosition() const { return head_ - 1; }
  Rank LastOfShort() const { return options_.ranks[head_ <= late_below_ ? late_ : options_.me]; }
  // It goes on as an ordinary operation that was announced where the short one was, and is as far as that.
  void AdoptShort(Operation* op, const Shortcut& shortcut);

  // Messages.
  void OnRequest(int member, controller::Request request);
  void OnReady(int member, uint64_t uid, int64_t first_dim);
  void OnMarks(int member, const wire::MarkMessage& message);
  void OnReached(int member, const wire::Reached& reached) { reached_[member] = reached; }
  // This rank leaves: tells the members how far it has come.
  void TellReached();
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
  struct Running {
    std::unique_ptr<collective::Machine> machine;
    std::vector<Operation*> ops;
    std::unique_ptr<comm::Work> fused;
    uint64_t position = 0;
    bool announced = false;  // its position is one of the announcement stream
  };

  void PrepareWork(Operation* op);
  // The short operation is over.
  void LeaveShortPosition(const Shortcut& shortcut);
  // Whether it goes by announcement, where there is an epoch and its plan is known.
  bool CanAnnounce(const Operation& op) const;
  // By mail: whether all marks at a position bring as much data as they say. False: gave up.
  bool CheckMail(const Operation& op, uint64_t position);
  // By mail, after a member left: how many of the announced operations it has agreed to. They go on.
  size_t AgreedByLeaver(int member) const;
  // Ends the announcing road for everybody: what comes next cannot be said there.
  void StopAnnouncing();
  // Takes part, for a member that has joined, in what the others agreed on.
  Operation* StandIn(const controller::Plan& plan);
  void BeginJoin(Operation* op);
  void FinishJoin(int last_member);
  void FinishJoinIfIdle();
  void FinishAlone(Operation* op);
  // On the road that fits.
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
  bool Gathers() const;
  void AppendLog(std::vector<controller::LogEntry> entries);
  // Sequencer, after a member left: the end of everything that is not complete.
  std::vector<controller::LogEntry> LostEntries() const;
  void ApplyEntry(const controller::LogEntry& entry);
  void Execute(const controller::LogEntry& entry);
  void ApplyTuning(const controller::LogEntry& entry);
  // Sequencer: whether the values that are wanted can be logged now.
  bool CanTune() const;
  void Forget(const controller::LogEntry& entry);
  // Of one row of the first dimension.
  static size_t RowBytes(const controller::Signature& signature);
  // What one member does alone, when its result has its memory.
  void MoveAlone(Operation* op);
  // Who gives how much to whom; `rows` as Execution::first_dims. The rows of this member's result.
  int64_t PrepareParts(Operation* op, const std::vector<int64_t>& rows);
  // Sizes the result and finds memory for it. False: it was asked for, and the operation cannot start yet.
  bool PrepareResult(Operation* op, const std::vector<int64_t>& rows);
  // Takes the memory that an alloc function gave.
  void TakeMemory(Operation* op);
  void StartAnnounced(Operation* op, uint64_t position);
  static Running Announced(Operation* op, uint64_t position, std::unique_ptr<collective::Machine> machine);
  bool StartQueued();
  bool StepAllocating();
  bool StepRunning();
  void Finish(Operation* op, Error error);
  void GiveUp(Error error);
  bool sequencer_here() const { return options_.me == 0; }

  ProcessSetOptions options_;
  comm::Announcer* const announcer_;  // options_.announce or options_.mail
  controller::PlanBook book_;
  std::unique_ptr<controller::Sequencer> sequencer_;  // on the lowest member only
  bool log_dirty_ = false;
  std::optional<wire::Tuning> wanted_;  // on the sequencer: not logged yet
  uint64_t log_length_ = 0;
  std::deque<controller::LogEntry> kept_;  // from a "resume" on that is to wait

  // Announcements.
  bool announcing_ = false;
  bool epoch_closed_ = false;
  uint64_t epoch_ = 0;
  uint64_t epoch_first_ = 0;          // position of the epoch
  uint64_t head_ = 0;                 // first position that is not decided
  uint64_t next_ = 0;                 // first position without this rank's mark
  int late_ = -1;                     // the member whose mark was missing at the last look
  uint64_t late_below_ = 0;           // at all positions below this
  std::deque<Operation*> announced_;  // at head_, head_ + 1, ...; nullptr: a void mark
  std::deque<Operation*> waiting_;    // to be announced next; nullptr: a void mark

  std::deque<Operation*> held_;  // see SetHost::HoldsBack
  std::unordered_map<std::string_view, Operation*> sent_;
  uint64_t next_log_start_ = 0;      // position of the log's stream
  std::deque<Running> queued_;       // agreed by the log, not started yet; machines are made at the start, in order
  std::vector<Running> allocating_;  // announced operations that wait for memory
  std::vector<Running> running_;
  std::atomic<int> in_flight_{0};
  bool gave_up_ = false;
  bool closed_ = false;
  Operation* joined_ = nullptr;  // this rank's join, until all have joined
  bool join_waits_ = false;      // for what was announced before it
  bool join_agreed_ = false;     // all have joined, but something of the set still runs here
  Error left_{Code::kOk, {}, -1};
  std::map<int, wire::Reached> reached_;  // members that are about to leave, by mail
};

}  // namespace hvd::engine
