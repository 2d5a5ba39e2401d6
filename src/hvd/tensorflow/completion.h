// SPDX-License-Identifier: Apache-2.0
// What an asynchronous kernel calls when its outputs are there.
//
// TensorFlow 2.13 to 2.21 hand out the address of a std::function on their own stack, which is gone when the kernel's
// function returns; it has to be moved away before. From 2.22 on it is on the heap, and TensorFlow's function runs and
// frees it. Where the address lies tells which, so no version has to be known.
//
// Moving it away needs to know its layout, which is that of the C++ library that TensorFlow was built with. Where that
// is not libstdc++, whose layout this file was compiled with, a completion on the stack cannot be kept: the kernel has
// to run it before it returns. The same holds where the stack is not known, as on a fibre: there a completion on the
// stack cannot be told from one on the heap.
#ifndef HVD_TENSORFLOW_COMPLETION_H_
#define HVD_TENSORFLOW_COMPLETION_H_

#include <functional>

#include "hvd/tensorflow/tf_api.h"

namespace hvd::tensorflow {

class Completion {
 public:
  // To be called before the kernel's function returns.
  explicit Completion(TF_AsyncOpKernelDoneCallback* done);

  // Whether Run must be called before the kernel's function returns.
  bool must_stay() const { return must_stay_; }

  // Tells TensorFlow; once. Afterwards the kernel's context is gone.
  void Run();

 private:
  std::function<void()> moved_;
  TF_AsyncOpKernelDoneCallback* kept_ = nullptr;
  bool must_stay_ = false;
};

// Whether TensorFlow's functions use libstdc++. Found out once, when it is first asked for.
bool TensorFlowHasOurLayout();

}  // namespace hvd::tensorflow

#endif  // HVD_TENSORFLOW_COMPLETION_H_
