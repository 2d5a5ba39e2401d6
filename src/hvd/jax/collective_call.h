// SPDX-License-Identifier: Apache-2.0
// One run of a collective operation of a JAX program: from XLA's buffers to the engine and back.
//
// XLA has allocated the results. No thread of XLA waits for other ranks longer than a few microseconds: XLA may start
// independent operations in another order on every rank, and a thread that waits in one of them would keep back the one
// that the other ranks wait for. The engine's completion thread ends the call.
#ifndef HVD_JAX_COLLECTIVE_CALL_H_
#define HVD_JAX_COLLECTIVE_CALL_H_

#include <atomic>
#include <mutex>
#include <string>
#include <vector>

#include "hvd/hvd.h"
#include "hvd/jax/xla_ffi.h"

namespace hvd::jax {

class CollectiveCall {
 public:
  // Starts the operation that `call` describes. Returns an error, or nullptr; then call->future, if it is set, says
  // when the results are there.
  static XlaError* Start(XlaCall* call);

 private:
  // A tensor of the call; a group has several.
  struct Part {
    CollectiveCall* call = nullptr;
    std::string name;
    void* result = nullptr;
    uint64_t result_bytes = 0;
  };

  explicit CollectiveCall(const XlaApi* api) : api_(api) {}

  // Each returns whether the call is good; if not, it sets the failure.
  bool ReadAttributes(const XlaAttributes& attributes);
  bool CheckNumbering();
  bool ReadBuffers(const XlaBuffers& operands, const XlaBuffers& results);
  // Returns HVD_IN_PROGRESS if OnDone ends the call, else the call's status.
  int Submit();
  XlaError* MakeFuture();

  // Changes results if the call is about the root's only. The operation has ended.
  void FinishResults();

  // The first failure is the call's.
  void Fail(int code, const std::string& text);
  // Returns the failure, or nullptr.
  XlaError* Error() const;
  // Ends one of those that `open_` counts. The last one tells XLA that the call is over, and deletes this.
  void End();

  static void* OnAllocate(void* part, uint64_t bytes, const int64_t* shape, int32_t ndim);
  static void OnDone(void* part, hvd_handle handle, int32_t status, const char* message);

  const XlaApi* api_;
  std::string name_;
  int32_t grouped_ = 0;         // names of parts have numbers
  int32_t only_root_ = 0;       // the results on other ranks than the root are zeros
  int32_t made_for_rank_ = -1;  // this rank's number when the program was made; -1: the program fits any
  int64_t made_for_ranks_ = 0;  // digest of the process set's ranks at that time; 0: the program fits any
  hvd_request common_ = {};     // what all tensors of the call have in common
  std::vector<Part> parts_;
  std::vector<hvd_request> requests_;
  XlaFuture* future_ = nullptr;
  std::atomic<size_t> open_{0};  // parts that are not over, and one for Start
  std::mutex failure_mutex_;
  int code_ = HVD_OK;
  std::string text_;
};

}  // namespace hvd::jax

#endif  // HVD_JAX_COLLECTIVE_CALL_H_
