// SPDX-License-Identifier: Apache-2.0
#include "hvd/comm/builtin/window_communicator.h"

#include <algorithm>
#include <cstring>

#include "hvd/base/prefetch.h"
#include "hvd/collective/pattern/slices.h"
#include "hvd/collective/window/chunked_scatter.h"
#include "hvd/collective/window/marks.h"
#include "hvd/collective/window/one_shot.h"
#include "hvd/comm/builtin/window_flow.h"
#include "hvd/comm/exchange_layout.h"

namespace hvd::comm::builtin {

using collective::Progress;
using collective::window::ChunkedScatter;
using collective::window::DataLocation;
using collective::window::Header;
using collective::window::kTinyBytes;
using collective::window::MarkStream;
using collective::window::PositionView;

namespace {

constexpr size_t kLine = 64;

// Whether it moves data and sums nothing: then peers may read it by CMA.
bool IsPulled(OpKind op) { return op == OpKind::kAllgather || op == OpKind::kBroadcast || op == OpKind::kAlltoall; }
// More than this the caches cannot fetch ahead at once.
constexpr size_t kMostPrepared = 1 << 10;

// By which pieces data is worked on: small ones must stay in the cache on their way through staging areas. All members
// come to the same answer.
size_t ChunkBytes(const PositionView& view, const LocationRules::Rules& rules) {
  size_t chunk = rules.direct_chunk;
  for (int m = 0; m < view.members(); ++m) {
    const DataLocation location = view.place(m).location;
    if (location == DataLocation::kCopied) chunk = rules.copied_chunk;
    if (!IsStoredOut(location)) return view.staging.chunk_bytes;
  }
  // 0: a mark says what this operation never does.
  return chunk > 0 ? chunk : view.staging.chunk_bytes;
}

// A position of the log's stream: put the mark, wait for all marks, move the data.
class MeetMachine final : public collective::Machine {
 public:
  MeetMachine(WindowCommunicator* comm, uint64_t position, const Work* work)
      : comm_(comm), position_(position), work_(work) {}

  Progress Step() override {
    if (!met_) {
      const Progress view = comm_->Meet(position_, *work_, &published_);
      if (view != Progress::kDone) return view;
      met_ = true;
      inner_ = comm_->Begin(position_, work_);
    }
    const Progress progress = inner_ == nullptr ? Progress::kDone : inner_->Step();
    if (progress == Progress::kDone) comm_->Release(position_);
    return progress;
  }

  int Damaged() const override {
    if (!met_) return comm_->Damaged(0, position_);
    return inner_ == nullptr ? -1 : inner_->Damaged();
  }
  void CollectAwaited(std::vector<int>* members) const override {
    if (inner_ != nullptr) return inner_->CollectAwaited(members);
    // Without its mark this member waits for slots that others still use.
    published_ ? comm_->CollectMissing(0, position_, members) : comm_->CollectHolders(members);
  }
  Error error() const override { return met_ ? inner_->error() : WindowCommunicator::NoStaging(); }
  int at_fault() const override { return met_ ? inner_->at_fault() : -1; }

 private:
  WindowCommunicator* comm_;
  const uint64_t position_;
  const Work* work_;
  bool published_ = false;
  bool met_ = false;
  std::unique_ptr<collective::Machine> inner_;
};

}  // namespace

WindowCommunicator::WindowCommunicator(WindowOptions options)
    : options_(std::move(options)),
      cut_({options_.staging, options_.locations}),
      stream_(options_.stream_memory, static_cast<int>(options_.locals.size()), options_.me, options_.eager_bytes),
      places_(options_.locals.size() * MarkStream::kSlots) {}

WindowCommunicator::~WindowCommunicator() {
  for (std::byte* memory : staging_) {
    if (memory != nullptr) options_.memory->Free(memory);
  }
}

std::unique_ptr<collective::Machine> WindowCommunicator::Start(uint64_t position, const Work* work) {
  return std::make_unique<MeetMachine>(this, position, work);
}

void WindowCommunicator::Retune(uint64_t from, uint64_t /*oldest*/, const algorithms::Table& table) {
  const LocationRules locations(table, stream_.members());
  Recut(from, locations.staged_chunk(), locations);
}

void WindowCommunicator::Recut(uint64_t from, size_t chunk_bytes, const LocationRules& locations) {
  const collective::window::Staging& made = options_.staging;
  collective::window::Staging staging;
  staging.chunk_bytes = chunk_bytes;
  staging.depth = std::min(made.depth, static_cast<int>(made.bytes() / chunk_bytes));
  cut_.Set(from, released_, {staging, locations});
}

Error WindowCommunicator::NoStaging() {
  return {Code::kResourceExhausted,
          "no shared memory for staging large tensors; raise HOROVOD_ARENA_BYTES or free memory"};
}

Progress WindowCommunicator::Meet(uint64_t position, const Work& work, bool* published) {
  bool moved = false;
  if (!*published) {
    if (position != next_publish_) return Progress::kWaiting;
    const Outcome outcome = Publish(0, position, 1, 0, work);
    if (outcome == Outcome::kBusy) return Progress::kWaiting;
    if (outcome == Outcome::kExhausted) return Progress::kFailed;
    *published = moved = true;
    ++next_publish_;
  }
  if (Missing(0, position) < 0) return Progress::kDone;
  return moved ? Progress::kMoved : Progress::kWaiting;
}

bool WindowCommunicator::SlotFree(uint64_t position) {
  if (position < min_released_ + MarkStream::kSlots) return true;
  uint64_t least = released_;
  for (int m = 0; m < stream_.members(); ++m) {
    if (m == stream_.me()) continue;
    const uint64_t theirs = stream_.released(m).load(std::memory_order_acquire);
    least = std::min(least, theirs <= published_ ? theirs : min_released_);
  }
  min_released_ = least;
  return position < min_released_ + MarkStream::kSlots;
}

WindowCommunicator::Outcome WindowCommunicator::Publish(uint64_t epoch, uint64_t position, uint64_t uid,
                                                        int64_t first_dim, const Work& work) {
  if (!SlotFree(position)) return Outcome::kBusy;
  Header& header = stream_.header(stream_.me(), position);
  const uint64_t mark = MarkStream::Mark(epoch, position);
  header.mark.store(0, std::memory_order_relaxed);
  stream_.counters(stream_.me(), position).echo.store(mark, std::memory_order_release);
  header.location = DataLocation::kNothing;
  if (uid != 0) {
    const Outcome outcome = ChoosePlace(position, work, header);
    if (outcome != Outcome::kPublished) return outcome;
    const bool beside = IsBesideMark(header.location) && header.location != DataLocation::kNothing;
    if (IsPulled(work.op) && !beside) header.address = Offer(position, work, header.location);
  }
  // An allreduce that was announced here in an epoch that ended before may have said that its first chunk is there.
  const bool early = header.location == DataLocation::kStaged && options_.early && work.op == OpKind::kAllreduce;
  if (collective::window::IsCopiedIn(header.location) && !early) {
    stream_.counters(stream_.me(), position).in.store(MarkStream::Count(position, 0), std::memory_order_relaxed);
  }
  header.uid = uid;
  header.first_dim = first_dim;
  header.check = header.CheckFor(mark);
  published_ = std::max(published_, position + 1);
  header.mark.store(mark, std::memory_order_release);
  options_.window->RingAll();
  return Outcome::kPublished;
}

WindowCommunicator::Outcome WindowCommunicator::ChoosePlace(uint64_t position, const Work& work, Header& header) {
  const bool brings = work.op != OpKind::kBroadcast || work.root == stream_.me();
  const size_t bytes = work.payload.bytes();
  if (!brings || bytes == 0) return Outcome::kPublished;
  for (const LocationRules::Rule& rule : cut_.At(position).locations.For(work.op).in_order) {
    if (!rule.bytes.Has(bytes)) continue;
    switch (rule.location) {
      case DataLocation::kTiny:
        header.location = DataLocation::kTiny;
        work.payload.Gather(0, bytes, header.tiny);
        return Outcome::kPublished;
      case DataLocation::kInline:
        if (work.alone && options_.early && bytes > algorithms::kMostAloneInline &&
            PlaceStaged(position, work, header) == Outcome::kPublished) {
          return Outcome::kPublished;
        }
        header.location = DataLocation::kInline;
        work.payload.Gather(0, bytes, stream_.payload(stream_.me(), position));
        return Outcome::kPublished;
      case DataLocation::kDirect:
        if (PlaceDirect(work, header)) return Outcome::kPublished;
        break;
      case DataLocation::kCopied:
        if (PlaceCopied(work, header)) return Outcome::kPublished;
        break;
      default:
        return PlaceStaged(position, work, header);
    }
  }
  return PlaceStaged(position, work, header);
}

bool WindowCommunicator::PlaceDirect(const Work& work, Header& header) const {
  const auto& pieces = work.payload.pieces();
  if (!work.direct || pieces.size() != 1 || pieces[0].converted()) return false;
  const size_t bytes = work.payload.bytes();
  const int64_t in = options_.memory->OffsetOf(pieces[0].in, bytes);
  int64_t out = in;
  if (work.op == OpKind::kAllreduce) {
    out = pieces[0].out == nullptr        ? -1
          : pieces[0].out == pieces[0].in ? in
                                          : options_.memory->OffsetOf(pieces[0].out, bytes);
  }
  if (in < 0 || out < 0) return false;
  header.location = DataLocation::kDirect;
  header.in_offset = static_cast<uint64_t>(in);
  header.out_offset = static_cast<uint64_t>(out);
  return true;
}

bool WindowCommunicator::PlaceCopied(const Work& work, Header& header) const {
  const auto& pieces = work.payload.pieces();
  if (!work.direct || pieces.size() != 1 || pieces[0].out == nullptr || pieces[0].converted()) return false;
  const int64_t out = options_.memory->OffsetOf(pieces[0].out, work.payload.bytes());
  if (out < 0) return false;
  header.location = DataLocation::kCopied;
  header.out_offset = static_cast<uint64_t>(out);
  return true;
}

WindowCommunicator::Outcome WindowCommunicator::PlaceStaged(uint64_t position, const Work& work, Header& header) {
  // The first that is free: it is in the cache if any is.
  int lane = 0;
  while (lane < kStagingLanes && staging_user_[lane] != 0 && staging_user_[lane] != position + 1) ++lane;
  if (lane == kStagingLanes) return Outcome::kBusy;
  if (staging_[lane] == nullptr) staging_[lane] = options_.memory->Allocate(options_.staging.bytes());
  if (staging_[lane] == nullptr) return Outcome::kExhausted;
  staging_user_[lane] = position + 1;
  header.location = DataLocation::kStaged;
  header.in_offset = static_cast<uint64_t>(options_.memory->OffsetOf(staging_[lane], options_.staging.bytes()));
  if (options_.early && work.op == OpKind::kAllreduce) {
    const auto first = collective::pattern::Chunk(work.payload.bytes(), cut_.At(position).staging.chunk_bytes, 0);
    work.payload.Gather(first.begin, first.size(), staging_[lane]);
    stream_.counters(stream_.me(), position).in.store(MarkStream::Count(position, 1), std::memory_order_release);
  }
  return Outcome::kPublished;
}

int WindowCommunicator::Missing(uint64_t epoch, uint64_t position) const {
  const uint64_t mark = MarkStream::Mark(epoch, position);
  for (int m = 0; m < stream_.members(); ++m) {
    if (m != stream_.me() && stream_.header(m, position).mark.load(std::memory_order_acquire) != mark) return m;
  }
  return -1;
}

void WindowCommunicator::CollectMissing(uint64_t epoch, uint64_t position, std::vector<int>* members) const {
  const uint64_t mark = MarkStream::Mark(epoch, position);
  for (int m = 0; m < stream_.members(); ++m) {
    if (stream_.header(m, position).mark.load(std::memory_order_acquire) != mark) members->push_back(m);
  }
}

void WindowCommunicator::CollectHolders(std::vector<int>* members) const {
  for (int m = 0; m < stream_.members(); ++m) {
    if (m != stream_.me() && stream_.released(m).load(std::memory_order_acquire) < released_) members->push_back(m);
  }
}

bool WindowCommunicator::Agreed(uint64_t position) const {
  const uint64_t uid = stream_.header(stream_.me(), position).uid;
  if (uid == 0) return false;
  for (int m = 0; m < stream_.members(); ++m) {
    if (stream_.header(m, position).uid != uid) return false;
  }
  return true;
}

void WindowCommunicator::PrepareFor(uint64_t position, size_t bytes) const {
  PrefetchForWrite(&stream_.header(stream_.me(), position));
  if (bytes <= kTinyBytes || bytes > kMostPrepared) return;
  const std::byte* payload = stream_.payload(stream_.me(), position);
  for (size_t at = 0; at < bytes; at += kLine) PrefetchForWrite(payload + at);
}

PositionView WindowCommunicator::ViewAt(uint64_t position) const {
  PositionView view;
  view.stream = &stream_;
  view.window = options_.window;
  view.locals = options_.locals;
  view.position = position;
  view.staging = cut_.At(position).staging;
  const auto members = static_cast<size_t>(stream_.members());
  view.places = {&places_[position % MarkStream::kSlots * members], members};
  return view;
}

PositionView WindowCommunicator::ViewFor(uint64_t position, OpKind op) const {
  PositionView view = ViewAt(position);
  view.staging.chunk_bytes = ChunkBytes(view, cut_.At(position).locations.For(op));
  return view;
}

std::unique_ptr<collective::Machine> WindowCommunicator::Begin(uint64_t position, const Work* work) {
  if (const int bad = ReadMarks(position, *work); bad >= 0) {
    return std::make_unique<collective::window::BadMark>(ViewAt(position), bad, bad);
  }
  const PositionView view = ViewFor(position, work->op);
  const bool beside_marks = collective::window::AllBesideMarks(view);
  CountFlow(*work, stream_.me(), beside_marks ? 0 : SlicedBytes(view, *work), options_.flows);
  if (beside_marks) {
    FinishBesideMarks(view, *work);
    return nullptr;
  }
  switch (work->op) {
    case OpKind::kAllreduce:
      return BeginReduce(view, work);
    case OpKind::kReducescatter:
      return std::make_unique<ChunkedScatter>(view, work->reduce_op, work->dtype, work->scale, work->member_bytes,
                                              work->result_to, &work->payload);
    default:
      return BeginPull(view, work);
  }
}

void WindowCommunicator::Finish(uint64_t position, const Work& work) {
  CountFlow(work, stream_.me(), 0, options_.flows);
  FinishBesideMarks(ViewAt(position), work);
}

void WindowCommunicator::FinishBesideMarks(const PositionView& view, const Work& work) {
  switch (work.op) {
    case OpKind::kAllreduce:
      FinishReduction(view, work);
      return;
    case OpKind::kBroadcast: {
      const auto& piece = work.payload.pieces()[0];
      if (work.root == stream_.me() && piece.out == piece.in) return;
      CopyOneShot(view, work.root, {0, piece.bytes}, piece.out);
      return;
    }
    case OpKind::kAllgather:
    case OpKind::kAlltoall: {
      if (work.result_to == nullptr) return;
      const ExchangeLayout traffic(work, stream_.me());
      for (int m = 0; m < stream_.members(); ++m) {
        CopyOneShot(view, m, traffic.Incoming(m), work.result_to + traffic.ResultAt(m));
      }
      return;
    }
    case OpKind::kReducescatter: {
      size_t begin = 0;
      for (int m = 0; m < stream_.me(); ++m) begin += work.member_bytes[m];
      ReduceOneShot(view, work.reduce_op, work.dtype, work.scale, {begin, begin + work.member_bytes[stream_.me()]},
                    work.result_to);
      return;
    }
    default:
      return;
  }
}

void WindowCommunicator::FinishReduction(const PositionView& view, const Work& work) {
  const collective::Payload& payload = work.payload;
  const bool single = payload.pieces().size() == 1 && !payload.converted();
  if (!single) scratch_.resize(std::max(scratch_.size(), payload.bytes()));
  std::byte* target = single ? payload.pieces()[0].out : scratch_.data();
  ReduceOneShot(view, work.reduce_op, work.dtype, work.scale, {0, payload.bytes()}, target);
  if (!single) payload.Scatter(0, payload.bytes(), target);
}

void WindowCommunicator::Withdraw(uint64_t position) {
  for (uint64_t& user : staging_user_) {
    if (user > position) user = 0;
  }
}

void WindowCommunicator::Release(uint64_t position) {
  for (uint64_t& user : staging_user_) {
    if (user == position + 1) user = 0;
  }
  finished_ |= 1u << (position - released_);
  if ((finished_ & 1) == 0) return;
  while (finished_ & 1) {
    finished_ >>= 1;
    ++released_;
  }
  stream_.released(stream_.me()).store(released_, std::memory_order_release);
  options_.window->RingAll();
}

}  // namespace hvd::comm::builtin
