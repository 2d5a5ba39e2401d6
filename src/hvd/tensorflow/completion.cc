// SPDX-License-Identifier: Apache-2.0
#include "hvd/tensorflow/completion.h"

#include <pthread.h>

#include <utility>

namespace hvd::tensorflow {
namespace {

struct Range {
  uintptr_t begin = 0;
  uintptr_t end = 0;
};

Range StackOfThisThread() {
  Range range;
  pthread_attr_t attributes;
  if (pthread_getattr_np(pthread_self(), &attributes) != 0) return range;
  void* base = nullptr;
  size_t bytes = 0;
  if (pthread_attr_getstack(&attributes, &base, &bytes) == 0) {
    range.begin = reinterpret_cast<uintptr_t>(base);
    range.end = range.begin + bytes;
  }
  pthread_attr_destroy(&attributes);
  return range;
}

bool OnThisStack(const void* address) {
  // Asked once per thread: on the main thread the answer is read from /proc.
  thread_local const Range stack = StackOfThisThread();
  const auto value = reinterpret_cast<uintptr_t>(address);
  return value >= stack.begin && value < stack.end;
}

}  // namespace

Completion::Completion(TF_AsyncOpKernelDoneCallback* done) {
  if (OnThisStack(done)) {
    moved_ = std::move(*reinterpret_cast<std::function<void()>*>(done));
  } else {
    kept_ = done;
  }
}

void Completion::Run() {
  if (kept_ != nullptr) {
    tf.TF_RunAsyncOpKernelDoneCallback(std::exchange(kept_, nullptr));
  } else {
    std::exchange(moved_, nullptr)();
  }
}

}  // namespace hvd::tensorflow
