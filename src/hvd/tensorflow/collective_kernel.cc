// SPDX-License-Identifier: Apache-2.0
#include "hvd/tensorflow/collective_kernel.h"

#include <bit>
#include <memory>

#include "hvd/tensorflow/collective_call.h"
#include "hvd/tensorflow/owned.h"

namespace hvd::tensorflow {
namespace {

// Reads attributes one after the other; the first failure is kept.
class Attributes {
 public:
  explicit Attributes(TF_OpKernelConstruction* construction) : construction_(construction) {}

  int64_t Number(const char* name) {
    int64_t value = 0;
    if (status_.ok()) tf.TF_OpKernelConstruction_GetAttrInt64(construction_, name, &value, status_.get());
    return value;
  }
  // TensorFlow's own floats have 32 bits, too few for factors of float64: Python gives the bits of a double.
  double Factor(const char* name) { return std::bit_cast<double>(Number(name)); }
  bool Flag(const char* name) {
    unsigned char value = 0;
    if (status_.ok()) tf.TF_OpKernelConstruction_GetAttrBool(construction_, name, &value, status_.get());
    return value != 0;
  }
  std::string Text(const char* name) {
    int32_t list_size = 0;
    int32_t bytes = 0;
    if (status_.ok()) {
      tf.TF_OpKernelConstruction_GetAttrSize(construction_, name, &list_size, &bytes, status_.get());
    }
    if (!status_.ok() || bytes <= 0) return "";
    std::string text(bytes, '\0');
    tf.TF_OpKernelConstruction_GetAttrString(construction_, name, text.data(), text.size(), status_.get());
    return text;
  }
  const TfStatus& status() const { return status_; }

 private:
  TF_OpKernelConstruction* construction_;
  TfStatus status_;
};

}  // namespace

CollectiveKernel* CollectiveKernel::Create(TF_OpKernelConstruction* construction, int32_t op, bool grouped) {
  auto kernel = std::make_unique<CollectiveKernel>();
  kernel->op = op;
  kernel->grouped = grouped;
  Attributes attributes(construction);
  kernel->name = attributes.Text("tensor_name");
  kernel->process_set = static_cast<int32_t>(attributes.Number("process_set_id"));
  kernel->blocking = attributes.Flag("blocking");
  if (op == HVD_ALLREDUCE || op == HVD_REDUCESCATTER) {
    kernel->reduce_op = static_cast<int32_t>(attributes.Number("reduce_op"));
    kernel->prescale = attributes.Factor("prescale_bits");
    kernel->postscale = attributes.Factor("postscale_bits");
  }
  if (op == HVD_ALLREDUCE) kernel->wire = static_cast<int32_t>(attributes.Number("wire"));
  if (op == HVD_BROADCAST) kernel->root_rank = static_cast<int32_t>(attributes.Number("root_rank"));
  if (attributes.status().ok()) return kernel.release();
  tf.TF_OpKernelConstruction_Failure(construction, attributes.status().get());
  return nullptr;
}

void CollectiveKernel::Compute(TF_OpKernelContext* context, TF_AsyncOpKernelDoneCallback* done) const {
  CollectiveCall::Start(*this, context, Completion(done));
}

}  // namespace hvd::tensorflow
