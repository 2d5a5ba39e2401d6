// SPDX-License-Identifier: Apache-2.0
#include "hvd/c_api/context.h"

#include <pthread.h>

#include <mutex>

namespace hvd::c_api {
namespace {

thread_local std::string t_error;
std::atomic<bool> g_forked_child{false};

}  // namespace

hvd_context& ProcessContext() {
  static hvd_context* const context = new hvd_context;  // never destroyed: calls may come from exit handlers
  return *context;
}

int Report(const Error& error) {
  t_error = error.message;
  return static_cast<int>(error.code);
}

int Report(Code code, std::string text) {
  t_error = std::move(text);
  return static_cast<int>(code);
}

void ClearError() { t_error.clear(); }

bool InForkedChild() { return g_forked_child.load(std::memory_order_relaxed); }

int ReportForked() {
  return Report(
      Code::kFailedPrecondition,
      "this process was forked from one that uses hvd: start workers with exec or the spawn method, or call hvd.init() "
      "only in the process that trains");
}

void WatchForks() {
  static std::once_flag once;
  std::call_once(once, [] {
    pthread_atfork(nullptr, nullptr, [] {
      if (ProcessContext().engine.load(std::memory_order_relaxed) != nullptr) {
        g_forked_child.store(true, std::memory_order_relaxed);
      }
    });
  });
}

int Call::Refuse() const {
  if (InForkedChild()) return ReportForked();
  return Report(Code::kFailedPrecondition, "Horovod has not been initialized; use hvd.init().");
}

}  // namespace hvd::c_api

extern "C" HVD_API const char* hvd_last_error(void) { return hvd::c_api::t_error.c_str(); }
