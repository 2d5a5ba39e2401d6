// SPDX-License-Identifier: Apache-2.0
// Operations, memory and counters.
#include <algorithm>
#include <cmath>
#include <cstring>
#include <optional>

#include "hvd/c_api/argument_check.h"
#include "hvd/c_api/context.h"
#include "hvd/engine/memory.h"

namespace {

using hvd::Code;
using hvd::Error;
using hvd::Fail;
using hvd::Result;
using hvd::c_api::Bounded;
using hvd::c_api::Call;
using hvd::c_api::Report;
using hvd::engine::Completer;
using hvd::engine::Operation;
using hvd::engine::Submission;

hvd::controller::Request Describe(const hvd_request& request) {
  hvd::controller::Request described;
  described.name = request.name == nullptr ? "" : request.name;
  auto& signature = described.signature;
  signature.op = static_cast<hvd::OpKind>(request.op);
  signature.dtype = static_cast<hvd::DType>(request.dtype);
  signature.reduce_op = static_cast<hvd::ReduceOp>(request.reduce_op);
  signature.root = request.op == HVD_BROADCAST ? request.root_rank : -1;
  signature.prescale = request.prescale;
  signature.postscale = request.postscale;
  signature.shape.assign(request.shape, request.shape + request.ndim);
  signature.numbers.assign(request.splits, request.splits + request.nsplits);
  return described;
}

// The type as which data travels; none: its own.
std::optional<hvd::DType> WireOf(const hvd_request& request) {
  if (request.flags & HVD_WIRE_FLOAT16) return hvd::DType::kFloat16;
  if (request.flags & HVD_WIRE_BFLOAT16) return hvd::DType::kBFloat16;
  return {};
}

Result<Submission> Translate(const Call& engine, const hvd_request* request) {
  HVD_RETURN_IF_ERROR(hvd::c_api::Check(request));
  Submission submission;
  if (request->prepared != 0) {
    const auto* prepared = engine->FindPrepared(request->prepared);
    if (prepared == nullptr) {
      return Fail(Code::kInvalidArgument, "{} is no prepared id of this engine: call hvd_prepare after hvd_init",
                  request->prepared);
    }
    submission.process_set = prepared->process_set;
    submission.request = prepared->request;
    submission.wire = prepared->wire;
    if (request->nsplits > 0) {
      submission.request.signature.numbers.assign(request->splits, request->splits + request->nsplits);
    }
  } else {
    submission.request = Describe(*request);
    submission.wire = WireOf(*request);
    submission.process_set = request->process_set;
  }
  submission.input = request->input.data;
  submission.input_bytes = request->input.bytes;
  submission.output = request->output.data;
  submission.output_bytes = request->output.bytes;
  submission.prepared = request->prepared;
  submission.timeout_s = hvd::c_api::Bounded(request->timeout_s);
  if (request->alloc != nullptr) {
    submission.alloc = [call = request->alloc, arg = request->alloc_arg](uint64_t bytes, const hvd::Shape& shape) {
      return call(arg, bytes, shape.data(), static_cast<int32_t>(shape.size()));
    };
  }
  if (request->done != nullptr) {
    submission.done = [call = request->done, arg = request->done_arg](hvd_handle handle, const Error* error) {
      call(arg, handle, error == nullptr ? HVD_OK : static_cast<int32_t>(error->code),
           error == nullptr ? "" : error->message.c_str());
    };
  }
  return submission;
}

// Whether a request asks for a reduction and for nothing that the fast path cannot do; then `view` describes it. What
// it says is not checked: the fast path knows only what was checked before.
bool IsPlain(const hvd_request* request, hvd::engine::RequestView* view) {
  if (request == nullptr || request->struct_size != sizeof *request) return false;
  if (request->op != HVD_ALLREDUCE && request->op != HVD_REDUCESCATTER) return false;
  if (request->input.bytes > hvd::engine::FastPathCache::kMostArenaBytes || request->timeout_s != 0) return false;
  if (request->input.device_type != HVD_CPU || request->output.device_type != HVD_CPU) return false;
  if (request->alloc != nullptr || request->done != nullptr || request->stream != nullptr) return false;
  if (request->ready_event != nullptr || request->splits != nullptr || request->nsplits != 0) return false;
  if (request->flags < 0 || request->flags > HVD_WIRE_BFLOAT16) return false;
  if (request->ndim < 0 || (request->ndim > 0 && request->shape == nullptr)) return false;
  if (!IsValid(static_cast<hvd::DType>(request->dtype))) return false;
  if (!IsValid(static_cast<hvd::ReduceOp>(request->reduce_op))) return false;
  view->prepared = request->prepared;
  if (request->prepared == 0) {
    if (request->name == nullptr) return false;
    view->op = static_cast<hvd::OpKind>(request->op);
    view->name = request->name;
    view->process_set = request->process_set;
    view->dtype = static_cast<hvd::DType>(request->dtype);
    view->wire = WireOf(*request);
    view->reduce_op = static_cast<hvd::ReduceOp>(request->reduce_op);
    view->prescale = request->prescale;
    view->postscale = request->postscale;
    view->shape = {request->shape, static_cast<size_t>(request->ndim)};
  }
  view->input = static_cast<const std::byte*>(request->input.data);
  view->input_bytes = request->input.bytes;
  view->output = static_cast<std::byte*>(request->output.data);
  view->output_bytes = request->output.bytes;
  return true;
}

void Fill(const Operation& op, hvd_output* output) {
  output->data = op.output;
  output->bytes = op.output_bytes;
  output->shape = op.output_shape.data();
  output->ndim = static_cast<int32_t>(op.output_shape.size());
  output->engine_owned = op.engine_owned;
  output->received_splits = op.received_splits.data();
  output->nsplits = static_cast<int32_t>(op.received_splits.size());
  output->number = op.number;
}

int RefuseWait(std::string_view function) {
  return Report(
      Code::kFailedPrecondition,
      fmt::format("{} in an alloc callback: operations cannot go on before it returns, so it must not wait for "
                  "one; hvd_submit can be called there",
                  function));
}

hvd::Time Until(double timeout_s) {
  if (timeout_s < 0) return hvd::Time::max();
  return hvd::SteadyClock().Now() + hvd::Seconds(hvd::c_api::Bounded(timeout_s));
}

// Shapes of outputs of hvd_run must outlive the operation; until this thread's next hvd_run.
thread_local hvd::Shape t_shape;
thread_local std::vector<int32_t> t_splits;

// What the fast path gave: the result is where the caller wanted it.
void Fill(const hvd_request& request, hvd_output* output) {
  output->data = request.output.data;
  output->bytes = request.output.bytes;
  output->shape = t_shape.data();
  output->ndim = static_cast<int32_t>(t_shape.size());
  output->engine_owned = 0;
  t_splits.clear();
  output->received_splits = t_splits.data();
  output->nsplits = 0;
  output->number = 0;
}

}  // namespace

extern "C" {

HVD_API void hvd_request_default(hvd_request* request) {
  if (request == nullptr) return;
  std::memset(request, 0, sizeof *request);
  request->struct_size = sizeof *request;
  request->reduce_op = HVD_AVERAGE;
  request->dtype = HVD_FLOAT32;
  request->prescale = request->postscale = 1.0;
}

HVD_API int hvd_prepare(hvd_context* ctx, const hvd_request* request, uint64_t* id) {
  if (id == nullptr) return Report(Code::kInvalidArgument, "hvd_prepare: id is NULL");
  const Call engine(ctx);
  if (!engine) return engine.Refuse();
  if (auto good = hvd::c_api::Check(request); !good) return Report(good.error());
  if (request->prepared != 0) {
    return Report(Code::kInvalidArgument,
                  fmt::format("hvd_prepare: hvd_request.prepared is {} already", request->prepared));
  }
  auto prepared = engine->Prepare(request->process_set, Describe(*request), WireOf(*request));
  if (!prepared) return Report(prepared.error());
  *id = *prepared;
  return HVD_OK;
}

HVD_API int hvd_submit(hvd_context* ctx, const hvd_request* request, hvd_handle* handle) {
  if (handle == nullptr) return Report(Code::kInvalidArgument, "hvd_submit: handle is NULL");
  const Call engine(ctx);
  if (!engine) return engine.Refuse();
  auto submission = Translate(engine, request);
  if (!submission) return Report(submission.error());
  auto submitted = engine->Submit(std::move(*submission));
  if (!submitted) return Report(submitted.error());
  *handle = *submitted;
  return HVD_OK;
}

HVD_API int hvd_submit_group(hvd_context* ctx, const hvd_request* requests, int32_t count, hvd_handle* handles) {
  if (count < 0 || (count > 0 && (requests == nullptr || handles == nullptr))) {
    return Report(Code::kInvalidArgument,
                  fmt::format("hvd_submit_group: count is {}, and requests or handles NULL", count));
  }
  const Call engine(ctx);
  if (!engine) return engine.Refuse();
  std::vector<Submission> submissions;
  for (int32_t i = 0; i < count; ++i) {
    auto submission = Translate(engine, requests + i);
    if (!submission) return Report(submission.error());
    submissions.push_back(std::move(*submission));
  }
  const auto submitted = engine->SubmitGroup(std::move(submissions));
  if (!submitted) return Report(submitted.error());
  std::copy(submitted->begin(), submitted->end(), handles);
  return HVD_OK;
}

HVD_API int hvd_run(hvd_context* ctx, const hvd_request* request, hvd_output* output) {
  hvd_handle handle = 0;
  return hvd_run_for(ctx, request, -1, output, &handle);
}

HVD_API int hvd_run_for(hvd_context* ctx, const hvd_request* request, double timeout_s, hvd_output* output,
                        hvd_handle* handle) {
  if (handle == nullptr) return Report(Code::kInvalidArgument, "hvd_run_for: handle is NULL");
  *handle = 0;
  if (std::isnan(timeout_s)) return Report(Code::kInvalidArgument, "hvd_run_for: timeout_s is nan");
  const Call engine(ctx);
  if (!engine) return engine.Refuse();
  if (Completer::InAlloc()) return RefuseWait("hvd_run");
  if (output != nullptr) {
    if (auto good = hvd::c_api::Check(*output); !good) return Report(good.error());
  }
  hvd::engine::Ran ran;
  hvd::engine::RequestView view;
  auto outcome = hvd::engine::FastPath::Outcome::kNone;
  // Not where the caller would rather not wait.
  if (timeout_s != 0 && IsPlain(request, &view)) {
    outcome = engine->RunFastPath(view, Bounded(timeout_s), &ran, output == nullptr ? nullptr : &t_shape);
  }
  if (outcome == hvd::engine::FastPath::Outcome::kDone) {
    if (output != nullptr) Fill(*request, output);
    return HVD_OK;
  }
  if (outcome == hvd::engine::FastPath::Outcome::kNone) {
    auto submission = Translate(engine, request);
    if (!submission) return Report(submission.error());
    auto result = engine->Run(std::move(*submission), Until(timeout_s));
    if (!result) return Report(result.error());
    ran = *result;
  }
  Operation* op = ran.op;
  if (op == nullptr) {
    *handle = ran.handle;
    return HVD_IN_PROGRESS;
  }
  int status = op->error.code == Code::kOk ? HVD_OK : Report(op->error);
  if (output != nullptr && status == HVD_OK) {
    Fill(*op, output);
    t_shape = op->output_shape;
    output->shape = t_shape.data();
    t_splits = op->received_splits;
    output->received_splits = t_splits.data();
  } else if (op->engine_owned) {
    hvd::engine::FreeShared(op->output);
    if (status == HVD_OK)
      status =
          Report(Code::kInvalidArgument, "hvd_run: the output has no memory, no alloc, and nowhere to be reported");
  }
  engine->Forget(op->handle);
  return status;
}

HVD_API int hvd_poll(hvd_context* ctx, hvd_handle handle) { return hvd_wait(ctx, handle, 0); }

HVD_API int hvd_wait(hvd_context* ctx, hvd_handle handle, double timeout_s) {
  const Call engine(ctx);
  if (!engine) return engine.Refuse();
  if (std::isnan(timeout_s)) return Report(Code::kInvalidArgument, "hvd_wait: timeout_s is nan");
  if (timeout_s != 0 && Completer::InAlloc()) return RefuseWait("hvd_wait");
  Operation* op = engine->Find(handle);
  if (op == nullptr) return Report(Code::kInvalidArgument, fmt::format("{} is no handle of this engine", handle));
  int status = HVD_IN_PROGRESS;
  const bool over = timeout_s == 0 ? op->over.load(std::memory_order_acquire) : engine->Wait(op, Until(timeout_s));
  if (over) status = op->error.code == Code::kOk ? HVD_OK : Report(op->error);
  engine->Release(op);
  return status;
}

HVD_API int hvd_get_output(hvd_context* ctx, hvd_handle handle, hvd_output* output) {
  if (output == nullptr) return Report(Code::kInvalidArgument, "hvd_get_output: output is NULL");
  if (auto good = hvd::c_api::Check(*output); !good) return Report(good.error());
  const Call engine(ctx);
  if (!engine) return engine.Refuse();
  Operation* op = engine->Find(handle);
  if (op == nullptr) return Report(Code::kInvalidArgument, fmt::format("{} is no handle of this engine", handle));
  int status = HVD_IN_PROGRESS;
  if (op->over.load(std::memory_order_acquire)) {
    status = op->error.code == Code::kOk ? HVD_OK : Report(op->error);
    if (status == HVD_OK) Fill(*op, output);
  }
  engine->Release(op);
  return status;
}

HVD_API int hvd_release(hvd_context* ctx, hvd_handle handle) {
  const Call engine(ctx);
  if (!engine) return engine.Refuse();
  if (engine->Forget(handle)) return HVD_OK;
  return Report(Code::kInvalidArgument, fmt::format("{} is no handle of this engine", handle));
}

HVD_API void* hvd_alloc(uint64_t bytes) {
  if (hvd::c_api::InForkedChild()) {
    hvd::c_api::ReportForked();
    return nullptr;
  }
  auto memory = hvd::engine::AllocateShared(bytes);
  if (memory) return *memory;
  if (memory.error().code == Code::kFailedPrecondition) {
    hvd::c_api::ReportForked();  // from a process without an engine, but with memory of ours
  } else {
    Report(Code::kResourceExhausted,
           fmt::format("no shared memory for {} bytes: raise HOROVOD_ARENA_BYTES or free some", bytes));
  }
  return nullptr;
}

HVD_API void* hvd_alloc_output(uint64_t bytes) { return hvd::engine::AllocateOutput(bytes); }

HVD_API void hvd_free(void* memory) { hvd::engine::FreeShared(memory); }

}  // extern "C"
