// SPDX-License-Identifier: Apache-2.0
#include "hvd/comm/mpi/steps.h"

#include <algorithm>

#include "hvd/collective/pattern/slices.h"
#include "hvd/comm/exchange_layout.h"
#include "hvd/kernel/kernel.h"

namespace hvd::comm::mpi {
namespace {

using collective::pattern::Chunk;
using collective::pattern::Range;
using collective::pattern::Slice;
using ::hvd::mpi::Handle;

// Counts and offsets of what goes to, or comes from, each member.
struct Layout {
  std::vector<int> counts;
  std::vector<int> offsets;
  std::vector<std::byte> bytes;

  void Clear() {
    counts.clear();
    offsets.clear();
    total_ = 0;
  }
  void Add(size_t count) {
    counts.push_back(static_cast<int>(count));
    offsets.push_back(static_cast<int>(total_));
    total_ += count;
  }
  void Allocate() { bytes.resize(std::max<size_t>(total_, 1)); }
  std::byte* At(int member) { return bytes.data() + offsets[member]; }

 private:
  size_t total_ = 0;
};

class Base : public Steps {
 public:
  Base(const Options& options, const Work* work) : options_(options), work_(*work) {}

 protected:
  ::hvd::mpi::Library& library() const { return *options_.library; }
  int members() const { return options_.members; }
  int me() const { return options_.me; }
  // Of every member in a round, so that all of them together stay below the limit.
  size_t share() const { return std::max<size_t>(options_.round_bytes / members() / 64 * 64, 64); }

  const Options& options_;
  const Work& work_;
  size_t round_ = 0;
};

class Barrier final : public Base {
 public:
  using Base::Base;
  // The agreement that starts it is the barrier.
  Result<bool> Next(Handle, Handle*) override { return false; }
};

class Broadcast final : public Base {
 public:
  Broadcast(const Options& options, const Work* work) : Base(options, work) {}
  Result<bool> Next(Handle comm, Handle* request) override {
    const size_t bytes = work_.payload.bytes();
    if (round_ > 0) work_.payload.Scatter(part_.begin, part_.size(), buffer_.data());
    part_ = Chunk(bytes, options_.round_bytes, round_++);
    if (part_.size() == 0) return false;
    buffer_.resize(part_.size());
    if (work_.root == me()) work_.payload.Gather(part_.begin, part_.size(), buffer_.data());
    HVD_ASSIGN_OR_RETURN(*request,
                         library().Broadcast(buffer_.data(), static_cast<int>(part_.size()), work_.root, comm));
    return true;
  }

 private:
  Range part_{0, 0};
  std::vector<std::byte> buffer_;
};

// Allgather and alltoall.
class Exchange final : public Base {
 public:
  Exchange(const Options& options, const Work* work) : Base(options, work), traffic_(*work, options.me) {
    // Everybody's, so that all have the same number of rounds.
    const auto& sizes = work->op == OpKind::kAlltoall ? work->exchange_bytes : work->member_bytes;
    for (const size_t bytes : sizes) largest_ = std::max(largest_, bytes);
  }

  Result<bool> Next(Handle comm, Handle* request) override {
    if (round_ > 0) Unpack(round_ - 1);
    if (round_ * share() >= largest_) return false;
    in_.Clear();
    for (int m = 0; m < members(); ++m) in_.Add(Chunk(traffic_.Incoming(m).size(), share(), round_).size());
    in_.Allocate();
    HVD_ASSIGN_OR_RETURN(*request, work_.op == OpKind::kAllgather ? Gather(comm) : Trade(comm));
    ++round_;
    return true;
  }

 private:
  Result<Handle> Gather(Handle comm) {
    const Range mine = Chunk(work_.payload.bytes(), share(), round_);
    out_.bytes.resize(std::max<size_t>(mine.size(), 1));
    work_.payload.Gather(mine.begin, mine.size(), out_.bytes.data());
    return library().Gather(out_.bytes.data(), static_cast<int>(mine.size()), in_.bytes.data(), in_.counts.data(),
                            in_.offsets.data(), comm);
  }
  Result<Handle> Trade(Handle comm) {
    out_.Clear();
    for (int m = 0; m < members(); ++m) out_.Add(Chunk(traffic_.Outgoing(m).size(), share(), round_).size());
    out_.Allocate();
    for (int m = 0; m < members(); ++m) {
      const Range part = Chunk(traffic_.Outgoing(m).size(), share(), round_);
      work_.payload.Gather(traffic_.Outgoing(m).begin + part.begin, part.size(), out_.At(m));
    }
    return library().Exchange(out_.bytes.data(), out_.counts.data(), out_.offsets.data(), in_.bytes.data(),
                              in_.counts.data(), in_.offsets.data(), comm);
  }
  void Unpack(size_t round) {
    if (work_.result_to == nullptr) return;
    for (int m = 0; m < members(); ++m) {
      const Range part = Chunk(traffic_.Incoming(m).size(), share(), round);
      kernel::Copy(work_.result_to + traffic_.ResultAt(m) + part.begin, in_.At(m), part.size());
    }
  }

  const ExchangeLayout traffic_;
  size_t largest_ = 0;
  Layout out_, in_;
};

// Every member's part of the input goes to it, and it reduces what it gets in the order of members.
class Reducescatter final : public Base {
 public:
  Reducescatter(const Options& options, const Work* work) : Base(options, work) {
    for (const size_t bytes : work->member_bytes) {
      begins_.push_back(begins_.empty() ? 0 : begins_.back() + last_);
      last_ = bytes;
      largest_ = std::max(largest_, bytes);
    }
  }

  Result<bool> Next(Handle comm, Handle* request) override {
    if (round_ > 0) Reduce(round_ - 1);
    if (round_ * share() >= largest_) return false;
    in_.Clear();
    out_.Clear();
    const Range mine = Chunk(work_.member_bytes[me()], share(), round_);
    for (int m = 0; m < members(); ++m) {
      in_.Add(mine.size());
      out_.Add(Chunk(work_.member_bytes[m], share(), round_).size());
    }
    in_.Allocate();
    out_.Allocate();
    for (int m = 0; m < members(); ++m) {
      const Range part = Chunk(work_.member_bytes[m], share(), round_);
      work_.payload.Gather(begins_[m] + part.begin, part.size(), out_.At(m));
    }
    HVD_ASSIGN_OR_RETURN(*request, library().Exchange(out_.bytes.data(), out_.counts.data(), out_.offsets.data(),
                                                      in_.bytes.data(), in_.counts.data(), in_.offsets.data(), comm));
    ++round_;
    return true;
  }

 private:
  void Reduce(size_t round) {
    const Range mine = Chunk(work_.member_bytes[me()], share(), round);
    if (mine.size() == 0 || work_.result_to == nullptr) return;
    std::vector<const void*> sources;
    for (int m = 0; m < members(); ++m) sources.push_back(in_.At(m));
    void* to = work_.result_to + mine.begin;
    kernel::Reduce(work_.reduce_op, work_.dtype, sources, {&to, 1}, mine.size() / SizeOf(work_.dtype), work_.scale);
  }

  std::vector<size_t> begins_;
  size_t last_ = 0;
  size_t largest_ = 0;
  Layout out_, in_;
};

// Reductions that MPI knows, by MPI_Iallreduce.
class NativeAllreduce final : public Base {
 public:
  using Base::Base;
  Result<bool> Next(Handle comm, Handle* request) override {
    if (round_ > 0) {
      Scale({1.0, work_.scale.post});
      work_.payload.Scatter(part_.begin, part_.size(), buffer_.data());
    }
    part_ = Chunk(work_.payload.bytes(), options_.round_bytes, round_++);
    if (part_.size() == 0) return false;
    buffer_.resize(part_.size());
    work_.payload.Gather(part_.begin, part_.size(), buffer_.data());
    Scale({work_.scale.pre, 1.0});
    HVD_ASSIGN_OR_RETURN(*request, library().Reduce(buffer_.data(), Count(), work_.reduce_op, work_.dtype, comm));
    return true;
  }

 private:
  int Count() const { return static_cast<int>(part_.size() / SizeOf(work_.dtype)); }
  void Scale(kernel::Scale scale) {
    if (scale.pre == 1.0 && scale.post == 1.0) return;
    const void* from = buffer_.data();
    void* to = buffer_.data();
    kernel::Reduce(ReduceOp::kSum, work_.dtype, {&from, 1}, {&to, 1}, static_cast<size_t>(Count()), scale);
  }

  Range part_{0, 0};
  std::vector<std::byte> buffer_;
};

// The others (half precision, bool, min and max of floats): member m reduces slice m of a round, in the order of
// members and in the kernels' precision, and all get all slices.
class SlicedAllreduce final : public Base {
 public:
  using Base::Base;
  Result<bool> Next(Handle comm, Handle* request) override {
    if (reducing_) {
      HVD_ASSIGN_OR_RETURN(*request, GatherSlices(comm));
      reducing_ = false;
      return true;
    }
    if (round_ > 0) work_.payload.Scatter(part_.begin, part_.size(), in_.bytes.data());
    part_ = Chunk(work_.payload.bytes(), options_.round_bytes, round_++);
    if (part_.size() == 0) return false;
    HVD_ASSIGN_OR_RETURN(*request, DealSlices(comm));
    reducing_ = true;
    return true;
  }

 private:
  Range SliceOf(int member) const {
    const size_t element = SizeOf(work_.dtype);
    const Range elements = Slice(part_.size() / element, element, members(), member);
    return {elements.begin * element, elements.end * element};
  }
  Result<Handle> DealSlices(Handle comm) {
    in_.Clear();
    out_.Clear();
    for (int m = 0; m < members(); ++m) {
      in_.Add(SliceOf(me()).size());
      out_.Add(SliceOf(m).size());
    }
    in_.Allocate();
    out_.Allocate();
    work_.payload.Gather(part_.begin, part_.size(), out_.bytes.data());
    return library().Exchange(out_.bytes.data(), out_.counts.data(), out_.offsets.data(), in_.bytes.data(),
                              in_.counts.data(), in_.offsets.data(), comm);
  }
  Result<Handle> GatherSlices(Handle comm) {
    const size_t bytes = SliceOf(me()).size();
    slice_.resize(std::max<size_t>(bytes, 1));
    if (bytes > 0) {
      std::vector<const void*> sources;
      for (int m = 0; m < members(); ++m) sources.push_back(in_.At(m));
      void* to = slice_.data();
      kernel::Reduce(work_.reduce_op, work_.dtype, sources, {&to, 1}, bytes / SizeOf(work_.dtype), work_.scale);
    }
    in_.Clear();
    for (int m = 0; m < members(); ++m) in_.Add(SliceOf(m).size());
    in_.Allocate();
    return library().Gather(slice_.data(), static_cast<int>(bytes), in_.bytes.data(), in_.counts.data(),
                            in_.offsets.data(), comm);
  }

  bool reducing_ = false;
  Range part_{0, 0};
  std::vector<std::byte> slice_;
  Layout out_, in_;
};

}  // namespace

std::unique_ptr<Steps> MakeSteps(const Options& options, const Work* work) {
  switch (work->op) {
    case OpKind::kAllreduce:
      if (options.library->Reduces(work->reduce_op, work->dtype)) {
        return std::make_unique<NativeAllreduce>(options, work);
      }
      return std::make_unique<SlicedAllreduce>(options, work);
    case OpKind::kAllgather:
    case OpKind::kAlltoall:
      return std::make_unique<Exchange>(options, work);
    case OpKind::kReducescatter:
      return std::make_unique<Reducescatter>(options, work);
    case OpKind::kBroadcast:
      return std::make_unique<Broadcast>(options, work);
    default:
      return std::make_unique<Barrier>(options, work);
  }
}

}  // namespace hvd::comm::mpi
