// SPDX-License-Identifier: Apache-2.0
#pragma once
// Process sets whose members share memory. One stream of positions (collective/window/mark_stream.h); at each position
// every member puts a mark with a plan's uid and where its data is, and when all marks are there the data moves.
//
// Used in two ways. By the log (Start): the position and the uid are agreed beforehand. By announcement (Announcer): a
// member puts the mark of what it wants next, and if all put the same uid that is the
// agreement.

#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include "hvd/base/monotonic_counter.h"
#include "hvd/collective/window/mark_stream.h"
#include "hvd/collective/window/position_view.h"
#include "hvd/comm/announcer.h"
#include "hvd/comm/builtin/location_rules.h"
#include "hvd/comm/builtin/variant_selector.h"
#include "hvd/comm/by_position.h"
#include "hvd/comm/communicator.h"
#include "hvd/transport/window.h"

namespace hvd::comm::builtin {

// Arena memory as the communicator needs it; the engine brings the real one.
class StagingSource {
 public:
  virtual ~StagingSource() = default;
  // Offset of [memory, memory + bytes) in this rank's arena; negative if it is not arena memory.
  virtual int64_t OffsetOf(const void* memory, size_t bytes) const = 0;
  virtual std::byte* Allocate(size_t bytes) = 0;  // nullptr: exhausted
  virtual void Free(std::byte* memory) = 0;
};

struct WindowOptions {
  transport::Window* window = nullptr;
  StagingSource* memory = nullptr;
  std::vector<int> locals;  // window index of each member
  int me = 0;
  std::vector<PeerByteCounts*>
      flows;  // by member: what moves between it and this one is added there. Empty: nobody asks
  std::byte* stream_memory = nullptr;  // collective::window::MarkStream::Bytes(members, eager_bytes), carved
  size_t eager_bytes = 64 << 10;       // room for data beside a mark
  collective::window::Staging staging;
  bool early = false;            // the first staged chunk of an allreduce is readable as soon as its mark is
  const Clock* clock = nullptr;  // nullptr: nothing is on trial
  LocationRules locations;
};

class WindowCommunicator final : public Communicator, public Announcer {
 public:
  explicit WindowCommunicator(WindowOptions options);
  ~WindowCommunicator() override;

  std::unique_ptr<collective::Machine> Start(uint64_t position, const Work* work) override;
  void Retune(uint64_t from, uint64_t oldest, const algorithms::Table& table) override;
  const ActivityNames& activities() const override { return kShmActivities; }
  // As Retune, with these. Staging areas stay as large as they are, so of larger chunks there are fewer in one. None is
  // larger than a staging area.
  void Recut(uint64_t from, size_t chunk_bytes, const LocationRules& locations);

  Outcome Publish(uint64_t epoch, uint64_t position, uint64_t uid, int64_t first_dim, const Work& work) override;
  int Missing(uint64_t epoch, uint64_t position) const override;
  // Fetches memory that this member will write next, and that the peers have read since it was last written: the mark's
  // and that of as much data, if it is small.
  void PrepareFor(uint64_t position, size_t bytes) const;
  // For positions of the log's stream: puts the mark, unless it was, and looks for the others'. kDone: all are there.
  // Marks are put one after the other, as on every member: staging areas are taken in the order of positions. kFailed:
  // NoStaging.
  collective::Progress Meet(uint64_t position, const Work& work, bool* published);
  static Error NoStaging();
  int Damaged(uint64_t epoch, uint64_t position) const override;
  void CollectMissing(uint64_t epoch, uint64_t position, std::vector<int>* members) const override;
  void CollectHolders(std::vector<int>* members) const override;
  bool Agreed(uint64_t position) const override;
  int64_t FirstDim(int member, uint64_t position) const override { return stream_.header(member, position).first_dim; }
  // For one that waits for its first look to succeed: all of Missing, Agreed and where the data is.
  struct Look {
    enum class Data {
      kBeside,  // beside the marks: Finish
      kSliced,  // readable at once, and large: ReduceSlices
      kOther,   // not that simple, or the marks do not agree
    };
    int missing = -1;
    Data data = Data::kOther;
  };
  Look LookAt(uint64_t epoch, uint64_t position, uint64_t uid, const Work& work) {
    using collective::window::DataLocation;
    const uint64_t mark = collective::window::MarkStream::Mark(epoch, position);
    const size_t bytes = work.payload.bytes();
    bool agreed = true;
    bool beside = true;
    bool direct = true;
    bool sliced = true;
    const std::span<collective::window::Place> places = PlacesAt(position);
    for (int m = 0; m < stream_.members(); ++m) {
      collective::window::Header& shared = stream_.header(m, position);
      if (shared.mark.load(std::memory_order_acquire) != mark) return {m, Look::Data::kOther};
      const collective::window::Header header(shared);
      std::byte* const data = header.location == DataLocation::kTiny ? shared.tiny : stream_.payload(m, position);
      places[static_cast<size_t>(m)] = {.location = header.location, .source = data, .target = data};
      agreed &= header.uid == uid && header.check == header.CheckFor(mark);
      beside &= collective::window::RoomBesideMark(header.location, stream_.payload_bytes()) >= bytes;
      direct &= header.location == DataLocation::kDirect;
      sliced &= header.location >= DataLocation::kInline && header.location != DataLocation::kCopied;
    }
    if (!agreed) return {};
    if (beside) return {-1, Look::Data::kBeside};
    const bool early = options_.early && work.op == OpKind::kAllreduce;
    sliced &= direct || (early && work.payload.bytes() <= cut_.At(position).staging.chunk_bytes);
    sliced = sliced && ReadMarks(position, work) < 0;
    return {-1, sliced ? Look::Data::kSliced : Look::Data::kOther};
  }
  // What each member contributes, once ReadMarks or LookAt has read it.
  collective::window::PositionView ViewAt(uint64_t position) const;
  // Reads all members' marks. The first member whose mark this operation cannot use; -1: all can be used.
  int ReadMarks(uint64_t position, const Work& work);
  std::unique_ptr<collective::Machine> Begin(uint64_t position, const Work* work) override;
  // As Begin, where LookAt has seen that the data is beside the marks.
  void Finish(uint64_t position, const Work& work);
  // A reduction of data that LookAt has seen to be sliced: all of this member's part, at once. Its number of chunks.
  size_t ReduceSlices(uint64_t position, const Work& work);
  // After that: a member that may still store into this one's memory; -1: the result is there.
  int Storing(uint64_t position, size_t chunks) const;
  // Then: puts it where it is wanted.
  void TakeResult(uint64_t position, const Work& work) const;
  // Instead of these two: a machine that waits for the others.
  std::unique_ptr<collective::Machine> GoOn(uint64_t position, const Work* work, size_t chunks);
  // Whether peers may work on so many bytes where they lie.
  bool MayBeDirect(OpKind op, size_t bytes) const;
  void Withdraw(uint64_t position) override;
  void Release(uint64_t position) override;

 private:
  static constexpr int kStagingLanes = 4;

  // By what sizes data moves.
  struct Cut {
    collective::window::Staging staging;
    LocationRules locations;
  };

  std::span<collective::window::Place> PlacesAt(uint64_t position) {
    const auto members = static_cast<size_t>(stream_.members());
    return {&places_[position % collective::window::MarkStream::kSlots * members], members};
  }
  // With chunks as large as the marks allow.
  collective::window::PositionView ViewFor(uint64_t position, OpKind op) const;
  bool SlotFree(uint64_t position);
  Outcome ChoosePlace(uint64_t position, const Work& work, collective::window::Header& header);
  // False: the data is not in the arena, not in one piece, or of another type there.
  bool PlaceDirect(const Work& work, collective::window::Header& header) const;
  // False: its result does not go to the arena, not in one piece, or as another type.
  bool PlaceCopied(const Work& work, collective::window::Header& header) const;
  Outcome PlaceStaged(uint64_t position, const Work& work, collective::window::Header& header);
  // What a mark says as Header::address. 0 also where to fetch this member's data is not likely to be faster. See
  // window_pull.cc.
  uint64_t Offer(uint64_t position, const Work& work, collective::window::DataLocation location);
  // Whether staged data is such that the others could fetch it, if they can at all.
  bool MayBeCma(const Work& work) const;
  // An allreduce that is not beside the marks, and how its results are stored. See window_slices.cc.
  std::unique_ptr<collective::Machine> BeginReduce(const collective::window::PositionView& view, const Work* work);
  bool StoresOnTrial(const collective::window::PositionView& view, const Work& work) const;
  // Of what a member has one slice: a chunk, or all.
  static size_t SlicedBytes(const collective::window::PositionView& view, const Work& work);
  std::unique_ptr<collective::Machine> BeginPull(const collective::window::PositionView& view, const Work* work);
  void FinishBesideMarks(const collective::window::PositionView& view, const Work& work);
  void FinishReduction(const collective::window::PositionView& view, const Work& work);

  WindowOptions options_;
  ByPosition<Cut> cut_;
  collective::window::MarkStream stream_;
  // What marks said, by slot and member: a slot is put again only when this member has released it.
  std::vector<collective::window::Place> places_;
  uint64_t published_ = 0;  // positions below it have this member's mark, or had it
  uint64_t next_publish_ = 0;
  uint64_t min_released_ = 0;  // over all members, as last seen
  uint64_t released_ = 0;      // this member's
  uint32_t finished_ = 0;      // bit i: position released_ + i is finished
  std::byte* staging_[kStagingLanes] = {};
  uint64_t staging_user_[kStagingLanes] = {};  // position + 1
  std::vector<std::byte> scratch_;
  VariantSelector selector_;
};

}  // namespace hvd::comm::builtin
