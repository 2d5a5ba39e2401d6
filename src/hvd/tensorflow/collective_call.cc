// SPDX-License-Identifier: Apache-2.0
#include "hvd/tensorflow/collective_call.h"

#include <cstdint>
#include <cstring>
#include <utility>

#include "hvd/tensorflow/dtype.h"

namespace hvd::tensorflow {
namespace {

// The output has the input's shape.
bool KeepsShape(int32_t op) { return op == HVD_ALLREDUCE || op == HVD_BROADCAST; }

// Less than the engine polls before it would sleep: so it polls, and does not sleep.
constexpr double kShortTime = 1e-6;

}  // namespace

void CollectiveCall::Start(const CollectiveKernel& kernel, TF_OpKernelContext* context, Completion done) {
  const bool waits = kernel.blocking || done.must_stay();
  auto* call = new CollectiveCall(kernel, context, std::move(done));
  if (!call->TakeInputs()) {
    call->Finish();
  } else if (waits) {
    call->RunToTheEnd();
  } else {
    call->Submit();
  }
}

bool CollectiveCall::TakeInputs() {
  const bool with_splits = kernel_.op == HVD_ALLTOALL;
  const bool with_tensors = kernel_.op != HVD_JOIN;
  parts_.resize(with_tensors ? tf.TF_NumInputs(context_) - (with_splits ? 1 : 0) : 1);
  for (size_t i = 0; i < parts_.size(); ++i) {
    Part& part = parts_[i];
    part.call = this;
    part.index = static_cast<int>(i);
    part.name = kernel_.name;
    if (kernel_.grouped) part.name += "_" + std::to_string(i + 1) + "of" + std::to_string(parts_.size());
    if (with_tensors && !TakeInput(&part)) return false;
  }
  return !with_splits || TakeSplits();
}

bool CollectiveCall::TakeInput(Part* part) {
  const TfStatus status;
  part->input = GetInput(context_, part->index, status);
  if (!Good(status)) return false;
  part->tf_type = tf.TF_TensorType(part->input.get());
  part->shape = ShapeOf(part->input.get());
  if (HvdType(part->tf_type) < 0) {
    Fail(HVD_INVALID_ARGUMENT, "tensor " + part->name + " has a type that Horovod does not send");
    return false;
  }
  return !KeepsShape(kernel_.op) || PrepareOutput(part);
}

bool CollectiveCall::PrepareOutput(Part* part) {
  const TfStatus status;
  // TensorFlow lends the input's memory only if ours is no further reference to it.
  part->input.reset();
  int lent = -1;
  part->output.reset(tf.TF_ForwardInputOrAllocateOutput(context_, &part->index, 1, part->index, part->shape.data(),
                                                        static_cast<int>(part->shape.size()), &lent, status.get()));
  if (!Good(status)) return false;
  if (lent < 0) part->input = GetInput(context_, part->index, status);
  return Good(status);
}

bool CollectiveCall::TakeSplits() {
  const TfStatus status;
  const TensorRef tensor = GetInput(context_, 1, status);
  if (!Good(status)) return false;
  splits_.resize(tf.TF_TensorByteSize(tensor.get()) / sizeof(int32_t));
  if (!splits_.empty()) std::memcpy(splits_.data(), tf.TF_TensorData(tensor.get()), splits_.size() * sizeof(int32_t));
  return true;
}

size_t CollectiveCall::InputBytes() const {
  const Part& part = parts_.front();
  if (kernel_.op == HVD_JOIN) return SIZE_MAX;  // waits for the slowest rank by its nature
  return tf.TF_TensorByteSize(part.input != nullptr ? part.input.get() : part.output.get());
}

hvd_request CollectiveCall::RequestOf(Part* part) {
  hvd_request request;
  hvd_request_default(&request);
  request.op = kernel_.op;
  request.name = part->name.c_str();
  request.process_set = kernel_.process_set;
  request.reduce_op = kernel_.reduce_op;
  request.root_rank = kernel_.root_rank;
  request.prescale = kernel_.prescale;
  request.postscale = kernel_.postscale;
  request.flags = kernel_.wire;
  if (kernel_.op != HVD_JOIN) {
    request.dtype = HvdType(part->tf_type);
    request.shape = part->shape.data();
    request.ndim = static_cast<int32_t>(part->shape.size());
    TF_Tensor* input = part->input != nullptr ? part->input.get() : part->output.get();
    request.input.data = tf.TF_TensorData(input);
    request.input.bytes = tf.TF_TensorByteSize(input);
  }
  if (part->output != nullptr) {
    request.output.data = tf.TF_TensorData(part->output.get());
    request.output.bytes = tf.TF_TensorByteSize(part->output.get());
  } else {
    request.alloc = &OnAllocate;
    request.alloc_arg = part;
  }
  if (!splits_.empty()) {
    request.splits = splits_.data();
    request.nsplits = static_cast<int32_t>(splits_.size());
  }
  return request;
}

void CollectiveCall::Submit() {
  if (parts_.size() == 1 && kernel_.luck->Try(InputBytes())) return SubmitInHope();
  std::vector<hvd_request> requests;
  requests.reserve(parts_.size());
  for (Part& part : parts_) {
    requests.push_back(RequestOf(&part));
    requests.back().done = &OnDone;
    requests.back().done_arg = &part;
  }
  const auto count = static_cast<int32_t>(requests.size());
  std::vector<hvd_handle> handles(requests.size());
  open_ = parts_.size();
  // From a successful submission on the completion thread may end and delete this at any time.
  const int code = count == 1 ? hvd_submit(nullptr, requests.data(), handles.data())
                              : hvd_submit_group(nullptr, requests.data(), count, handles.data());
  if (code == HVD_OK) return;
  Fail(code, hvd_last_error());
  Finish();
}

void CollectiveCall::SubmitInHope() {
  hvd_request request = RequestOf(&parts_.front());
  request.done = &OnDone;
  request.done_arg = &parts_.front();
  open_ = 1;
  hvd_output result = {};
  result.struct_size = sizeof result;
  hvd_handle handle = 0;
  const std::shared_ptr<Luck> luck = kernel_.luck;
  // After HVD_IN_PROGRESS this call may have ended already on the completion thread, and with it TensorFlow's node.
  const int code = hvd_run_for(nullptr, &request, kShortTime, &result, &handle);
  luck->Note(code != HVD_IN_PROGRESS);
  if (code == HVD_IN_PROGRESS) return;
  if (code != HVD_OK) {
    Fail(code, hvd_last_error());
  } else {
    TakeResult(&parts_.front(), result);
  }
  Finish();
}

void CollectiveCall::RunToTheEnd() {
  hvd_output result = {};
  result.struct_size = sizeof result;
  if (parts_.size() == 1) {
    const hvd_request request = RequestOf(&parts_.front());
    const int code = hvd_run(nullptr, &request, &result);
    if (code != HVD_OK) {
      Fail(code, hvd_last_error());
    } else {
      TakeResult(&parts_.front(), result);
    }
    return Finish();
  }
  std::vector<hvd_request> requests;
  for (Part& part : parts_) requests.push_back(RequestOf(&part));
  std::vector<hvd_handle> handles(requests.size());
  const int code = hvd_submit_group(nullptr, requests.data(), static_cast<int32_t>(requests.size()), handles.data());
  if (code != HVD_OK) Fail(code, hvd_last_error());
  for (size_t i = 0; i < parts_.size() && code == HVD_OK; ++i) {
    const int outcome = hvd_wait(nullptr, handles[i], -1.0);
    if (outcome != HVD_OK) {
      Fail(outcome, hvd_last_error());
    } else if (hvd_get_output(nullptr, handles[i], &result) == HVD_OK) {
      TakeResult(&parts_[i], result);
    }
    hvd_release(nullptr, handles[i]);
  }
  Finish();
}

void* CollectiveCall::OnAllocate(void* arg, uint64_t bytes, const int64_t* shape, int32_t ndim) {
  auto* part = static_cast<Part*>(arg);
  if (!part->call->Allocate(part, shape, ndim, bytes)) return nullptr;
  // An output without bytes has no memory, but NULL would mean a refusal.
  static char nothing;
  void* data = tf.TF_TensorData(part->output.get());
  return data != nullptr ? data : &nothing;
}

void CollectiveCall::OnDone(void* arg, hvd_handle handle, int32_t status, const char* message) {
  auto* part = static_cast<Part*>(arg);
  CollectiveCall* call = part->call;
  hvd_output result = {};
  result.struct_size = sizeof result;
  if (status != HVD_OK) {
    call->Fail(status, message);
  } else if (hvd_get_output(nullptr, handle, &result) != HVD_OK) {
    call->Fail(HVD_INTERNAL, hvd_last_error());
  } else {
    call->TakeResult(part, result);
  }
  hvd_release(nullptr, handle);
  if (call->open_.fetch_sub(1) == 1) call->Finish();
}

void CollectiveCall::TakeResult(Part* part, const hvd_output& result) {
  if (kernel_.op == HVD_JOIN) {
    OutputNumbers(0, &result.number, nullptr, 0);
    return;
  }
  // Outputs without bytes need no memory, so nobody was asked for it.
  if (part->output == nullptr && !Allocate(part, result.shape, result.ndim, result.bytes)) return;
  if (kernel_.op == HVD_ALLTOALL) {
    const int64_t count = result.nsplits;
    OutputNumbers(1, result.received_splits, &count, 1);
  }
}

bool CollectiveCall::Allocate(Part* part, const int64_t* shape, int ndim, uint64_t bytes) {
  const TfStatus status;
  part->output.reset(tf.TF_AllocateOutput(context_, part->index, part->tf_type, shape, ndim, bytes, status.get()));
  return Good(status);
}

bool CollectiveCall::OutputNumbers(int index, const int32_t* numbers, const int64_t* shape, int ndim) {
  const TfStatus status;
  const size_t bytes = (ndim == 0 ? 1 : shape[0]) * sizeof(int32_t);
  const TensorRef output(tf.TF_AllocateOutput(context_, index, kTfInt32, shape, ndim, bytes, status.get()));
  if (!Good(status)) return false;
  if (bytes > 0) std::memcpy(tf.TF_TensorData(output.get()), numbers, bytes);
  return true;
}

void CollectiveCall::Fail(int code, const std::string& text) {
  const std::lock_guard lock(failure_mutex_);
  if (code_ != HVD_OK) return;
  code_ = code;
  text_ = text;
}

bool CollectiveCall::Good(const TfStatus& status) {
  if (!status.ok()) Fail(status.code(), status.text());
  return status.ok();
}

void CollectiveCall::Finish() {
  if (code_ != HVD_OK) tf.TF_OpKernelContext_Failure(context_, TfStatus(code_, text_).get());
  Completion done = std::move(done_);
  delete this;
  done.Run();
}

}  // namespace hvd::tensorflow
