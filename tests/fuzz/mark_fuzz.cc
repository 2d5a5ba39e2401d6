// SPDX-License-Identifier: Apache-2.0
// A rank runs one operation against marks, counters and payloads that peers may have written in any way, and may write
// again while it runs. The operation reads and writes only the arenas, the stream and its own buffers, and fails if it
// cannot use a mark. The check words of peers are right here, so that the fuzzer reaches the code behind their check.
#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <memory>
#include <vector>

#include "hvd/algorithms/table.h"
#include "hvd/comm/builtin/window_communicator.h"
#include "hvd/transport/window.h"

namespace {

using namespace hvd;
using collective::window::DataLocation;
using collective::window::Header;
using collective::window::MarkStream;

constexpr int kMembers = 3;
constexpr size_t kEager = 1024;
constexpr size_t kArena = 8192;
constexpr size_t kChunk = 512;

struct Free {
  void operator()(std::byte* memory) const { std::free(memory); }
};
using Memory = std::unique_ptr<std::byte, Free>;

// Every call returns a block of its own of exactly that size, so that the sanitizer sees an access beyond its end.
Memory Allocate(size_t bytes) {
  Memory memory(static_cast<std::byte*>(std::aligned_alloc(128, bytes)));
  std::memset(memory.get(), 0, bytes);
  return memory;
}

// The memory that ranks share. No peer lives, dies or sleeps.
class Peers final : public transport::Window {
 public:
  Peers() {
    for (Memory& arena : arenas_) arena = Allocate(kArena);
  }

  std::byte* arena() const { return arenas_[0].get(); }

  int local() const override { return 0; }
  int local_size() const override { return kMembers; }
  Result<std::byte*> Carve(size_t) override { return nullptr; }
  std::byte* PeerArena(int local, uint64_t offset, uint64_t bytes) override {
    return offset <= kArena && bytes <= kArena - offset ? arenas_[static_cast<size_t>(local)].get() + offset : nullptr;
  }
  bool CanReadPeers() override { return true; }
  bool Readable(const void*, size_t) override { return true; }
  int ReadPeer(int, uint64_t, void* to, size_t bytes) override {
    std::memset(to, 1, bytes);
    return 0;
  }
  void Ring(int) override {}
  void RingAll() override {}
  void Listen(bool) override {}
  void BeginSleep() override {}
  void EndSleep() override {}
  transport::PeerState peer_state(int) const override { return transport::PeerState::kAlive; }
  bool revoked() const override { return false; }
  transport::Cause cause() const override { return {}; }
  std::string cause_reason() const override { return {}; }
  void Revoke(const transport::Cause&, std::string_view) override {}
  void SetQuiesced() override {}
  bool CannotStore(int) override { return false; }
  void Kill(int) override {}
  void SayGoodbye() override {}
  void Blame(Rank, std::string_view) override {}
  Rank blamed(int) const override { return -1; }
  std::string reason(int) const override { return {}; }
  uint64_t beat(int) const override { return 0; }
  void Beat() override {}
  int pid(int local) const override { return 100 + local; }
  bool TryLockToken() override { return true; }
  bool LockToken() override { return true; }
  void UnlockToken() override {}
  bool fenced() const override { return false; }
  bool condemned() const override { return false; }

 private:
  std::array<Memory, kMembers> arenas_;
};

// This rank's arena.
class Staging final : public comm::builtin::StagingSource {
 public:
  explicit Staging(std::byte* arena) : arena_(arena) {}

  int64_t OffsetOf(const void* memory, size_t bytes) const override {
    const auto* at = static_cast<const std::byte*>(memory);
    return at >= arena_ && at + bytes <= arena_ + kArena ? at - arena_ : -1;
  }
  std::byte* Allocate(size_t bytes) override {
    if (used_ + bytes > kArena / 2) return nullptr;  // the other half holds direct data
    used_ += bytes;
    return arena_ + used_ - bytes;
  }
  void Free(std::byte*) override {}

 private:
  std::byte* const arena_;
  size_t used_ = 0;
};

// Values read from the input; zeros follow its last byte.
class Input {
 public:
  Input(const uint8_t* data, size_t size) : data_(data), size_(size) {}
  template <typename T>
  T Take() {
    T value{};
    const size_t bytes = std::min(sizeof value, size_ - at_);
    std::memcpy(&value, data_ + at_, bytes);
    at_ += bytes;
    return value;
  }

 private:
  const uint8_t* const data_;
  const size_t size_;
  size_t at_ = 0;
};

// An operation of int32, whose data is private or direct.
comm::Work MakeWork(Input* input, std::byte* arena, std::vector<std::byte>* in, std::vector<std::byte>* out) {
  constexpr OpKind kOps[] = {OpKind::kAllreduce, OpKind::kBroadcast, OpKind::kAllgather, OpKind::kAlltoall,
                             OpKind::kReducescatter};
  comm::Work work;
  work.op = kOps[input->Take<uint8_t>() % std::size(kOps)];
  work.dtype = DType::kInt32;
  work.root = work.op == OpKind::kBroadcast ? input->Take<uint8_t>() % kMembers : -1;
  // Every member's part has whole elements.
  const size_t part = 4 * (1 + input->Take<uint16_t>() % 300);
  const size_t bytes = part * kMembers;
  const bool direct = input->Take<uint8_t>() % 2 == 0;
  in->resize(bytes);
  out->resize(bytes * kMembers);
  collective::Piece piece{.in = in->data(), .out = out->data(), .bytes = bytes};
  if (direct) piece.in = piece.out = arena + kArena / 2;
  work.payload.Add(piece);
  work.result_to = out->data();
  if (work.op == OpKind::kAllgather) work.member_bytes.assign(kMembers, bytes);
  if (work.op == OpKind::kReducescatter) work.member_bytes.assign(kMembers, part);
  if (work.op == OpKind::kAlltoall) work.exchange_bytes.assign(kMembers * kMembers, part);
  return work;
}

// What a peer says of its data.
void WriteHeader(Input* input, Header* header) {
  header->location = DataLocation{input->Take<uint8_t>() % 8u};
  // Most offsets are near the arena's ends.
  for (uint64_t* offset : {&header->in_offset, &header->out_offset}) {
    *offset = input->Take<uint16_t>();
    if (*offset > 60000) *offset = input->Take<uint64_t>();
  }
  header->address = input->Take<uint8_t>() % 2;
  header->check = header->CheckFor(MarkStream::Mark(0, 0));
}

// Peers that go wrong after their marks were read.
void ChangeHeaders(Input* input, const MarkStream& stream) {
  for (int m = 0; m < kMembers; ++m) {
    if (input->Take<uint8_t>() % 4 == 1) WriteHeader(input, &stream.header(m, 0));
  }
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  static Peers peers;
  Input input(data, size);
  const Memory memory = Allocate(MarkStream::Bytes(kMembers, kEager));
  Staging staging(peers.arena());
  std::vector<std::byte> in, out;
  const comm::Work work = MakeWork(&input, peers.arena(), &in, &out);
  comm::builtin::WindowOptions options{
      .window = &peers,
      .memory = &staging,
      .locals = {0, 1, 2},
      .me = 0,
      .stream_memory = memory.get(),
      .eager_bytes = kEager,
      .staging = {.chunk_bytes = kChunk, .depth = 2},
      .early = input.Take<uint8_t>() % 2 == 0,
      .locations = comm::builtin::LocationRules(algorithms::Table({.eager_bytes = kEager}), kMembers),
  };
  comm::builtin::WindowCommunicator communicator(std::move(options));
  if (communicator.Publish(0, 0, 1, 0, work) != comm::Announcer::Outcome::kPublished) return 0;
  const MarkStream stream(memory.get(), kMembers, 0, kEager);
  for (int m = 1; m < kMembers; ++m) {
    Header& header = stream.header(m, 0);
    header.uid = 1;
    WriteHeader(&input, &header);
    header.mark = MarkStream::Mark(0, 0);
  }
  // The engine's two paths: finish at once if the marks allow it, else run a step machine.
  using Data = comm::builtin::WindowCommunicator::Look::Data;
  const auto look = communicator.LookAt(0, 0, 1, work);
  ChangeHeaders(&input, stream);
  const bool repeats = work.op == OpKind::kAllreduce || work.op == OpKind::kReducescatter;
  if (repeats && look.data == Data::kBeside) {
    communicator.Finish(0, work);
    return 0;
  }
  if (work.op == OpKind::kAllreduce && look.data == Data::kSliced) {
    const size_t chunks = communicator.ReduceSlices(0, work);
    ChangeHeaders(&input, stream);
    if (communicator.Storing(0, chunks) < 0) communicator.TakeResult(0, work);
    return 0;
  }
  const auto machine = communicator.Begin(0, &work);
  if (machine == nullptr) return 0;
  for (int step = 0; step < 64; ++step) {
    const auto progress = machine->Step();
    if (progress == collective::Progress::kDone || progress == collective::Progress::kFailed) break;
    std::vector<int> awaited;
    machine->CollectAwaited(&awaited);
    ChangeHeaders(&input, stream);
    for (int m = 1; m < kMembers; ++m) {
      auto& counters = stream.counters(m, 0);
      const auto count = input.Take<uint8_t>();
      counters.in = count < 250 ? MarkStream::Count(0, count) : input.Take<uint64_t>();
      counters.out = count < 250 ? MarkStream::Count(0, count) : input.Take<uint64_t>();
    }
  }
  return 0;
}
