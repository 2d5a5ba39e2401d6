// SPDX-License-Identifier: Apache-2.0
#include "hvd/tensorflow/completion.h"

#include <dlfcn.h>
#include <pthread.h>

#include <cstdio>
#include <mutex>
#include <utility>

#include "hvd/tensorflow/collective_kernel.h"

namespace hvd::tensorflow {
namespace {

struct Range {
  uintptr_t begin = 0;
  uintptr_t end = 0;

  bool Has(const void* address) const {
    const auto value = reinterpret_cast<uintptr_t>(address);
    return value >= begin && value < end;
  }
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

enum class Where { kOnThisStack, kElsewhere, kUnknown };

Where WhereIs(const void* address) {
  // Asked once per thread: on the main thread the answer is read from /proc.
  thread_local const Range stack = StackOfThisThread();
  // A fibre runs on memory that is no thread's stack.
  if (!stack.Has(__builtin_frame_address(0))) return Where::kUnknown;
  return stack.Has(address) ? Where::kOnThisStack : Where::kElsewhere;
}

// libstdc++ alone has a function of this name (std::__throw_bad_function_call), and every std::function needs it.
constexpr char kOfLibstdcxx[] = "_ZSt25__throw_bad_function_callv";

bool UsesLibstdcxx(void* function) {
  Dl_info info{};
  if (::dladdr(function, &info) == 0 || info.dli_fname == nullptr) return false;
  // Looks into that library and what it depends on, not into the whole process.
  void* const library = ::dlopen(info.dli_fname, RTLD_LAZY | RTLD_NOLOAD);
  if (library == nullptr) return false;
  const bool found = ::dlsym(library, kOfLibstdcxx) != nullptr;
  ::dlclose(library);
  return found;
}

void WarnOnce(const char* why) {
  static std::once_flag once;
  std::call_once(once, [why] {
    (void)std::fprintf(stderr,
                       "hvd: %s, so each collective of a graph holds one of TensorFlow's threads until it is over: set "
                       "inter_op_parallelism_threads to at least %d, one more than this process has collectives in its "
                       "graphs now\n",
                       why, CollectiveKernel::live.load(std::memory_order_relaxed) + 1);
  });
}

}  // namespace

bool TensorFlowHasOurLayout() {
  static const bool has = UsesLibstdcxx(reinterpret_cast<void*>(tf.TF_RunAsyncOpKernelDoneCallback));
  return has;
}

Completion::Completion(TF_AsyncOpKernelDoneCallback* done) {
  const Where where = WhereIs(done);
  if (where == Where::kOnThisStack && TensorFlowHasOurLayout()) {
    moved_ = std::move(*reinterpret_cast<std::function<void()>*>(done));
    return;
  }
  kept_ = done;
  must_stay_ = where != Where::kElsewhere;
  if (must_stay_) {
    WarnOnce(where == Where::kUnknown ? "the stack of a thread of TensorFlow is not known"
                                      : "this TensorFlow was not built with libstdc++");
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
