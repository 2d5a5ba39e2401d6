// SPDX-License-Identifier: Apache-2.0
// TensorFlow's objects with an owner.
#ifndef HVD_TENSORFLOW_OWNED_H_
#define HVD_TENSORFLOW_OWNED_H_

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "hvd/tensorflow/tf_api.h"

namespace hvd::tensorflow {

// A status to hand to TensorFlow's functions. Its codes have the numbers of ours.
class TfStatus {
 public:
  TfStatus() : status_(tf.TF_NewStatus()) {}
  TfStatus(int code, const std::string& text) : TfStatus() { tf.TF_SetStatus(status_, code, text.c_str()); }
  ~TfStatus() { tf.TF_DeleteStatus(status_); }
  TfStatus(const TfStatus&) = delete;
  TfStatus& operator=(const TfStatus&) = delete;

  TF_Status* get() const { return status_; }
  int code() const { return tf.TF_GetCode(status_); }
  bool ok() const { return code() == 0; }
  std::string text() const { return tf.TF_Message(status_); }

 private:
  TF_Status* status_;
};

struct DeleteTensor {
  void operator()(TF_Tensor* tensor) const { tf.TF_DeleteTensor(tensor); }
};
// A reference to a tensor's memory.
using TensorRef = std::unique_ptr<TF_Tensor, DeleteTensor>;

inline TensorRef GetInput(TF_OpKernelContext* context, int index, const TfStatus& status) {
  TF_Tensor* tensor = nullptr;
  tf.TF_GetInput(context, index, &tensor, status.get());
  return TensorRef(status.ok() ? tensor : nullptr);
}

inline std::vector<int64_t> ShapeOf(const TF_Tensor* tensor) {
  std::vector<int64_t> shape(tf.TF_NumDims(tensor));
  for (size_t i = 0; i < shape.size(); ++i) shape[i] = tf.TF_Dim(tensor, static_cast<int>(i));
  return shape;
}

}  // namespace hvd::tensorflow

#endif  // HVD_TENSORFLOW_OWNED_H_
