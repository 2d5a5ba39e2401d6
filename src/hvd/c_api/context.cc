// SPDX-License-Identifier: Apache-2.0
#include "hvd/c_api/context.h"

#include <pthread.h>

#include <mutex>

namespace hvd::c_api {
namespace {

thread_local std::string t_error;
thread_local int t_status = HVD_OK;
std::atomic<bool> g_forked_child{false};
std::atomic<int> g_engines{0};  // of all contexts

}  // namespace

hvd_context& ProcessContext() {
  static hvd_context* const context = new hvd_context;  // never destroyed: calls may come from exit handlers
  return *context;
}

int Report(const Error& error) { return Report(error.code, error.message); }

int Report(Code code, std::string text) {
  t_error = std::move(text);
  return t_status = static_cast<int>(code);
}

bool InForkedChild() { return g_forked_child.load(std::memory_order_relaxed); }

int ReportForked() {
  return Report(
      Code::kFailedPrecondition,
      "this process was forked from one that uses hvd: start workers with exec or the spawn method, or call hvd.init() "
      "only in the process that trains");
}

void EngineBegins() {
  static std::once_flag once;
  std::call_once(once, [] {
    pthread_atfork(nullptr, nullptr, [] {
      if (g_engines.load(std::memory_order_relaxed) > 0) g_forked_child.store(true, std::memory_order_relaxed);
    });
  });
  g_engines.fetch_add(1, std::memory_order_relaxed);
}

void EngineEnds() { g_engines.fetch_sub(1, std::memory_order_relaxed); }

int Call::Refuse() const {
  if (InForkedChild()) return ReportForked();
  return Report(Code::kFailedPrecondition, "Horovod has not been initialized; use hvd.init().");
}

}  // namespace hvd::c_api

extern "C" {

HVD_API const char* hvd_last_error(void) { return hvd::c_api::t_error.c_str(); }
HVD_API int hvd_last_status(void) { return hvd::c_api::t_status; }

}  // extern "C"
