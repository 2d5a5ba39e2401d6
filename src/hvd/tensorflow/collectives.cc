// SPDX-License-Identifier: Apache-2.0
// The collective operations as TensorFlow sees them.
#include "hvd/tensorflow/collective_kernel.h"
#include "hvd/tensorflow/op_definition.h"
#include "hvd/tensorflow/ops.h"

namespace hvd::tensorflow {
namespace {

constexpr const char* kNumber = "T: {uint8, int8, uint16, int16, int32, int64, half, bfloat16, float, double}";
constexpr const char* kAny = "T: {uint8, int8, uint16, int16, int32, int64, half, bfloat16, float, double, bool}";
constexpr const char* kNumbers =
    "dtypes: list({uint8, int8, uint16, int16, int32, int64, half, bfloat16, float, double}) >= 1";
constexpr const char* kAnys =
    "dtypes: list({uint8, int8, uint16, int16, int32, int64, half, bfloat16, float, double, bool}) >= 1";
constexpr const char* kName = "tensor_name: string";
constexpr const char* kSet = "process_set_id: int = 0";
constexpr const char* kBlocking = "blocking: bool = false";
constexpr const char* kReduction = "reduce_op: int";
// 4607182418800017408 has the bits of 1.0.
constexpr const char* kPrescale = "prescale_bits: int = 4607182418800017408";
constexpr const char* kPostscale = "postscale_bits: int = 4607182418800017408";
constexpr const char* kWire = "wire: int = 0";

// Every output has the shape of the input with its number.
void SameShapes(TF_ShapeInferenceContext* context, TF_Status* status) {
  TF_ShapeHandle* shape = tf.TF_NewShapeHandle();
  const auto count = static_cast<int>(tf.TF_ShapeInferenceContextNumInputs(context));
  for (int i = 0; i < count && tf.TF_GetCode(status) == 0; ++i) {
    tf.TF_ShapeInferenceContextGetInput(context, i, shape, status);
    if (tf.TF_GetCode(status) == 0) tf.TF_ShapeInferenceContextSetOutput(context, i, shape, status);
  }
  tf.TF_DeleteShapeHandle(shape);
}

// The number of rows is known when the operation is over; Python adds what is known of the other dimensions, since the
// C interface has no word for a single unknown one.
void UnknownShapes(TF_ShapeInferenceContext* context, TF_Status* status) {
  tf.TF_ShapeInferenceContextSetUnknownShape(context, status);
}

template <int32_t kOp, bool kGrouped>
void* Create(TF_OpKernelConstruction* construction) {
  return CollectiveKernel::Create(construction, kOp, kGrouped);
}

void Compute(void* kernel, TF_OpKernelContext* context, TF_AsyncOpKernelDoneCallback* done) {
  static_cast<CollectiveKernel*>(kernel)->Compute(context, done);
}

void DeleteKernel(void* kernel) { delete static_cast<CollectiveKernel*>(kernel); }

template <int32_t kOp, bool kGrouped = false>
std::string RegisterOne(OpDefinition definition) {
  for (const char* attribute : {kName, kSet, kBlocking}) definition.attributes.push_back(attribute);
  return Register(definition,
                  tf.TF_NewAsyncKernelBuilder(definition.name, "CPU", Create<kOp, kGrouped>, Compute, DeleteKernel));
}

}  // namespace

std::string RegisterCollectives() {
  std::string problems;
  problems += RegisterOne<HVD_ALLREDUCE>(
      {"HorovodAllreduce", {kNumber, kReduction, kPrescale, kPostscale, kWire}, {"tensor: T"}, {"sum: T"}, SameShapes});
  problems += RegisterOne<HVD_ALLREDUCE, true>({"HorovodGroupedAllreduce",
                                                {kNumbers, kReduction, kPrescale, kPostscale, kWire},
                                                {"tensors: dtypes"},
                                                {"sums: dtypes"},
                                                SameShapes});
  problems += RegisterOne<HVD_ALLGATHER>({"HorovodAllgather", {kAny}, {"tensor: T"}, {"output: T"}, UnknownShapes});
  problems += RegisterOne<HVD_ALLGATHER, true>(
      {"HorovodGroupedAllgather", {kAnys}, {"tensors: dtypes"}, {"outputs: dtypes"}, UnknownShapes});
  problems += RegisterOne<HVD_BROADCAST>(
      {"HorovodBroadcast", {kAny, "root_rank: int"}, {"tensor: T"}, {"output: T"}, SameShapes});
  problems += RegisterOne<HVD_BROADCAST, true>(
      {"HorovodGroupedBroadcast", {kAnys, "root_rank: int"}, {"tensors: dtypes"}, {"outputs: dtypes"}, SameShapes});
  problems += RegisterOne<HVD_ALLTOALL>({"HorovodAlltoall",
                                         {kAny},
                                         {"tensor: T", "splits: int32"},
                                         {"output: T", "received_splits: int32"},
                                         UnknownShapes});
  problems += RegisterOne<HVD_REDUCESCATTER>({"HorovodReducescatter",
                                              {kNumber, kReduction, kPrescale, kPostscale},
                                              {"tensor: T"},
                                              {"output: T"},
                                              UnknownShapes});
  problems += RegisterOne<HVD_REDUCESCATTER, true>({"HorovodGroupedReducescatter",
                                                    {kNumbers, kReduction, kPrescale, kPostscale},
                                                    {"tensors: dtypes"},
                                                    {"outputs: dtypes"},
                                                    UnknownShapes});
  problems += RegisterOne<HVD_JOIN>({"HorovodJoin", {}, {}, {"output: int32"}, UnknownShapes});
  return problems;
}

}  // namespace hvd::tensorflow
