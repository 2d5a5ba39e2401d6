// SPDX-License-Identifier: Apache-2.0
// A node of TensorFlow's graph that is a collective operation: what its attributes say. One object per node, made when
// the node is first run and used at every step.
#ifndef HVD_TENSORFLOW_COLLECTIVE_KERNEL_H_
#define HVD_TENSORFLOW_COLLECTIVE_KERNEL_H_

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>

#include "hvd/hvd.h"
#include "hvd/tensorflow/tf_api.h"

namespace hvd::tensorflow {

// Whether polling a little for the end of a small operation is worth it: it is where ranks run in step, and a waste of
// TensorFlow's thread where this one is early. Any thread.
class Luck {
 public:
  bool Try(size_t bytes) {
    if (bytes > kSmall) return false;
    if (pause_.load(std::memory_order_relaxed) <= 0) return true;
    pause_.fetch_sub(1, std::memory_order_relaxed);
    return false;
  }
  void Note(bool over_in_time) { pause_.store(over_in_time ? 0 : kPause, std::memory_order_relaxed); }

 private:
  static constexpr size_t kSmall = 16 << 10;
  static constexpr int kPause = 15;

  std::atomic<int> pause_{0};
};

struct CollectiveKernel {
  CollectiveKernel() { live.fetch_add(1, std::memory_order_relaxed); }
  ~CollectiveKernel() { live.fetch_sub(1, std::memory_order_relaxed); }
  CollectiveKernel(const CollectiveKernel&) = delete;
  CollectiveKernel& operator=(const CollectiveKernel&) = delete;

  // Collectives of all graphs of this process.
  static inline std::atomic<int> live{0};

  int32_t op = HVD_ALLREDUCE;
  bool grouped = false;
  // Eager calls wait anyhow, so the calling thread does the work itself and no thread has to wake up.
  bool blocking = false;
  int32_t process_set = 0;
  int32_t reduce_op = HVD_SUM;
  int32_t root_rank = 0;
  double prescale = 1.0;
  double postscale = 1.0;
  int32_t wire = 0;  // HVD_WIRE_FLOAT16 ...
  std::string name;  // equal on all ranks
  std::shared_ptr<Luck> luck = std::make_shared<Luck>();

  // Reads the attributes that nodes of this operation have. NULL, and TensorFlow knows why, if that fails.
  static CollectiveKernel* Create(TF_OpKernelConstruction* construction, int32_t op, bool grouped);

  // Starts the operation, or runs it to its end if `blocking`. `done` is run when outputs or an error are set.
  void Compute(TF_OpKernelContext* context, TF_AsyncOpKernelDoneCallback* done) const;
};

}  // namespace hvd::tensorflow

#endif  // HVD_TENSORFLOW_COLLECTIVE_KERNEL_H_
