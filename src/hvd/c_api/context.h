// SPDX-License-Identifier: Apache-2.0
#pragma once
// The one process-wide engine pointer, and what every entry point does first: find its engine and keep it alive for the
// length of the call.

#include <atomic>
#include <memory>
#include <string>

#include "hvd/base/result.h"
#include "hvd/engine/engine.h"
#include "hvd/hvd.h"

struct hvd_context {
  std::atomic<hvd::engine::Engine*> engine{nullptr};
  std::atomic<int> calls{0};  // that may hold the pointer
};

namespace hvd::c_api {

hvd_context& ProcessContext();

// Remembers text and code for hvd_last_error and hvd_last_status of this thread; gives the code.
int Report(const Error& error);
int Report(Code code, std::string text);
inline int Report(const Status& status) { return status ? HVD_OK : Report(status.error()); }

// A time-out that was checked, made harmless: nobody waits for more than 30 years.
inline double Bounded(double seconds) {
  constexpr double kMost = 1e9;
  return seconds > kMost ? kMost : seconds;
}

// True in a child that was forked while there was an engine; then nothing may be touched.
bool InForkedChild();
int ReportForked();
// Around the life of every engine, the making of one included: what is forked meanwhile is a forked child.
void EngineBegins();
void EngineEnds();

// One call's hold on an engine.
class Call {
 public:
  explicit Call(hvd_context* ctx) : context_(ctx != nullptr ? ctx : &ProcessContext()) {
    context_->calls.fetch_add(1, std::memory_order_seq_cst);
    engine_ = context_->engine.load(std::memory_order_seq_cst);
  }
  ~Call() { context_->calls.fetch_sub(1, std::memory_order_release); }
  Call(const Call&) = delete;
  Call& operator=(const Call&) = delete;

  explicit operator bool() const { return engine_ != nullptr && !InForkedChild(); }
  engine::Engine* operator->() const { return engine_; }
  // Why there is no engine.
  int Refuse() const;

 private:
  hvd_context* context_;
  engine::Engine* engine_;
};

}  // namespace hvd::c_api
