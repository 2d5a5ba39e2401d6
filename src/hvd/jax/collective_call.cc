// SPDX-License-Identifier: Apache-2.0
#include "hvd/jax/collective_call.h"

#include <cstring>
#include <memory>
#include <numeric>
#include <string_view>
#include <utility>

namespace hvd::jax {
namespace {

// Ranks in step finish small operations within this time, so no other thread has to wake up.
constexpr double kShortTime = 20e-6;

// Where a type of XLA's is HVD's; -1: a type that is not sent.
int32_t HvdType(int xla_type) {
  switch (xla_type) {
    case 1:
      return HVD_BOOL;
    case 2:
      return HVD_INT8;
    case 3:
      return HVD_INT16;
    case 4:
      return HVD_INT32;
    case 5:
      return HVD_INT64;
    case 6:
      return HVD_UINT8;
    case 7:
      return HVD_UINT16;
    case 10:
      return HVD_FLOAT16;
    case 11:
      return HVD_FLOAT32;
    case 12:
      return HVD_FLOAT64;
    case 16:
      return HVD_BFLOAT16;
    default:
      return -1;
  }
}

uint64_t ItemBytes(int32_t dtype) {
  switch (dtype) {
    case HVD_UINT8:
    case HVD_INT8:
    case HVD_BOOL:
      return 1;
    case HVD_UINT16:
    case HVD_INT16:
    case HVD_FLOAT16:
    case HVD_BFLOAT16:
      return 2;
    case HVD_INT32:
    case HVD_FLOAT32:
      return 4;
    default:
      return 8;
  }
}

uint64_t Elements(const XlaBuffer& buffer) {
  uint64_t elements = 1;
  for (int64_t i = 0; i < buffer.rank; ++i) elements *= static_cast<uint64_t>(buffer.dims[i]);
  return elements;
}

// An operation that a program runs in order is given a token first, and its first result is one.
bool IsToken(const void* buffer) { return static_cast<const XlaBuffer*>(buffer)->dtype == kXlaToken; }

// jaxlib up to 0.4.38 gives arrays without elements no memory, and the engine takes NULL for "no memory is given".
void* AddressOf(void* data) {
  static char nothing;
  return data != nullptr ? data : &nothing;
}

// The size of the result follows from the shapes and the number of ranks, not from what other ranks send.
bool KnowsResult(int32_t op) { return op != HVD_ALLGATHER && op != HVD_ALLTOALL; }

// Returns the ranks of a process set; without elements if there is no job, or no such set.
std::vector<int32_t> RanksOf(int32_t process_set) {
  int32_t size = 0;
  if (hvd_query(nullptr, HVD_SIZE, &size) != HVD_OK) return {};
  std::vector<int32_t> ranks(static_cast<size_t>(size));
  if (process_set == 0) {
    std::iota(ranks.begin(), ranks.end(), 0);
    return ranks;
  }
  if (hvd_process_set_ranks(nullptr, process_set, ranks.data(), size, &size) != HVD_OK) return {};
  ranks.resize(static_cast<size_t>(size));
  return ranks;
}

// As in python/horovod/jax/numbering.py.
int64_t Digest(const std::vector<int32_t>& ranks) {
  uint64_t digest = 0xcbf29ce484222325;
  for (const int32_t rank : ranks) digest = (digest ^ static_cast<uint64_t>(rank)) * 0x100000001b3;
  return static_cast<int64_t>(digest);
}

}  // namespace

XlaError* CollectiveCall::Start(XlaCall* call) {
  std::unique_ptr<CollectiveCall> self(new CollectiveCall(call->api));
  if (!self->ReadAttributes(call->attributes) || !self->CheckNumbering() ||
      !self->ReadBuffers(call->operands, call->results)) {
    return self->Error();
  }
  self->open_ = self->parts_.size() + 1;
  if (self->Submit() != HVD_IN_PROGRESS) {
    self->FinishResults();
    return self->Error();
  }
  // OnDone does not delete a call that Start has not ended.
  XlaError* const error = self->MakeFuture();
  call->future = self->future_;
  self.release()->End();
  return error;
}

bool CollectiveCall::ReadAttributes(const XlaAttributes& attributes) {
  hvd_request_default(&common_);
  for (int64_t i = 0; i < attributes.size; ++i) {
    const std::string_view name(attributes.names[i]->data, attributes.names[i]->bytes);
    if (attributes.types[i] == kXlaString) {
      const auto* text = static_cast<const XlaSpan*>(attributes.values[i]);
      if (name == "name") name_.assign(text->data, text->bytes);
      continue;
    }
    const void* value = static_cast<const XlaScalar*>(attributes.values[i])->value;
    int32_t* whole = name == "op"              ? &common_.op
                     : name == "reduce_op"     ? &common_.reduce_op
                     : name == "root_rank"     ? &common_.root_rank
                     : name == "process_set"   ? &common_.process_set
                     : name == "flags"         ? &common_.flags
                     : name == "grouped"       ? &grouped_
                     : name == "only_root"     ? &only_root_
                     : name == "made_for_rank" ? &made_for_rank_
                                               : nullptr;
    if (whole != nullptr) std::memcpy(whole, value, sizeof *whole);
    if (name == "made_for_ranks") std::memcpy(&made_for_ranks_, value, sizeof made_for_ranks_);
    if (name == "prescale") std::memcpy(&common_.prescale, value, sizeof common_.prescale);
    if (name == "postscale") std::memcpy(&common_.postscale, value, sizeof common_.postscale);
  }
  return true;
}

bool CollectiveCall::CheckNumbering() {
  int32_t rank = 0;
  // Without a job, Submit says so.
  if ((made_for_ranks_ == 0 && only_root_ == 0) || hvd_query(nullptr, HVD_RANK, &rank) != HVD_OK) return true;
  if (rank == common_.root_rank) only_root_ = 0;
  if (made_for_ranks_ == 0) return true;
  const std::vector<int32_t> ranks = RanksOf(common_.process_set);
  if ((made_for_rank_ < 0 || rank == made_for_rank_) && Digest(ranks) == made_for_ranks_) return true;
  Fail(HVD_FAILED_PRECONDITION, name_ + ": the program was compiled for other ranks. Process set " +
                                    std::to_string(common_.process_set) + " has " + std::to_string(ranks.size()) +
                                    " ranks now, and this process is rank " + std::to_string(rank) +
                                    ": compile the program again. Functions of jax.jit compile again by themselves");
  return false;
}

bool CollectiveCall::ReadBuffers(const XlaBuffers& operands, const XlaBuffers& results) {
  const bool is_barrier = common_.op == HVD_BARRIER;
  const int64_t first = operands.size > 0 && IsToken(operands.items[0]) ? 1 : 0;
  if (operands.size != results.size || operands.size == (is_barrier ? 0 : first)) {
    Fail(HVD_INTERNAL, name_ + ": the program has other numbers of operands and results: reinstall the hvd package");
    return false;
  }
  parts_.resize(is_barrier ? 1 : static_cast<size_t>(operands.size - first));
  requests_.assign(parts_.size(), common_);
  for (size_t i = 0; i < parts_.size(); ++i) {
    Part& part = parts_[i];
    part.call = this;
    part.name = name_;
    if (grouped_ != 0) part.name += "_" + std::to_string(i + 1) + "of" + std::to_string(parts_.size());
    requests_[i].name = part.name.c_str();
    requests_[i].done = &OnDone;
    requests_[i].done_arg = &part;
  }
  for (int64_t i = 0; i < operands.size - first; ++i) {
    const auto& input = *static_cast<const XlaBuffer*>(operands.items[i + first]);
    const auto& result = *static_cast<const XlaBuffer*>(results.items[i + first]);
    const int32_t dtype = HvdType(input.dtype);
    if (dtype < 0) {
      Fail(HVD_INVALID_ARGUMENT, "tensor " + name_ + " has a type that Horovod does not send");
      return false;
    }
    const uint64_t bytes = Elements(input) * ItemBytes(dtype);
    const uint64_t result_bytes = Elements(result) * ItemBytes(dtype);
    if (is_barrier) {
      // A barrier gives its operands back. XLA hands the results out when all ranks have come.
      if (bytes > 0 && result.data != input.data) std::memcpy(result.data, input.data, bytes);
      continue;
    }
    hvd_request& request = requests_[i];
    request.dtype = dtype;
    request.shape = input.dims;
    request.ndim = static_cast<int32_t>(input.rank);
    request.input = {input.data, bytes, HVD_CPU, 0};
    parts_[i].result = result.data;
    parts_[i].result_bytes = result_bytes;
    if (KnowsResult(request.op)) {
      request.output = {AddressOf(result.data), result_bytes, HVD_CPU, 0};
    } else {
      request.alloc = &OnAllocate;
      request.alloc_arg = &parts_[i];
    }
  }
  return true;
}

int CollectiveCall::Submit() {
  std::vector<hvd_handle> handles(requests_.size());
  int status = HVD_IN_PROGRESS;
  if (requests_.size() == 1) {
    status = hvd_run_for(nullptr, requests_.data(), kShortTime, nullptr, handles.data());
  } else {
    const int submitted =
        hvd_submit_group(nullptr, requests_.data(), static_cast<int32_t>(requests_.size()), handles.data());
    if (submitted != HVD_OK) status = submitted;
  }
  if (status != HVD_OK && status != HVD_IN_PROGRESS) Fail(status, hvd_last_error());
  return status;
}

XlaError* CollectiveCall::MakeFuture() {
  XlaFutureArguments arguments = {sizeof arguments, nullptr, nullptr};
  XlaError* const error = api_->future_create(&arguments);
  if (error == nullptr) future_ = arguments.future;
  return error;
}

void CollectiveCall::FinishResults() {
  if (only_root_ == 0) return;
  for (const Part& part : parts_) std::memset(part.result, 0, part.result_bytes);
}

void CollectiveCall::Fail(int code, const std::string& text) {
  const std::lock_guard lock(failure_mutex_);
  if (code_ != HVD_OK) return;
  code_ = code;
  text_ = text;
}

XlaError* CollectiveCall::Error() const {
  if (code_ == HVD_OK) return nullptr;
  XlaErrorArguments arguments = {sizeof arguments, nullptr, text_.c_str(), code_};
  return api_->error_create(&arguments);
}

void CollectiveCall::End() {
  if (open_.fetch_sub(1) > 1) return;
  const std::unique_ptr<CollectiveCall> self(this);
  FinishResults();
  if (future_ == nullptr) return;
  if (XlaError* const error = Error(); error != nullptr) {
    XlaFutureError arguments = {sizeof arguments, nullptr, future_, error};
    api_->future_set_error(&arguments);
  } else {
    XlaFutureArguments arguments = {sizeof arguments, nullptr, future_};
    api_->future_set_available(&arguments);
  }
}

void* CollectiveCall::OnAllocate(void* arg, uint64_t bytes, const int64_t* /*shape*/, int32_t /*ndim*/) {
  auto* part = static_cast<Part*>(arg);
  if (bytes != part->result_bytes) {
    part->call->Fail(HVD_INVALID_ARGUMENT,
                     part->name + ": the ranks brought " + std::to_string(bytes) + " bytes, and this program expects " +
                         std::to_string(part->result_bytes) +
                         ": in a compiled program every rank gives an array of the same shape; call the function "
                         "outside jax.jit for other shapes");
    return nullptr;
  }
  return AddressOf(part->result);  // NULL would mean a refusal
}

void CollectiveCall::OnDone(void* arg, hvd_handle handle, int32_t status, const char* message) {
  CollectiveCall* const call = static_cast<Part*>(arg)->call;
  if (status != HVD_OK) call->Fail(status, message);
  hvd_release(nullptr, handle);
  call->End();
}

}  // namespace hvd::jax

extern "C" hvd::jax::XlaError* hvd_jax_collective(hvd::jax::XlaCall* call);

// The function that horovod.jax registers with XLA. Before the first call of a program XLA asks for its version: jaxlib
// up to 0.8.0 takes 0.1 alone, and newer ones take it, too.
extern "C" HVD_API hvd::jax::XlaError* hvd_jax_collective(hvd::jax::XlaCall* call) {
  if (call->extensions != nullptr && call->extensions->type == hvd::jax::kXlaMetadata) {
    auto* metadata = reinterpret_cast<hvd::jax::XlaMetadataExtension*>(call->extensions)->metadata;
    metadata->version.major = 0;
    metadata->version.minor = 1;
    metadata->traits = 0;
    return nullptr;
  }
  return call->stage == hvd::jax::kXlaExecute ? hvd::jax::CollectiveCall::Start(call) : nullptr;
}
