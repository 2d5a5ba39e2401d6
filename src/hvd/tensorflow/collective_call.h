// SPDX-License-Identifier: Apache-2.0
// One run of a collective node: from TensorFlow's tensors to the engine and back.
//
// Inputs are read where they are. Outputs of the input's shape are the input's own memory where TensorFlow lends it
// (nobody else reads it), else fresh; outputs whose shape only the operation knows are allocated when it does. No
// thread of TensorFlow waits: the engine's completion thread ends the call, unless the kernel is a blocking one.
#ifndef HVD_TENSORFLOW_COLLECTIVE_CALL_H_
#define HVD_TENSORFLOW_COLLECTIVE_CALL_H_

#include <atomic>
#include <memory>
#include <mutex>
#include <string>
#include <vector>

#include "hvd/hvd.h"
#include "hvd/tensorflow/collective_kernel.h"
#include "hvd/tensorflow/completion.h"
#include "hvd/tensorflow/owned.h"

namespace hvd::tensorflow {

class CollectiveCall {
 public:
  // Owns itself until `done` was run. The kernel outlives it: TensorFlow keeps nodes until they are done.
  static void Start(const CollectiveKernel& kernel, TF_OpKernelContext* context, Completion done);

 private:
  // A tensor of the call; a group has several.
  struct Part {
    CollectiveCall* call = nullptr;
    int index = 0;
    int tf_type = 0;
    std::vector<int64_t> shape;
    TensorRef input;   // empty where its memory is the output's
    TensorRef output;  // empty until the operation knows its shape
    std::string name;
  };

  CollectiveCall(const CollectiveKernel& kernel, TF_OpKernelContext* context, Completion done)
      : kernel_(kernel), context_(context), done_(std::move(done)) {}

  bool TakeInputs();
  bool TakeInput(Part* part);
  bool TakeSplits();
  bool PrepareOutput(Part* part);
  hvd_request RequestOf(Part* part);
  size_t InputBytes() const;
  void Submit();
  // As Submit, but first polls for a few microseconds: a small operation that the peers wait for already is over then.
  void SubmitInHope();
  void RunToTheEnd();

  // Sets what an operation that succeeded gives beyond the outputs that are there already.
  void TakeResult(Part* part, const hvd_output& result);
  bool Allocate(Part* part, const int64_t* shape, int ndim, uint64_t bytes);
  bool OutputNumbers(int index, const int32_t* numbers, const int64_t* shape, int ndim);

  // The first failure is the call's.
  void Fail(int code, const std::string& text);
  bool Good(const TfStatus& status);
  // Tells TensorFlow and deletes this.
  void Finish();

  static void* OnAllocate(void* part, uint64_t bytes, const int64_t* shape, int32_t ndim);
  static void OnDone(void* part, hvd_handle handle, int32_t status, const char* message);

  const CollectiveKernel& kernel_;
  TF_OpKernelContext* context_;
  Completion done_;
  std::vector<Part> parts_;
  std::vector<int32_t> splits_;
  std::atomic<size_t> open_{0};  // parts that are not over
  std::mutex failure_mutex_;
  int code_ = HVD_OK;
  std::string text_;
};

}  // namespace hvd::tensorflow

#endif  // HVD_TENSORFLOW_COLLECTIVE_CALL_H_
