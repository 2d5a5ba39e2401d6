// SPDX-License-Identifier: Apache-2.0
// Ranks and sizes as nodes of a graph: read at every step, so that a graph outlives a change of the job.
#include <algorithm>
#include <string>
#include <vector>

#include "hvd/hvd.h"
#include "hvd/tensorflow/dtype.h"
#include "hvd/tensorflow/op_definition.h"
#include "hvd/tensorflow/ops.h"

namespace hvd::tensorflow {
namespace {

// Kernels of queries hold nothing but a process set's id.
struct Query {
  int32_t process_set = 0;
};

void Scalar(TF_ShapeInferenceContext* context, TF_Status* status) {
  TF_ShapeHandle* scalar = tf.TF_ShapeInferenceContextScalar(context);
  tf.TF_ShapeInferenceContextSetOutput(context, 0, scalar, status);
  tf.TF_DeleteShapeHandle(scalar);
}

void* CreatePlain(TF_OpKernelConstruction*) { return new Query; }

void* CreateWithSet(TF_OpKernelConstruction* construction) {
  const TfStatus status;
  int64_t set = 0;
  tf.TF_OpKernelConstruction_GetAttrInt64(construction, "process_set_id", &set, status.get());
  if (status.ok()) return new Query{static_cast<int32_t>(set)};
  tf.TF_OpKernelConstruction_Failure(construction, status.get());
  return nullptr;
}

void DeleteQuery(void* query) { delete static_cast<Query*>(query); }

void Answer(TF_OpKernelContext* context, int code, int32_t value) {
  if (code != HVD_OK) {
    tf.TF_OpKernelContext_Failure(context, TfStatus(code, hvd_last_error()).get());
    return;
  }
  const TfStatus status;
  const TensorRef output(tf.TF_AllocateOutput(context, 0, kTfInt32, nullptr, 0, sizeof value, status.get()));
  if (!status.ok()) {
    tf.TF_OpKernelContext_Failure(context, status.get());
    return;
  }
  *static_cast<int32_t*>(tf.TF_TensorData(output.get())) = value;
}

template <int32_t kWhat>
void ComputeProperty(void*, TF_OpKernelContext* context) {
  int32_t value = 0;
  const int code = hvd_query(nullptr, kWhat, &value);
  Answer(context, code, value);
}

void ComputeSetSize(void* query, TF_OpKernelContext* context) {
  int32_t size = 0;
  const int code = hvd_process_set_ranks(nullptr, static_cast<Query*>(query)->process_set, nullptr, 0, &size);
  Answer(context, code, size);
}

void ComputeIncluded(void* query, TF_OpKernelContext* context) {
  const int32_t set = static_cast<Query*>(query)->process_set;
  int32_t rank = 0;
  int32_t size = 0;
  int code = hvd_query(nullptr, HVD_RANK, &rank);
  if (code == HVD_OK) code = hvd_process_set_ranks(nullptr, set, nullptr, 0, &size);
  std::vector<int32_t> ranks(size);
  if (code == HVD_OK) code = hvd_process_set_ranks(nullptr, set, ranks.data(), size, &size);
  Answer(context, code, std::find(ranks.begin(), ranks.end(), rank) != ranks.end() ? 1 : 0);
}

std::string RegisterOne(const char* name, bool of_set, ComputeFunction compute) {
  OpDefinition definition{name, {}, {}, {"output: int32"}, Scalar};
  if (of_set) definition.attributes.push_back("process_set_id: int = 0");
  return Register(definition,
                  tf.TF_NewKernelBuilder(name, "CPU", of_set ? CreateWithSet : CreatePlain, compute, DeleteQuery));
}

}  // namespace

std::string RegisterQueries() {
  return RegisterOne("HorovodRank", false, ComputeProperty<HVD_RANK>) +
         RegisterOne("HorovodLocalRank", false, ComputeProperty<HVD_LOCAL_RANK>) +
         RegisterOne("HorovodLocalSize", false, ComputeProperty<HVD_LOCAL_SIZE>) +
         RegisterOne("HorovodSize", true, ComputeSetSize) +
         RegisterOne("HorovodProcessSetIncluded", true, ComputeIncluded);
}

}  // namespace hvd::tensorflow
